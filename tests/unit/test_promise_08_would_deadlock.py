"""Promise 8: a wait that can never end raises `WouldDeadlock` at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from gates import Gate, turns, value

from agentq import (
    Completed,
    InFlight,
    Job,
    JobFailed,
    JobHandle,
    LaneConfig,
    Queue,
    Queued,
    WouldDeadlock,
)
from agentq.queue import lending

TIGHT = LaneConfig(capacity=1, permits=1)


async def by_push_and_wait(queue: Queue, key: str) -> Any:
    return await queue.push_and_wait(Job(key, value))


async def by_its_handle(queue: Queue, key: str) -> Any:
    accepted = await queue.push(Job(key, value))
    assert type(accepted) is InFlight
    return await accepted.handle


async def by_the_result_of_its_handle(queue: Queue, key: str) -> Any:
    accepted = await queue.push(Job(key, value))
    assert type(accepted) is InFlight
    return await accepted.handle.result()


async def by_map(queue: Queue, key: str) -> Any:
    return [outcome async for outcome in queue.map([Job(key, value)])]


async def by_a_task_of_its_own(queue: Queue, key: str) -> Any:
    return await asyncio.create_task(queue.push_and_wait(Job(key, value)))


WAYS: list[Callable[[Queue, str], Awaitable[Any]]] = [
    by_push_and_wait,
    by_its_handle,
    by_the_result_of_its_handle,
    by_map,
    by_a_task_of_its_own,
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("permits", [1, 5])
async def test_a_job_that_waits_for_its_own_key_is_told_at_once(way: Any, permits: int) -> None:
    async def narcissus() -> str:
        with pytest.raises(WouldDeadlock, match="job 'k' would wait for itself"):
            await way(queue, "k")
        return "went on"

    async with Queue({"normal": LaneConfig(permits=permits)}) as queue:
        assert await queue.push_and_wait(Job("k", narcissus)) == "went on"
        stats = queue.stats()["normal"]
        assert (stats.running, stats.lending, stats.completed) == (0, 0, 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("length", [2, 3, 6])
async def test_a_ring_of_jobs_is_broken_by_the_one_that_would_close_it(
    way: Any, length: int
) -> None:
    ran: list[int] = []
    told: list[int] = []

    async def link(number: int) -> str:
        ran.append(number)
        following = (number + 1) % length
        try:
            if following:
                await queue.push_and_wait(Job(f"k{following}", link, args=(following,)))
            else:
                await way(queue, "k0")
        except WouldDeadlock:
            told.append(number)
        return "went on"

    lanes = {"normal": TIGHT}
    async with Queue(lanes) as queue:
        assert await queue.push_and_wait(Job("k0", link, args=(0,))) == "went on"
    assert ran == list(range(length))
    assert told == [length - 1]


async def test_a_ring_over_several_lanes_is_found() -> None:
    async def a() -> Any:
        return await queue.push_and_wait(Job("b", b, lane="two"))

    async def b() -> Any:
        return await queue.push_and_wait(Job("a", a, lane="one"))

    async with Queue({"one": TIGHT, "two": TIGHT}) as queue:
        with pytest.raises(JobFailed, match="JobFailed: job 'b' failed: WouldDeadlock: "):
            await queue.push_and_wait(Job("a", a, lane="one"))


async def test_a_ring_closed_by_jobs_that_were_pushed_apart_is_found() -> None:
    both = asyncio.Barrier(2)

    async def waits_for(key: str) -> str:
        await both.wait()
        try:
            await queue.push_and_wait(Job(key, value))
        except WouldDeadlock:
            return "told"
        return "waited"

    async with Queue() as queue:
        outputs = await asyncio.gather(
            queue.push_and_wait(Job("a", waits_for, args=("b",))),
            queue.push_and_wait(Job("b", waits_for, args=("a",))),
        )
    assert sorted(outputs) == ["told", "waited"]


async def test_a_ring_through_a_task_of_a_job_is_found() -> None:
    async def a() -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
            child = group.create_task(queue.push_and_wait(Job("b", b)))
        return child.result()

    async def b() -> str:
        with pytest.raises(WouldDeadlock):
            await asyncio.gather(queue.push_and_wait(Job("a", a)))
        return "told"

    async with Queue({"normal": TIGHT}) as queue:
        assert await queue.push_and_wait(Job("a", a)) == "told"


async def test_a_ring_through_a_map_is_found() -> None:
    async def a() -> list[Any]:
        return [outcome async for _, outcome in queue.map([Job("x", value), Job("b", b)])]

    async def b() -> str:
        with pytest.raises(WouldDeadlock):
            await queue.push_and_wait(Job("a", a))
        return "told"

    async with Queue({"normal": TIGHT}) as queue:
        outcomes = await queue.push_and_wait(Job("a", a))
        assert sorted(outcomes, key=repr) == [Completed("told"), Completed(None)]


async def test_joining_ones_own_key_without_waiting_is_no_deadlock() -> None:
    async def job() -> str:
        return type(await queue.push(Job("k", value))).__name__

    async with Queue({"normal": TIGHT}) as queue:
        assert await queue.push_and_wait(Job("k", job)) == "InFlight"


async def test_waiting_for_a_job_that_once_waited_for_this_one_is_no_deadlock() -> None:
    handles: list[JobHandle] = []
    gave_up = asyncio.Event()

    async def first() -> str:
        gate.started.set()
        await gave_up.wait()
        return str(await handles[0].result())

    async def second() -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await queue.push_and_wait(Job("first", first))
        gave_up.set()
        return "second"

    gate = Gate()
    async with Queue() as queue:
        waiting = asyncio.create_task(queue.push_and_wait(Job("first", first)))
        await gate.started.wait()
        accepted = await queue.push(Job("second", second))
        assert type(accepted) is Queued
        handles.append(accepted.handle)
        assert await waiting == "second"


async def test_others_who_wait_for_a_key_in_a_broken_ring_get_its_outcome() -> None:
    async def narcissus() -> Any:
        await turns(3)
        return await queue.push_and_wait(Job("k", narcissus))

    async with Queue({"normal": TIGHT}) as queue:
        errors = await asyncio.gather(
            *(queue.push_and_wait(Job("k", narcissus)) for _ in range(3)), return_exceptions=True
        )
        assert [type(error) for error in errors] == [JobFailed] * 3
        assert all(
            isinstance(error, JobFailed) and error.reason.startswith("WouldDeadlock: ")
            for error in errors
        )


async def test_the_circle_is_named() -> None:
    queue = Queue({"normal": LaneConfig(permits=3)})

    def waits_for(other: str) -> Any:
        async def wait() -> Any:
            return await queue.push_and_wait(Job(other, waits_for(NEXT[other])))

        return wait

    async with queue:
        with pytest.raises(JobFailed, match="'c' would wait for itself: 'c' → 'a' → 'b' → 'c'"):
            await queue.push_and_wait(Job("a", waits_for("b")))


NEXT = {"a": "b", "b": "c", "c": "a"}


async def test_asking_costs_the_same_however_many_wait_for_one_that_waits_for_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0

    def counted(look: Any) -> Any:
        def onward(entry: Any) -> Iterator[Any]:
            nonlocal looked_at
            for found in look(entry):
                looked_at += 1
                yield found

        return onward

    for name in ("_awaited_by", "_waiting_for"):
        monkeypatch.setattr(lending, name, counted(getattr(lending, name)))
    many, gate = 300, Gate()

    async def hub() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(many):
                group.create_task(queue.push_and_wait(Job(f"child {number}", gate)))

    async def asks() -> None:
        await queue.push_and_wait(Job("hub", hub))

    lanes = {"normal": LaneConfig(permits=2 * many + 2, capacity=many)}
    async with Queue(lanes) as queue:
        await queue.push(Job("hub", hub))
        while queue.stats()["normal"].running < many:
            await asyncio.sleep(0)
        for number in range(many):
            await queue.push(Job(f"asks {number}", asks))
        while queue.stats()["normal"].lending < many + 1:
            await asyncio.sleep(0)
        gate.opened.set()
    assert looked_at < 10 * many


async def test_the_code_of_a_run_that_was_given_up_cannot_wait_for_the_next_run_of_its_key() -> (
    None
):
    told = asyncio.Event()

    async def given_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            with pytest.raises(WouldDeadlock, match="job 'k' would wait for itself"):
                await queue.push_and_wait(Job("k", value))
            told.set()

    async with Queue({"normal": TIGHT}) as queue:
        with pytest.raises(JobFailed, match="timed out"):
            await queue.push_and_wait(Job("k", given_up, timeout=0.01))
        await told.wait()
        assert await queue.push_and_wait(Job("k", value)) is None
