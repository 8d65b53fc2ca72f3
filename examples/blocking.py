"""Code without an event loop: eight threads share one queue.

    python examples/blocking.py

Every thread wants the number of lines of every source file of agentq. Each file is read once; who
comes later joins that run or gets its result.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agentq import BlockingQueue, JobFailed, LaneConfig, Retry, task

SOURCES = sorted(Path(__file__).parents[1].glob("src/agentq/**/*.py"))
CALLERS = 8

reads: list[str] = []
tries: list[str] = []


@task(key="lines:{path}", lane="disk")
def count_lines(path: str) -> int:
    """The number of lines of a file."""
    reads.append(path)
    return len(Path(path).read_text().splitlines())


@task(key="missing", retry=Retry(attempts=3, initial=0.01, on=(OSError,)))
def read_missing_file() -> str:
    """Fails three times, and then for good."""
    tries.append("missing")
    return Path(__file__).with_name("no such file").read_text()


def caller(queue: BlockingQueue, start: threading.Barrier) -> int:
    """One of the threads; returns how many lines there are in all."""
    start.wait()
    return sum(queue.push_and_wait(count_lines.job(str(path))) for path in SOURCES)


def main() -> None:
    """Let all threads ask at once, and count what was read."""
    start = threading.Barrier(CALLERS)
    with BlockingQueue({"disk": LaneConfig(permits=3)}) as queue:
        with ThreadPoolExecutor(CALLERS) as pool:
            calls = [pool.submit(caller, queue, start) for _ in range(CALLERS)]
            totals = {call.result() for call in calls}
        disk = queue.stats()["disk"]
        try:
            queue.push_and_wait(read_missing_file.job(), timeout=30)
        except JobFailed as failed:
            print(f"{failed.key}: {type(failed.__cause__).__name__} after {len(tries)} tries")
    print(f"{CALLERS} threads asked for {len(SOURCES)} files each")
    print(f"{len(reads)} reads, {disk.joined + disk.cached} answers from other reads")
    print(f"all agree: {len(totals) == 1}")


if __name__ == "__main__":
    main()
