"""A signal handler or a finaliser may call the queue in the middle of the queue's own step."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from agentq import Job, JobLost, LaneConfig, Queue, QueueClosed


@contextmanager
def called_inside_a_step(queue: Queue, number: int, call: str) -> Iterator[list[int]]:
    """Have `call` made before the `number`-th line that runs while the queue's lock is held."""
    lines = [0]
    scheduler = queue._scheduler

    def on_line(frame: FrameType, event: str, arg: object) -> Any:
        if event == "line" and scheduler.lock._is_owned():  # type: ignore[attr-defined]
            lines[0] += 1
            if lines[0] == number:
                if call == "close":
                    queue.close()
                else:
                    queue.cancel("job-1")
        return on_line

    def on_call(frame: FrameType, event: str, arg: object) -> Any:
        return on_line if "agentq/queue/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield lines
    finally:
        sys.settrace(before)


async def value(number: int) -> int:
    await asyncio.sleep(0)
    return number


async def push_while_interrupted(number: int, call: str) -> int:
    """Returns how many lines there were to interrupt."""
    queue = Queue({"lane": LaneConfig(capacity=2, permits=1)})
    async with asyncio.timeout(10), queue:
        handles = []
        with called_inside_a_step(queue, number, call) as lines:
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
    return lines[0]


@pytest.mark.parametrize("call", ["close", "cancel"])
def test_close_and_cancel_in_the_middle_of_a_step_are_done_after_it(call: str) -> None:
    lines = asyncio.run(push_while_interrupted(0, call))
    assert lines > 200
    for number in range(1, lines + 1, 2):
        asyncio.run(push_while_interrupted(number, call))
