"""C17: a job runs in a copy of its pusher's context, and in nobody else's."""

import asyncio
from contextvars import ContextVar

import pytest
from gates import Gate

from agentq import Job, LaneConfig, Queue, Queued

USER: ContextVar[str] = ContextVar("user", default="nobody")


async def who() -> str:
    return USER.get()


def who_in_a_thread() -> str:
    return USER.get()


async def changes_it() -> str:
    before = USER.get()
    USER.set("set by a job")
    await asyncio.sleep(0)
    return before


def changes_it_in_a_thread() -> str:
    before = USER.get()
    USER.set("set by a job")
    return before


@pytest.mark.parametrize("func", [who, who_in_a_thread])
async def test_each_job_sees_its_pusher(func: object) -> None:
    assert callable(func)
    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        seen = []
        for name in ("u1", "u2"):
            USER.set(name)
            seen.append(await queue.push_and_wait(Job(name, func)))
    assert seen == ["u1", "u2"]


@pytest.mark.parametrize("func", [changes_it, changes_it_in_a_thread])
async def test_what_a_job_sets_is_seen_by_nobody_else(func: object) -> None:
    assert callable(func)
    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        USER.set("pusher")
        assert await queue.push_and_wait(Job("a", func)) == "pusher"
        assert await queue.push_and_wait(Job("b", who)) == "pusher"
        assert await queue.push_and_wait(Job("c", who_in_a_thread)) == "pusher"
        assert USER.get() == "pusher"


async def test_the_context_is_that_of_the_push_not_of_the_start() -> None:
    gate = Gate()
    async with Queue({"normal": LaneConfig(capacity=5, permits=1)}) as queue:
        await queue.push(Job("blocks", gate))
        USER.set("when pushed")
        accepted = await queue.push(Job("k", who))
        USER.set("when started")
        gate.opened.set()
        assert type(accepted) is Queued
        assert await accepted.handle.result() == "when pushed"


async def test_the_job_that_frees_a_permit_gives_nothing_of_its_context_to_the_next() -> None:
    async with Queue({"normal": LaneConfig(capacity=5, permits=1)}) as queue:
        tasks = []
        for number in range(5):
            USER.set(f"u{number}")
            tasks.append(asyncio.create_task(queue.push_and_wait(Job(f"k{number}", changes_it))))
        assert await asyncio.gather(*tasks) == [f"u{number}" for number in range(5)]


async def test_joined_callers_share_the_context_of_the_first() -> None:
    gate = Gate()

    async def work() -> str:
        await gate()
        return USER.get()

    async with Queue() as queue:
        USER.set("first")
        first = asyncio.create_task(queue.push_and_wait(Job("k", work)))
        await gate.started.wait()
        USER.set("second")
        second = asyncio.create_task(queue.push_and_wait(Job("k", work)))
        await asyncio.sleep(0)
        gate.opened.set()
        assert list(await asyncio.gather(first, second)) == ["first", "first"]


async def test_opening_a_queue_inside_a_request_does_not_keep_its_context() -> None:
    async def request(name: str) -> str:
        USER.set(name)
        return str(await queue.push_and_wait(Job(name, who)))

    USER.set("opener")
    async with Queue() as queue:
        names = [f"request {number}" for number in range(20)]
        assert await asyncio.gather(*(request(name) for name in names)) == names


async def test_nested_jobs_inherit_from_the_job_that_pushed_them() -> None:
    async def parent() -> str:
        USER.set("parent")
        return str(await queue.push_and_wait(Job("child", who)))

    async with Queue() as queue:
        USER.set("caller")
        assert await queue.push_and_wait(Job("parent", parent)) == "parent"
        assert USER.get() == "caller"
