"""Cuts bytes into numbered lines with bounded memory, from a file or from standard input."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import BinaryIO

LINE_LIMIT = 16 * 2**20
"""The longest line taken, in bytes."""

_CHUNK = 64 * 1024

RawLine = tuple[int, bytes | None]
"""A line's number, from 1, and its bytes; None for a line longer than `LINE_LIMIT`."""


class LineCutter:
    """Turns chunks into lines. Blank lines are counted and left out."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._number = 0
        self._parts: list[bytes] = []
        self._held = 0
        self._started = False

    def feed(self, chunk: bytes) -> Iterator[RawLine]:
        """Give the lines that `chunk` brings to their end."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._keep(part)
            yield from self._line()
        self._keep(rest)

    def finish(self) -> Iterator[RawLine]:
        """Give the last line, when the input did not end with a line end."""
        if self._parts:
            yield from self._line()

    def _keep(self, part: bytes) -> None:
        if not part:
            return
        self._held += len(part)
        if self._held > self._limit:
            self._parts = [b""]
        else:
            self._parts.append(part)

    def _line(self) -> Iterator[RawLine]:
        self._number += 1
        line = b"".join(self._parts)
        too_long = self._held > self._limit
        self._parts, self._held = [], 0
        if self._number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if too_long:
            yield self._number, None
        elif line := line.strip(b" \t\r"):
            yield self._number, line


def lines_of(file: BinaryIO) -> Iterator[RawLine]:
    """Give the lines of an open file that are not blank. Raises `OSError` as reading does."""
    cutter = LineCutter()
    while chunk := file.read(_CHUNK):
        yield from cutter.feed(chunk)
    yield from cutter.finish()


class Stream:
    """Lines of a file descriptor as they come, read ahead by no more than one chunk.

    A thread reads, since a descriptor made non-blocking would be so for everyone who shares it,
    and since regular files cannot be waited for.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._wanted = threading.Semaphore(0)
        self._next: asyncio.Future[bytes] | None = None

    async def lines(self) -> AsyncIterator[RawLine]:
        """Give the lines that are not blank. Raises `OSError` as reading does."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), name="agentq input", daemon=True).start()
        cutter = LineCutter()
        while chunk := await self._chunk(loop):
            for line in cutter.feed(chunk):
                yield line
        for line in cutter.finish():
            yield line

    async def _chunk(self, loop: asyncio.AbstractEventLoop) -> bytes:
        self._next = loop.create_future()
        self._wanted.release()
        return await self._next

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        chunk: bytes | OSError = b"-"
        while chunk and not isinstance(chunk, OSError):
            self._wanted.acquire()
            try:
                chunk = os.read(self._descriptor, _CHUNK)
            except OSError as error:
                chunk = error
            try:
                loop.call_soon_threadsafe(self._hand_over, chunk)
            except RuntimeError:  # the loop has ended: nobody wants it any more
                return

    def _hand_over(self, chunk: bytes | OSError) -> None:
        assert self._next is not None
        if self._next.done():
            return
        if isinstance(chunk, OSError):
            self._next.set_exception(chunk)
        else:
            self._next.set_result(chunk)
