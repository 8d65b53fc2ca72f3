"""`current()`: what a job can know about itself, wherever its code runs."""

import asyncio
import threading
from typing import Any

import pytest
from gates import turns

from agentq import Job, JobContext, JobFailed, Queue, Retry, current, task


def test_outside_of_a_job_there_is_none() -> None:
    with pytest.raises(LookupError, match="outside of a job: no job is running here"):
        current()


async def test_outside_of_a_job_there_is_none_also_beside_a_queue() -> None:
    async def job() -> None:
        current()

    async with Queue() as queue:
        await queue.push_and_wait(Job("k", job))
        with pytest.raises(LookupError):
            current()
        with pytest.raises(LookupError):
            await asyncio.to_thread(current)


@pytest.mark.parametrize(
    "kind", ["loop", "thread", "awaitable", "child", "grandchild", "to_thread"]
)
async def test_a_job_knows_its_key_lane_and_attempt(kind: str) -> None:
    async def on_loop() -> JobContext:
        return current()

    async def child() -> JobContext:
        return await asyncio.create_task(on_loop())

    async def grandchild() -> JobContext:
        return (await asyncio.gather(child()))[0]

    async def to_thread() -> JobContext:
        return await asyncio.to_thread(current)

    def awaitable() -> Any:
        return on_loop()

    funcs: dict[str, Any] = {
        "loop": on_loop,
        "thread": current,
        "awaitable": awaitable,
        "child": child,
        "grandchild": grandchild,
        "to_thread": to_thread,
    }
    async with Queue() as queue:
        context = await queue.push_and_wait(Job("k", funcs[kind], lane="high"))
        assert (context.key, context.lane, context.attempt) == ("k", "high", 1)
        assert len(context.token) == 32


async def test_jobs_at_once_do_not_see_each_other() -> None:
    both = asyncio.Barrier(5)

    async def job() -> str:
        before = current().key
        await both.wait()
        await turns(3)
        assert current().key == before
        return before

    async with Queue() as queue:
        keys = [f"k{number}" for number in range(5)]
        outputs = await asyncio.gather(*(queue.push_and_wait(Job(key, job)) for key in keys))
    assert outputs == keys


async def test_a_nested_job_is_itself_and_its_parent_is_itself_again_afterwards() -> None:
    async def child() -> str:
        return current().key

    async def parent() -> list[str]:
        return [current().key, await queue.push_and_wait(Job("c", child)), current().key]

    async with Queue() as queue:
        assert await queue.push_and_wait(Job("p", parent)) == ["p", "c", "p"]


@task(name="charge", key="k")
async def charge(amount: int) -> None:
    TOKENS.append(current().token)
    raise ValueError


TOKENS: list[str] = []


async def test_the_token_is_the_same_for_every_attempt_and_push_of_a_call() -> None:
    TOKENS.clear()
    async with Queue() as queue:
        for _ in range(2):
            job = charge.job(1)
            job.retry = Retry(attempts=3, initial=0)
            with pytest.raises(JobFailed):
                await queue.push_and_wait(job)
    async with Queue() as queue:  # and in every queue
        with pytest.raises(JobFailed):
            await queue.push_and_wait(charge.job(1))
    assert len(TOKENS) == 7
    assert len(set(TOKENS)) == 1


async def test_another_call_has_another_token() -> None:
    TOKENS.clear()

    @task(name="refund", key="k")
    async def refund(amount: int) -> None:
        TOKENS.append(current().token)
        raise ValueError

    async def plain() -> None:
        TOKENS.append(current().token)
        raise ValueError

    jobs = [
        charge.job(1),
        charge.job(2),
        charge.job(1).with_key("other"),
        refund.job(1),
        Job("k", plain),
        Job("k2", plain),
    ]
    async with Queue() as queue:
        for job in jobs:
            with pytest.raises(JobFailed):
                await queue.push_and_wait(job)
    assert len(set(TOKENS)) == len(TOKENS) == 6


async def test_the_token_is_safe_to_hand_to_an_api_whatever_the_key() -> None:
    def token() -> str:
        return current().token

    async with Queue() as queue:
        for key in ("é" * 512, "a b\n", "🦀"):
            assert (await queue.push_and_wait(Job(key, token))).isalnum()


async def test_the_thread_of_a_job_has_its_context_and_gives_it_back() -> None:
    seen: list[str] = []
    names: set[str] = set()

    def job() -> None:
        names.add(threading.current_thread().name)
        seen.append(current().key)

    async with Queue() as queue:
        for number in range(5):  # one after the other: the thread is used again
            await queue.push_and_wait(Job(f"k{number}", job))
    assert seen == [f"k{number}" for number in range(5)]
    assert names == {"agentq job"}
