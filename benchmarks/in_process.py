"""What a job costs in the process, as ratios against code written by hand and against peers.

    make bench                                  every row, on the default loop
    python benchmarks/in_process.py --loop uvloop --eager --rounds 9

Every ratio is the median of its own per-round ratios: the two sides of a row run one after the
other in each round, in alternating order, so that a slow moment of the machine hits both. Rounds
are many and short, 2,000 jobs a side, for the same reason. Times are processor times. Memory is
measured in processes of its own. Bare times are not printed.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import importlib.metadata
import itertools
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiojobs
import anyio
import taskiq
from async_lru import alru_cache
from by_hand import hand_made

from agentq import Job, LaneConfig, Queue

now = time.process_time
Side = Callable[[int], Awaitable[float]]


async def no_op() -> int:
    return 1


async def yielding() -> int:
    await asyncio.sleep(0)
    return 1


def keys(n: int) -> list[str]:
    return [f"job-{i:08d}" for i in range(n)]


def lane(permits: int, capacity: int = 100) -> dict[str, LaneConfig]:
    return {"bench": LaneConfig(capacity=capacity, permits=permits)}


def agentq(
    func: Callable[[], Awaitable[int]],
    permits: int,
    *,
    timeout: float | None = None,
    lanes: int = 1,
) -> Side:
    """Push 100 jobs, await their handles, again and again."""

    async def side(n: int) -> float:
        names = [f"lane-{i}" for i in range(lanes)]
        config = LaneConfig(capacity=100, permits=permits)
        async with Queue(dict.fromkeys(names, config)) as queue:
            todo = keys(n)
            lane = itertools.cycle(names)
            began = now()
            for start in range(0, n, 100):
                handles = []
                for i in range(start, start + 100):
                    if timeout is None:
                        job = Job(todo[i], func, lane=next(lane))
                    else:
                        job = Job(todo[i], func, lane=next(lane), timeout=timeout)
                    handles.append((await queue.push(job)).handle)  # type: ignore[union-attr]
                for handle in handles:
                    await handle
            return now() - began

    return side


def by_hand(func: Callable[[], Awaitable[int]], permits: int) -> Side:
    async def side(n: int) -> float:
        submit = hand_made(func, permits)
        todo = keys(n)
        began = now()
        for start in range(0, n, 100):
            futures = [submit(todo[i]) for i in range(start, start + 100)]
            for future in futures:
                await future
        return now() - began

    return side


async def with_aiojobs(n: int) -> float:
    async with aiojobs.Scheduler(limit=100, pending_limit=100) as scheduler:
        began = now()
        for _ in range(0, n, 100):
            spawned = [await scheduler.spawn(no_op()) for _ in range(100)]
            for job in spawned:
                await job.wait()
        return now() - began


async def with_anyio(n: int) -> float:
    limiter = anyio.CapacityLimiter(100)

    async def run(out: list[int], i: int) -> None:
        async with limiter:
            out[i] = await no_op()

    began = now()
    for _ in range(0, n, 100):
        out = [0] * 100
        async with anyio.create_task_group() as group:
            for i in range(100):
                group.start_soon(run, out, i)
    return now() - began


_broker = taskiq.InMemoryBroker(max_stored_results=10**7)
_kick = _broker.task(task_name="no_op")(no_op)


async def with_taskiq(n: int) -> float:
    few = max(n // 5, 100)
    began = now()
    for _ in range(0, few, 100):
        sent = [await _kick.kiq() for _ in range(100)]
        for handle in sent:
            await handle.wait_result(check_interval=0)
    return (now() - began) * n / few


async def agentq_hit(n: int) -> float:
    async with Queue(lane(100)) as queue:
        job = Job("key", no_op, lane="bench")
        await queue.push_and_wait(job)
        began = now()
        for _ in range(n):
            await queue.push_and_wait(job)
        return now() - began


async def lru_hit(n: int) -> float:
    @alru_cache(maxsize=None)  # type: ignore[untyped-decorator, unused-ignore]
    async def cached(key: str) -> int:
        return 1

    await cached("key")
    began = now()
    for _ in range(n):
        await cached("key")
    return now() - began


async def agentq_join(n: int) -> float:
    release = asyncio.Event()

    async def slow() -> int:
        await release.wait()
        return 1

    async with Queue(lane(100)) as queue:
        job = Job("key", slow, lane="bench")
        began = now()
        callers = [asyncio.ensure_future(queue.push_and_wait(job)) for _ in range(n)]
        await asyncio.sleep(0)
        release.set()
        for caller in callers:
            await caller
        return now() - began


async def lru_join(n: int) -> float:
    release = asyncio.Event()

    @alru_cache(maxsize=None)  # type: ignore[untyped-decorator, unused-ignore]
    async def cached(key: str) -> int:
        await release.wait()
        return 1

    began = now()
    callers = [asyncio.ensure_future(cached("key")) for _ in range(n)]
    await asyncio.sleep(0)
    release.set()
    for caller in callers:
        await caller
    return now() - began


async def extra(with_it: Side, without: Side, n: int) -> float:
    """A difference is noisier than its terms, so take the best of several short runs of each."""
    parts = 5
    took = [(await with_it(n // parts), await without(n // parts)) for _ in range(parts)]
    return parts * (min(first for first, _ in took) - min(second for _, second in took))


async def agentq_timeout_extra(n: int) -> float:
    return await extra(agentq(no_op, 100, timeout=30.0), agentq(no_op, 100), n)


async def asyncio_timeout_extra(n: int) -> float:
    async def limited() -> int:
        async with asyncio.timeout(30):
            return await no_op()

    return await extra(by_hand(limited, 100), by_hand(no_op, 100), n)


@dataclass(frozen=True)
class Row:
    what: str
    ours: Side
    theirs: Side
    goal: float
    jobs: int = 2_000
    jobs_theirs: int | None = None
    long: bool = False

    def ratio(self, ours: float, theirs: float) -> float:
        return (ours / self.jobs) / (theirs / (self.jobs_theirs or self.jobs))


ROWS = [
    Row("no-op, 100 permits / by hand", agentq(no_op, 100), by_hand(no_op, 100), 1.25),
    Row("yields once, 10 permits / by hand", agentq(yielding, 10), by_hand(yielding, 10), 1.0),
    Row("no-op / aiojobs", agentq(no_op, 100), with_aiojobs, 0.9),
    Row("no-op / taskiq InMemoryBroker", agentq(no_op, 100), with_taskiq, 0.2),
    Row("no-op / anyio limiter", agentq(no_op, 100), with_anyio, 0.25),
    Row("cached hit / async-lru", agentq_hit, lru_hit, 0.8),
    Row("join in flight / async-lru", agentq_join, lru_join, 0.7, jobs=10_000),
    Row("timeout, extra / asyncio.timeout", agentq_timeout_extra, asyncio_timeout_extra, 0.35),
    Row(
        "100,000 jobs / 20,000, per job",
        agentq(no_op, 100),
        agentq(no_op, 100),
        1.3,
        jobs=100_000,
        jobs_theirs=20_000,
        long=True,
    ),
    Row(
        "1,000 lanes / 1 lane",
        agentq(no_op, 100, lanes=1000),
        agentq(no_op, 100),
        1.3,
        jobs=20_000,
        long=True,
    ),
]


def measured_memory(shape: str, n: int) -> dict[str, float]:
    script = str(Path(__file__).with_name("retained_keys.py"))
    command = [sys.executable, script, shape, "--keys", str(n)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(out)
    return result


_LONG_EVERY = 6


async def measure(rounds: int, only: str, progress: Callable[[str], None]) -> dict[str, float]:
    rows = [row for row in ROWS if only in row.what]
    ratios: dict[str, list[float]] = {row.what: [] for row in rows}
    for round_number in range(rounds + 1):
        progress(f"round {round_number} of {rounds}" if round_number else "warming up")
        for row in rows:
            if row.long and round_number % _LONG_EVERY:
                continue
            sides = [(row.ours, row.jobs), (row.theirs, row.jobs_theirs or row.jobs)]
            order = [0, 1] if round_number % 2 else [1, 0]
            took = [0.0, 0.0]
            for side in order:
                func, jobs = sides[side]
                gc.collect()
                took[side] = await func(jobs if round_number else 1000)
            if round_number:
                ratios[row.what].append(row.ratio(*took))
    return {what: statistics.median(values) for what, values in ratios.items()}


def verdict(what: str, value: str, goal: str, *, holds: bool) -> None:
    print(f"{what:<42} {value:>9}   goal {goal:<9} {'holds' if holds else 'DOES NOT HOLD'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    parser.add_argument("--eager", action="store_true", help="with the eager task factory (3.12+)")
    parser.add_argument("--rounds", type=int, default=36)
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys for the memory row")
    parser.add_argument("--no-memory", action="store_true")
    options = parser.parse_args()

    async def run() -> dict[str, float]:
        if options.eager:
            factory = asyncio.eager_task_factory  # type: ignore[attr-defined]
            asyncio.get_running_loop().set_task_factory(factory)
        show = functools.partial(print, end="\r", file=sys.stderr, flush=True)
        return await measure(options.rounds, options.only, lambda text: show(f"{text:<20}"))

    if options.loop == "uvloop":
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            ratios = runner.run(run())
    else:
        ratios = asyncio.run(run())
    peers = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("aiojobs", "anyio", "async-lru", "taskiq")
    )
    print(f"Python {platform.python_version()}, {options.loop}{', eager' * options.eager}, {peers}")
    print(f"medians of {options.rounds} interleaved rounds; ours / theirs, smaller is better\n")
    held = []
    for row in ROWS:
        if row.what in ratios:
            held.append(ratios[row.what] <= row.goal)
            verdict(row.what, f"{ratios[row.what]:.2f}x", f"{row.goal:.2f}x", holds=held[-1])
    if not options.no_memory and options.only in "retained keys":
        plain, ours = (measured_memory(shape, options.keys) for shape in ("dict", "queue"))
        ratio = ours["bytes"] / plain["bytes"]
        held += [ratio <= 1.4, ours["pause_ms"] < 30]
        verdict(
            f"{options.keys:,} retained keys / dict, memory",
            f"{ratio:.2f}x",
            "1.40x",
            holds=held[-2],
        )
        pause = f"{ours['pause_ms']:.0f} ms"
        verdict(f"{options.keys:,} retained keys, collection", pause, "30 ms", holds=held[-1])
    print(f"\n{sum(held)} of {len(held)} goals hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
