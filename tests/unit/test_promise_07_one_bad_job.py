"""Promise 7: one bad job cannot stop a lane, the loop or the process."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from gates import turns, value

from agentq import Job, JobFailed, LaneConfig, Queue


def exits() -> None:
    sys.exit(3)


async def exits_on_the_loop() -> None:
    sys.exit(3)


async def recurses(depth: int = 0) -> None:
    await recurses(depth + 1)


def recurses_in_a_thread(depth: int = 0) -> None:
    recurses_in_a_thread(depth + 1)


async def raises_generator_exit() -> None:
    raise GeneratorExit


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    for _ in range(3):
        task.cancel()
    await asyncio.sleep(0)


async def raises_while_cancelled() -> None:
    try:
        await cancels_itself()
    finally:
        raise SystemExit("again")


async def returns_a_broken_awaitable() -> Any:
    class Broken:
        def __await__(self) -> Any:
            raise GeneratorExit

    return await Broken()


def changes_its_own_exception() -> None:
    error = ValueError("loop")
    error.__context__ = error.__cause__ = error
    raise error


BAD: list[Callable[[], Any]] = [
    exits,
    exits_on_the_loop,
    recurses,
    recurses_in_a_thread,
    raises_generator_exit,
    cancels_itself,
    raises_while_cancelled,
    returns_a_broken_awaitable,
    changes_its_own_exception,
]


@pytest.mark.parametrize("permits", [1, 3])
async def test_a_lane_full_of_bad_jobs_goes_on_with_the_good_ones(permits: int) -> None:
    async with Queue({"normal": LaneConfig(capacity=200, permits=permits)}) as queue:
        for round_ in range(3):
            for func in BAD:
                await queue.push(Job(f"bad {func.__name__} {round_}", func))
        good = [
            asyncio.create_task(queue.push_and_wait(Job(f"good {number}", value, args=(number,))))
            for number in range(20)
        ]
        assert await asyncio.gather(*good) == list(range(20))
        await queue.drain()
        stats = queue.stats()["normal"]
        assert (stats.failed, stats.completed) == (3 * len(BAD), 20)
        assert (stats.running, stats.waiting, stats.lending, stats.retrying) == (0, 0, 0, 0)


@pytest.mark.parametrize("func", BAD, ids=lambda func: func.__name__)
async def test_each_bad_job_fails_alone(func: Callable[[], Any]) -> None:
    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("bad", func))
        assert await queue.push_and_wait(Job("good", value, args=(1,))) == 1


async def test_a_bad_on_change_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def bad(change: object) -> None:
        raise SystemExit("on_change")

    async with Queue({"normal": LaneConfig(permits=1)}, on_change=bad) as queue:
        assert await queue.push_and_wait(Job("a", value, args=(1,))) == 1
        assert await queue.push_and_wait(Job("b", len, args=("ab",))) == 2
    failures = [record for record in caplog.records if record.name == "agentq"]
    assert [record.levelname for record in failures] == ["ERROR"] * 6
    assert failures[0].getMessage().startswith("on_change failed for Transition(key='a'")


async def test_a_job_that_blocks_its_lane_leaves_the_others_alone() -> None:
    async with Queue({"stuck": LaneConfig(capacity=1, permits=1)}) as queue:
        await queue.push(Job("stuck", asyncio.Event().wait, lane="stuck"))
        await turns(2)
        assert await queue.push_and_wait(Job("good", value, args=(1,))) == 1
        queue.cancel("stuck")
