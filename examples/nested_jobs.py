"""Jobs that push jobs and wait for them: the digest of a directory, in a lane with one permit.

    python examples/nested_jobs.py

A directory's digest is made of the digests of what is in it, so its job waits for the jobs of its
children. It lends them its permit meanwhile: with `permits=1, capacity=1` nothing gets stuck, and
never more than one job executes its own code.
"""

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentq import Job, LaneConfig, Queue

SOURCE = Path(__file__).parents[1] / "src"


class Tree:
    """Digests of files and directories, as jobs of one queue."""

    def __init__(self, queue: Queue, lane: str) -> None:
        self.queue = queue
        self.lane = lane
        self.executing = self.most = self.files = self.directories = 0

    def job(self, path: Path) -> Job:
        """The job for a file or a directory."""
        call = self.directory if path.is_dir() else self.file
        return Job(f"digest:{path}", call, args=(path,), lane=self.lane)

    async def file(self, path: Path) -> str:
        """The digest of what is in a file."""
        with self.counted():
            self.files += 1
            return hashlib.sha256(await asyncio.to_thread(path.read_bytes)).hexdigest()

    async def directory(self, path: Path) -> str:
        """The digest of the names and digests of what is in a directory."""
        with self.counted():
            self.directories += 1
            inside = await asyncio.to_thread(lambda: sorted(path.iterdir()))
        children = [child for child in inside if child.name != "__pycache__"]
        digests = await asyncio.gather(
            *(self.queue.push_and_wait(self.job(child)) for child in children)
        )
        lines = [f"{child.name} {digest}" for child, digest in zip(children, digests, strict=True)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Around what a job does itself, as opposed to waiting for other jobs."""
        self.executing += 1
        self.most = max(self.most, self.executing)
        yield
        self.executing -= 1


async def main() -> None:
    """Make the digest of the source tree and print what ran."""
    narrow = LaneConfig(permits=1, capacity=1)
    async with Queue({"tree": narrow}) as queue:
        tree = Tree(queue, "tree")
        digest = await queue.push_and_wait(tree.job(SOURCE))
        print(f"{tree.files} files in {tree.directories} directories")
        print(f"{queue.stats()['tree'].completed} jobs, most executing at once: {tree.most}")
        print(f"digest of src: {digest}")


if __name__ == "__main__":
    asyncio.run(main())
