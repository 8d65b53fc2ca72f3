"""What finished keys cost: bytes a key, and the pause of a full garbage collection.

    python benchmarks/retained_keys.py dict|queue [--keys 1000000]

Each shape is measured in a process of its own that imports nothing else; in_process.py runs them
and prints the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import time
from pathlib import Path
from typing import Any

from agentq import Job, LaneConfig, Queue


def key(i: int) -> str:
    return f"job-{i:028x}"


async def output(i: int) -> str:
    return f"out-{i:016x}"


async def in_a_dict(n: int) -> dict[str, str]:
    return {key(i): await output(i) for i in range(n)}


async def in_a_queue(n: int) -> Queue:
    queue = Queue({"bench": LaneConfig(capacity=100, permits=100)})
    await queue.__aenter__()
    for start in range(0, n, 100):
        handles = []
        for i in range(start, start + 100):
            job = Job(key(i), output, args=(i,), lane="bench")
            handles.append((await queue.push(job)).handle)  # type: ignore[union-attr]
        for handle in handles:
            await handle
    return queue


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def pause() -> float:
    began = time.process_time()
    gc.collect()
    return time.process_time() - began


async def measure(shape: str, n: int) -> dict[str, float]:
    gc.collect()
    before = resident()
    kept: Any = await (in_a_dict(n) if shape == "dict" else in_a_queue(n))
    size = (resident() - before) / n
    pauses = [pause() for _ in range(7)]
    if shape == "queue":
        await kept.close()
    return {"bytes": size, "pause_ms": statistics.median(pauses) * 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("shape", choices=["dict", "queue"])
    parser.add_argument("--keys", type=int, default=1_000_000)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(measure(options.shape, options.keys))))


if __name__ == "__main__":
    main()
