"""Lines that wait to be pushed, lane by lane, so that a saturated lane holds up no other."""

from __future__ import annotations

import asyncio
from collections import deque

from agentq.cli.batch import Line

LINES_AHEAD = 1000
BYTES_AHEAD = 16 * 2**20


class LineUp:
    """The lines of one lane that are read and not pushed yet. One task takes, one puts."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque()
        self._bytes = 0
        self._closed = False
        self._change = asyncio.Event()

    def add(self, line: Line) -> None:
        """Line up one more."""
        self._lines.append(line)
        self._bytes += line.size
        self._change.set()

    async def room(self) -> None:
        """Wait while `LINES_AHEAD` lines or `BYTES_AHEAD` bytes are lined up."""
        while len(self._lines) >= LINES_AHEAD or self._bytes >= BYTES_AHEAD:
            self._change.clear()
            await self._change.wait()

    def close(self) -> None:
        """No more will come."""
        self._closed = True
        self._change.set()

    async def take(self) -> Line | None:
        """Wait for the next line. None when no more will come."""
        while not self._lines:
            if self._closed:
                return None
            self._change.clear()
            await self._change.wait()
        line = self._lines.popleft()
        self._bytes -= line.size
        self._change.set()
        return line

    def clear(self) -> list[Line]:
        """Take all at once."""
        lines = list(self._lines)
        self._lines.clear()
        self._bytes = 0
        self._change.set()
        return lines
