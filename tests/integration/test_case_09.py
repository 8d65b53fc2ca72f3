"""C09: a joined waiter that gives up cancels nobody else.

Right: the job belongs to the queue, not to a caller. It ends once, whoever still waits gets the
result, a later push gets the cached output; with no waiter left it still ends and is recorded.
"""

import asyncio
import logging

import pytest
from gates import Gate, turns

from agentq import Cached, Completed, Failed, Job, Queue


async def test_the_third_waiter_gets_the_result_that_the_first_two_did_not_wait_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate()
    async with Queue() as queue:
        job = Job("k", gate, args=("result",))
        first, second, third = (asyncio.create_task(queue.push_and_wait(job)) for _ in range(3))
        await gate.started.wait()
        await turns(3)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(second, 0.02)
        gate.opened.set()
        assert await third == "result"
        assert await queue.push(job) == Cached("result")
    assert gate.runs == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("fails", [False, True])
async def test_with_no_waiter_left_the_job_still_ends_and_is_recorded(
    fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()

    async def work() -> str:
        await gate()
        if fails:
            raise ValueError("no")
        return "result"

    async with Queue() as queue:
        job = Job("k", work)
        waiters = [asyncio.create_task(queue.push_and_wait(job)) for _ in range(5)]
        await gate.started.wait()
        await turns(3)
        for waiter in waiters:
            waiter.cancel()
        results = await asyncio.gather(*waiters, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 5
        gate.opened.set()
        await queue.drain()
        assert queue.state("k") == (Failed("ValueError: no") if fails else Completed("result"))
    assert gate.runs == 1
    # "never retrieved" would reach the loop's exception handler, which fails every test here.
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("steps", range(6))
async def test_the_one_who_started_it_may_leave_in_whichever_tick(steps: int) -> None:
    gate = Gate()
    gate.opened.set()
    async with Queue() as queue:
        job = Job("k", gate, args=("result",))
        first = asyncio.create_task(queue.push_and_wait(job))
        await turns(1)
        second = asyncio.create_task(queue.push_and_wait(job))
        await turns(steps)
        first.cancel()
        assert await second == "result"
        await asyncio.gather(first, return_exceptions=True)
    assert gate.runs == 1
