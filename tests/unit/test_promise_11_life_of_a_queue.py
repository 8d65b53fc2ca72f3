"""Promise 11: a queue is entered once, and says clearly what it cannot do before and after."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from gates import Gate, turns, value

from agentq import (
    Completed,
    Job,
    JobLost,
    LaneConfig,
    Processing,
    Queue,
    QueueClosed,
    Queued,
)

TIGHT = {"normal": LaneConfig(capacity=1, permits=1)}


async def test_a_block_that_raises_still_lets_accepted_jobs_finish() -> None:
    queue = Queue()

    async def block() -> None:
        async with queue:
            await queue.push(Job("k", value, args=(1,)))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await block()
    assert queue.state("k") == Completed(1)


async def test_a_block_that_is_cancelled_cancels_what_runs() -> None:
    queue = Queue(TIGHT)
    gate = Gate()
    accepted: list[Any] = []

    async def block() -> None:
        async with queue:
            accepted.append(await queue.push(Job("running", gate)))
            accepted.append(await queue.push(Job("waiting", value)))
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await gate.started.wait()
    assert queue.state("running") == Processing()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for answer in accepted:
        with pytest.raises(JobLost):
            await answer.handle
    assert queue.stats()["normal"].running == 0


async def test_a_drain_that_is_cancelled_closes_the_queue() -> None:
    gate = Gate()
    async with Queue() as queue:
        accepted = await queue.push(Job("k", gate))
        assert type(accepted) is Queued
        await gate.started.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await queue.drain()
        with pytest.raises(JobLost):
            await accepted.handle


USES: list[tuple[str, Callable[[Queue], Any]]] = [
    ("push", lambda queue: queue.push(Job("k", value))),
    ("push_and_wait", lambda queue: queue.push_and_wait(Job("k", value))),
    ("map", lambda queue: anext(queue.map([Job("k", value)]))),
]


@pytest.mark.parametrize(("verb", "use"), USES)
async def test_before_it_is_entered_a_queue_says_how_to_open_it(
    verb: str, use: Callable[[Queue], Any]
) -> None:
    queue = Queue()
    with pytest.raises(QueueClosed, match="not open yet; use it inside 'async with queue:'"):
        await use(queue)
    assert queue.state("k") is None
    assert queue.cancel("k") is False
    assert queue.stats()["normal"].waiting == 0
    async with queue:
        assert await queue.push_and_wait(Job("k", value, args=(1,))) == 1


@pytest.mark.parametrize(("verb", "use"), USES)
@pytest.mark.parametrize("end", ["drain", "close"])
async def test_after_it_is_closed_a_queue_takes_no_more_work(
    verb: str, use: Callable[[Queue], Any], end: str
) -> None:
    async with Queue() as queue:
        await getattr(queue, end)()
        with pytest.raises(QueueClosed, match="the queue is closed and takes no more work"):
            await use(queue)


@pytest.mark.parametrize("end", ["drain", "close"])
async def test_a_queue_that_was_never_entered_can_be_closed(end: str) -> None:
    queue = Queue()
    await getattr(queue, end)()
    await getattr(queue, end)()
    with pytest.raises(QueueClosed):
        await queue.push(Job("k", value))
    with pytest.raises(QueueClosed, match="was closed before; a queue is used once"):
        await queue.__aenter__()


async def test_a_queue_is_entered_once() -> None:
    queue = Queue()
    async with queue:
        with pytest.raises(QueueClosed, match="was entered before; a queue is used once"):
            await queue.__aenter__()
        assert await queue.push_and_wait(Job("k", value, args=(1,))) == 1
    with pytest.raises(QueueClosed, match="was entered before; a queue is used once"):
        await queue.__aenter__()


async def test_closing_in_the_tick_of_a_push_leaves_no_handle_hanging() -> None:
    async with Queue(TIGHT) as queue:
        pushes = [
            asyncio.create_task(queue.push_and_wait(Job(f"k{number}", Gate())))
            for number in range(6)
        ]
        await turns(1)
        queue.close()
        errors = await asyncio.gather(*pushes, return_exceptions=True)
        assert {type(error) for error in errors} <= {JobLost, QueueClosed}
        assert len(errors) == 6
