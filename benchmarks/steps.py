"""Where the time of a no-op job goes, and what the choices of decision 8 rest on.

    python benchmarks/steps.py

Shares are of the whole cost of a no-op job, pushed and awaited, 100 in flight; they do not add up
to 100, since a step includes calls that are listed apart. Best of many short runs, since what
disturbs a run only ever adds to it. No bare times are printed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from in_process import agentq, no_op

from agentq import Completed, Job, LaneConfig, Queue

JOBS = 100
RUNS = 300


@dataclass(frozen=True, slots=True)
class Dataclass:
    output: Any


def best(step: Callable[[int], None]) -> float:
    """Seconds for one of `JOBS` repetitions of a step, at its best."""
    took = []
    for _ in range(RUNS):
        began = time.perf_counter()
        step(JOBS)
        took.append(time.perf_counter() - began)
    return min(took) / JOBS


async def best_of(step: Callable[[int], Awaitable[None]]) -> float:
    took = []
    for _ in range(RUNS):
        began = time.perf_counter()
        await step(JOBS)
        took.append(time.perf_counter() - began)
    return min(took) / JOBS


async def tasks(n: int) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(n):
        asyncio.Task(no_op(), loop=loop, name="job", context=copy_context())
    await asyncio.sleep(0)


def make_jobs(n: int) -> None:
    for _ in range(n):
        Job("job-00000001", no_op, lane="lane")


def with_blocks(n: int, lock: Any) -> None:
    for _ in range(n):
        with lock:
            pass


def acquire_and_release(n: int, lock: Any) -> None:
    for _ in range(n):
        lock.acquire()
        try:
            pass
        finally:
            lock.release()


def structs(n: int) -> None:
    for _ in range(n):
        Completed(1)


def dataclasses(n: int) -> None:
    for _ in range(n):
        Dataclass(1)


def loop_timers(n: int) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(n):
        loop.call_later(30, print).cancel()


async def asyncio_timeouts(n: int) -> None:
    for _ in range(n):
        async with asyncio.timeout(30):  # noqa: ASYNC100 (what it costs is the question)
            pass


async def claims(n: int, took: list[float]) -> None:
    """Pushes into a lane whose only permit is taken: all of a claim but the start of the job."""
    async with Queue({"lane": LaneConfig(capacity=n, permits=1)}) as queue:
        gate = asyncio.Event()
        await queue.push(Job("first", gate.wait, lane="lane"))
        jobs = [Job(f"job-{i:08d}", no_op, lane="lane") for i in range(n)]
        began = time.perf_counter()
        for job in jobs:
            await queue.push(job)
        took.append((time.perf_counter() - began) / n)
        gate.set()


async def main() -> None:
    whole_run = agentq(no_op, 100)
    whole = min([await whole_run(JOBS * 20) for _ in range(30)]) / (JOBS * 20)
    took: list[float] = []
    for _ in range(RUNS):
        await claims(JOBS, took)
    lock = threading.RLock()
    in_blocks = best(lambda n: with_blocks(n, lock))
    spelled_out = best(lambda n: acquire_and_release(n, lock))
    shares = {
        "its task: made, scheduled, run": await best_of(tasks),
        "push, without the start of the job": min(took),
        "making and checking the Job": best(make_jobs),
        "taking the lock, twice": 2 * in_blocks,
    }
    print("of a no-op job's whole cost:")
    for what, seconds in shares.items():
        print(f"  {what:<40}{seconds / whole:>6.0%}")
    ratios = {
        "lock spelled out / in a with block": spelled_out / in_blocks,
        "msgspec struct / frozen dataclass": best(structs) / best(dataclasses),
        "timer of the loop / asyncio.timeout": best(loop_timers) / await best_of(asyncio_timeouts),
    }
    for what, ratio in ratios.items():
        print(f"{what:<42}{ratio:>5.2f}x")


if __name__ == "__main__":
    asyncio.run(main())
