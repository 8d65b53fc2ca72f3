"""Jobs that a test holds in its hand: they say when they run, and end when they are told to."""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec

from agentq import Cached, Job, JobHandle, Queue
from agentq.testing import simulate

P = ParamSpec("P")

WAIT_SECONDS = 15.0


class Gate:
    """An asynchronous job. It sets `started`, waits until `opened` is set, returns its argument."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.opened = asyncio.Event()
        self.runs = 0

    async def __call__(self, output: Any = None) -> Any:
        self.runs += 1
        self.started.set()
        await self.opened.wait()
        return output


class ThreadGate:
    """A synchronous job. It sets `started`, blocks until `opened` is set, returns its argument."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.opened = threading.Event()
        self.runs = 0

    def __call__(self, output: Any = None) -> Any:
        self.runs += 1
        self.started.set()
        assert self.opened.wait(WAIT_SECONDS)
        return output

    async def has_started(self) -> None:
        """Wait, without blocking the loop, until the job runs."""
        assert await asyncio.to_thread(self.started.wait, WAIT_SECONDS)


class Meter:
    """An asynchronous job that yields to the loop a few times and counts who runs at once."""

    def __init__(self) -> None:
        self.runs = 0
        self.now = 0
        self.most = 0

    async def __call__(self, yields: int = 3) -> int:
        self.runs += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await turns(yields)
        finally:
            self.now -= 1
        return self.runs


class OwnCode:
    """Counts the jobs of a lane that run code of their own, rather than wait for another job."""

    def __init__(self) -> None:
        self.now = self.most = self.jobs = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        self.now += 1
        self.jobs += 1
        self.most = max(self.most, self.now)
        try:
            yield
        finally:
            self.now -= 1

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.now -= 1
        try:
            yield
        finally:
            self.now += 1
            self.most = max(self.most, self.now)


async def handle_of(queue: Queue, job: Job) -> JobHandle:
    """Push a job that is not cached, and return its handle."""
    accepted = await queue.push(job)
    assert not isinstance(accepted, Cached)
    return accepted.handle


async def turns(count: int) -> None:
    """Let the loop take `count` turns, so that all that is ready has run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def value(output: Any = None) -> Any:
    """Return the argument: the plainest job there is."""
    return output


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an `async def` test on simulated loops: hours take no time, and nothing is ever late."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def watched() -> None:
            left: list[dict[str, Any]] = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: left.append(context))
            await test(*args, **kwargs)
            assert left == []

        for seed in range(5):
            simulate(watched(), seed=seed)

    return run
