"""A signal handler or a finaliser may call the queue in the middle of the queue's own step."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agentq import Job, JobLost, LaneConfig, Queue, QueueClosed


@contextmanager
def called_inside_a_step(queue: Queue, number: int, call: str) -> Iterator[list[int]]:
    """Have `call` made the `number`-th time the collector runs while the queue's lock is held."""
    seen = [0]
    scheduler = queue._scheduler

    def interrupt(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and scheduler.lock._is_owned():  # type: ignore[attr-defined]
            seen[0] += 1
            if seen[0] == number:
                if call == "close":
                    queue.close()
                else:
                    queue.cancel("job-1")

    threshold = gc.get_threshold()
    gc.callbacks.append(interrupt)
    gc.set_threshold(1)
    try:
        yield seen
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(interrupt)


async def value(number: int) -> int:
    await asyncio.sleep(0)
    return number


async def push_while_interrupted(number: int, call: str) -> int:
    """Returns how many interruptions there were a chance for."""
    queue = Queue({"lane": LaneConfig(capacity=2, permits=1)})
    async with asyncio.timeout(10), queue:
        handles = []
        with called_inside_a_step(queue, number, call) as seen:
            for key in range(6):
                job = Job(f"job-{key}", value, args=(key,), lane="lane")
                try:
                    handles.append((await queue.push(job)).handle)  # type: ignore[union-attr]
                except QueueClosed:
                    assert call == "close"
            for handle in handles:
                try:
                    await handle
                except JobLost:
                    assert call == "close"
        await queue.drain()
    stats = queue.stats()["lane"]
    assert (stats.waiting, stats.running, stats.lending, stats.retrying) == (0, 0, 0, 0)
    assert queue._scheduler.lanes["lane"].admitting == 0
    assert stats.completed + stats.failed == len(handles)
    return seen[0]


@pytest.mark.parametrize("call", ["close", "cancel"])
def test_close_and_cancel_in_the_middle_of_a_step_are_done_after_it(call: str) -> None:
    chances = asyncio.run(push_while_interrupted(0, call))
    assert chances > 20
    for number in range(1, chances + 1, 3):
        asyncio.run(push_while_interrupted(number, call))
