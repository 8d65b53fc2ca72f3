"""C21: odd handlers are refused when the job is made, or run to their real end.

Every kind of callable is in `unit/test_odd_callables.py` and `unit/test_job.py`; here the marker
that each body leaves is counted outside of the queue, in a file.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentq import Job, Queue, task


class StartLog:
    """Counts runs outside the queue: each appends a line to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, line: str) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


async def test_bodies_run_once_each_and_really(tmp_path: Path) -> None:
    log = StartLog(tmp_path / "starts")

    async def body(name: str) -> str:
        await asyncio.sleep(0)
        log.note(name)
        return name

    class Handler:
        async def __call__(self, name: str) -> str:
            return await body(name)

    def returns_a_coroutine(name: str) -> Any:
        return body(name)

    handlers: dict[str, Any] = {
        "function": body,
        "instance": Handler(),
        "returns": returns_a_coroutine,
    }
    async with Queue() as queue:
        for name, handler in handlers.items():
            for _ in range(2):
                assert await queue.push_and_wait(Job(name, handler, args=(name,))) == name
    assert log.lines() == ["function", "instance", "returns"]


async def test_an_async_generator_is_refused_and_never_stored_as_a_success(tmp_path: Path) -> None:
    log = StartLog(tmp_path / "starts")

    async def numbers() -> AsyncIterator[int]:
        log.note("generator")
        yield 1

    class Handler:
        async def __call__(self) -> AsyncIterator[int]:
            log.note("generator")
            yield 1

    for func in (numbers, Handler()):
        with pytest.raises(TypeError, match="is a generator function: calling it runs nothing"):
            Job("k", func)
        with pytest.raises(TypeError, match="is a generator function"):
            task(name="t")(func)
    assert log.lines() == []
