"""C13: what a second push of a key comes to, after each state it may have been left in.

| the key is…                        | the push answers | the callable runs |
|------------------------------------|------------------|-------------------|
| unknown                            | `Queued`         | once              |
| waiting or running                 | `InFlight`       | once in all       |
| completed                          | `Cached`         | once in all       |
| failed, cancelled or timed out     | `Queued`         | once more         |
| between two tries                  | `InFlight`       | as the retry says |
| forgotten by its retention         | `Queued`         | once more         |
| lost when its queue closed         | `QueueClosed`; in a new queue `Queued` | once more |

That the outcome of a job is unknown is never told as its failure: its waiters get `JobLost`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from gates import Gate, turns, value

from agentq import (
    Cached,
    InFlight,
    Job,
    JobFailed,
    JobLost,
    LaneConfig,
    Queue,
    QueueClosed,
    Queued,
    Retention,
    Retry,
)


class Counted:
    """A job whose first run goes as the row says."""

    def __init__(self, first_run: str) -> None:
        self.first_run = first_run
        self.runs = 0
        self.started = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self) -> str:
        self.runs += 1
        self.started.set()
        if self.runs == 1:
            if self.first_run == "hold":
                await self.go.wait()
            if self.first_run == "fail":
                raise ValueError("first")
        return f"run {self.runs}"


async def unknown(queue: Queue, job: Counted) -> None:
    return


async def waiting(queue: Queue, job: Counted) -> None:
    await queue.push(Job("other", Gate()))
    await queue.push(Job("k", job))


async def running(queue: Queue, job: Counted) -> None:
    await queue.push(Job("k", job))
    await job.started.wait()


async def completed(queue: Queue, job: Counted) -> None:
    await queue.push_and_wait(Job("k", job))


async def failed(queue: Queue, job: Counted) -> None:
    with pytest.raises(JobFailed, match="ValueError: first"):
        await queue.push_and_wait(Job("k", job))


async def cancelled(queue: Queue, job: Counted) -> None:
    await running(queue, job)
    queue.cancel("k")
    with pytest.raises(JobFailed, match="cancelled"):
        await queue.push_and_wait(Job("k", job))


async def timed_out(queue: Queue, job: Counted) -> None:
    with pytest.raises(JobFailed, match="timed out"):
        await queue.push_and_wait(Job("k", job, timeout=0.01))
    await turns(3)


async def between_tries(queue: Queue, job: Counted) -> None:
    await queue.push(Job("k", job, retry=Retry(attempts=2, initial=0.05, jitter=0)))
    await job.started.wait()
    await turns(3)


async def forgotten(queue: Queue, job: Counted) -> None:
    await queue.push_and_wait(Job("k", job))
    await queue.push_and_wait(Job("other", value))


Row = tuple[Callable[[Queue, Counted], Awaitable[None]], str, type, str, int]
ROWS: list[Row] = [
    (unknown, "end", Queued, "run 1", 1),
    (waiting, "end", InFlight, "run 1", 1),
    (running, "hold", InFlight, "run 1", 1),
    (completed, "end", Cached, "run 1", 1),
    (failed, "fail", Queued, "run 2", 2),
    (cancelled, "hold", Queued, "run 2", 2),
    (timed_out, "hold", Queued, "run 2", 2),
    (between_tries, "fail", InFlight, "run 2", 2),
    (forgotten, "end", Queued, "run 2", 2),
]


@pytest.mark.parametrize(
    ("bring_about", "first_run", "answer", "output", "runs"), ROWS, ids=lambda row: str(row)[:24]
)
async def test_the_answer_to_a_second_push(
    bring_about: Callable[[Queue, Counted], Awaitable[None]],
    first_run: str,
    answer: type,
    output: str,
    runs: int,
) -> None:
    job = Counted(first_run)
    retention = Retention(max_keys=1) if bring_about is forgotten else None
    async with Queue({"normal": LaneConfig(permits=1)}, retention=retention) as queue:
        await bring_about(queue, job)
        accepted: Any = await queue.push(Job("k", job))
        assert type(accepted).__name__ == answer.__name__
        job.go.set()
        queue.cancel("other")
        if answer is Cached:
            assert accepted.output == output
        else:
            assert await accepted.handle.result() == output
        assert await queue.push(Job("k", job)) == Cached(output)
    assert job.runs == runs


async def test_an_unknown_outcome_is_lost_and_not_failed_and_a_new_queue_runs_it() -> None:
    job = Counted("hold")
    async with Queue() as queue:
        accepted = await queue.push(Job("k", job))
        assert type(accepted) is Queued
        await job.started.wait()
        await queue.close()
        with pytest.raises(JobLost):
            await accepted.handle
        with pytest.raises(QueueClosed):
            await queue.push(Job("k", job))
    async with Queue() as queue:
        assert await queue.push_and_wait(Job("k", job)) == "run 2"
