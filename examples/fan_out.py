"""Many calls, a few at a time: the digest of every source file of agentq.

    python examples/fan_out.py

`map` takes jobs from a generator only as the lane has room, and yields outcomes as they come. Each
file is asked for twice, to show that each is read once.
"""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

from agentq import Completed, Job, LaneConfig, Processing, Queue, Transition, task

SOURCES = sorted(Path(__file__).parents[1].glob("src/agentq/**/*.py"))


@task(key="digest:{path}", lane="disk")
def digest(path: str) -> str:
    """Runs in a thread, since it is an ordinary function."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


class Watch:
    """Counts what runs, from the queue's own changes of state."""

    def __init__(self) -> None:
        self.running = self.most = self.runs = 0

    def __call__(self, change: Transition) -> None:
        """Take note of one change; the queue calls this."""
        if isinstance(change.after, Processing):
            self.runs += 1
            self.running += 1
            self.most = max(self.most, self.running)
        elif isinstance(change.before, Processing):
            self.running -= 1


def jobs() -> Iterator[Job]:
    """Two jobs for each file, made when the lane has room."""
    for path in SOURCES:
        yield digest.job(str(path))
        yield digest.job(str(path))


async def main() -> None:
    """Make the digests and print what ran."""
    watch = Watch()
    answers = 0
    digests: dict[str, str] = {}
    disk = LaneConfig(permits=4, capacity=8)
    async with Queue({"disk": disk}, on_change=watch) as queue:
        async for key, outcome in queue.map(jobs()):
            answers += 1
            if isinstance(outcome, Completed):
                digests[key] = outcome.output
    print(f"{len(SOURCES)} files, {answers} answers, {watch.runs} runs")
    print(f"most at once: {watch.most} of {disk.permits} permits")
    whole = hashlib.sha256("".join(sorted(digests.values())).encode()).hexdigest()
    print(f"digest of all: {whole}")


if __name__ == "__main__":
    asyncio.run(main())
