"""Writes lines to a descriptor from a thread, so that a slow reader does not hold up the loop."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress

BACKLOG = 2**20
"""How many characters may wait to be written before `room` waits."""


LAST_SECONDS = 1.0
"""How long `finish` waits in a hurry."""


class Writer:
    """Writes text in order. Ends quietly when nobody reads it any more.

    Args:
        descriptor: where to; it stays open.
        encoding: what it takes; characters that it has not are written as escapes.

    Attributes:
        error: why writing has ended before its time, when it was not for want of a reader.
    """

    def __init__(self, descriptor: int, encoding: str = "utf-8") -> None:
        self._descriptor = descriptor
        self._encoding = encoding
        self._change = threading.Condition()
        self._texts: list[str] = []
        self._pending = 0
        self._closing = False
        self._over = False
        self._hurrying = False
        self._waiting: set[asyncio.Future[None]] = set()
        self.error: OSError | None = None
        threading.Thread(target=self._run, name="agentq output", daemon=True).start()

    def put(self, text: str) -> None:
        """Have `text` written soon."""
        with self._change:
            if not (self._over or self._closing):
                self._texts.append(text)
                self._pending += len(text)
                self._change.notify()

    async def room(self) -> None:
        """Wait while too much waits to be written, unless in a hurry."""
        await self._until(lambda: self._hurrying or self._pending < BACKLOG)

    async def finish(self) -> None:
        """Take no more, and wait until everything is written; in a hurry, not for long."""
        with self._change:
            self._closing = True
            self._change.notify()
        await self._until(lambda: self._hurrying)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await self._until(lambda: False)
        self._end(None)

    def hurry(self) -> None:
        """Wait no longer for what is written to be read."""
        self._hurrying = True
        self._wake()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not (self._over or holds()):
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                # Looked at again, now that a change cannot be missed any more.
                if not (self._over or holds()):
                    await future
            finally:
                self._waiting.discard(future)

    def _run(self) -> None:
        while (text := self._take()) is not None:
            try:
                self._write(text)
            except BrokenPipeError:
                self._end(None)
                return
            except OSError as error:
                self._end(error)
                return
            with self._change:
                self._pending -= len(text)
            self._wake()
        self._end(None)

    def _take(self) -> str | None:
        with self._change:
            while not (self._texts or self._closing or self._over):
                self._change.wait()
            if self._over or not self._texts:
                return None
            text = "".join(self._texts)
            self._texts.clear()
            return text

    def _write(self, text: str) -> None:
        data = memoryview(text.encode(self._encoding, "backslashreplace"))
        while data and not self._over:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # someone who shares the descriptor made it so
                select.select((), (self._descriptor,), ())

    def _end(self, error: OSError | None) -> None:
        with self._change:
            self._over = True
            self.error = self.error or error
            self._texts.clear()
            self._pending = 0
            self._change.notify()
        self._wake()

    def _wake(self) -> None:
        for future in list(self._waiting):
            try:
                future.get_loop().call_soon_threadsafe(_set, future)
            except RuntimeError:  # that loop has ended
                continue


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
