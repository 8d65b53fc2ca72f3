"""Shows results as they come: as lines of text, as lines of JSON, or not at all."""

from __future__ import annotations

import sys
from typing import Protocol

from agentq.cli.board import Board
from agentq.cli.escape import clipped, visible
from agentq.cli.results import Ran, Result, State
from agentq.cli.writer import Writer

DETAIL_WIDTH = 100
LABEL_WIDTH = 60


class Reporter(Protocol):
    """Shows a run to whoever started it."""

    def result(self, result: Result) -> None:
        """Show the end of a line."""

    def notice(self, text: str) -> None:
        """Say something about the run itself."""

    async def room(self) -> None:
        """Wait while what is shown is not being read."""

    async def finish(self) -> str | None:
        """Show what there is to show at the end, and wait until it is out.

        Returns what went wrong, if the system refused some of it.
        """

    def hurry(self) -> None:
        """Wait no longer for what is shown to be read."""

    def abort(self) -> None:
        """Leave the terminal usable; the process ends now. Called by a signal handler."""


def say(text: str) -> None:
    """Write a line to standard error, if there is one."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(f"agentq: {visible(text)}\n")
            sys.stderr.flush()
        except OSError:  # nobody is listening, and there is nobody to tell
            return


class Lines:
    """Writes lines to standard output. The base of the reporters that do no more than that."""

    def __init__(self, writer: Writer | None) -> None:
        self._writer = writer

    def notice(self, text: str) -> None:
        """Say it on standard error, which is nobody's data."""
        say(text)

    async def room(self) -> None:
        """Wait while too much is unread."""
        if self._writer is not None:
            await self._writer.room()

    async def finish(self) -> str | None:
        """Wait until everything is written."""
        if self._writer is None:
            return None
        await self._writer.finish()
        if self._writer.error is None:
            return None
        return f"cannot write to standard output: {self._writer.error.strerror}"

    def hurry(self) -> None:
        """Wait no longer for a reader."""
        if self._writer is not None:
            self._writer.hurry()

    def abort(self) -> None:
        """Nothing to restore."""

    def _write(self, text: str) -> None:
        if self._writer is not None:
            self._writer.put(f"{text}\n")


class JsonLines(Lines):
    """One line of JSON per result, and nothing else on standard output."""

    def result(self, result: Result) -> None:
        """Write the result."""
        self._write(result.to_json())


class PlainLines(Lines):
    """One short line per result, and a summary."""

    def __init__(self, writer: Writer | None, board: Board) -> None:
        super().__init__(writer)
        self._board = board

    def result(self, result: Result) -> None:
        """Write the result."""
        self._write(plain(result))

    async def finish(self) -> str | None:
        """Write the summary."""
        self._write(self._board.summary())
        return await super().finish()


class FailuresOnly(Lines):
    """What `--quiet` leaves: the lines that did not complete, on standard error."""

    def __init__(self) -> None:
        super().__init__(None)

    def result(self, result: Result) -> None:
        """Say what failed."""
        if result.state is not State.COMPLETED:
            say(plain(result))


def plain(result: Result) -> str:
    """A result as one harmless line of text."""
    parts = [
        f"{result.state.replace('_', ' '):<9} line {result.line:<4}",
        clipped(result.label, LABEL_WIDTH),
        how(result),
        result.detail(DETAIL_WIDTH),
    ]
    return "  ".join(part for part in parts if part)


def how(result: Result) -> str:
    """Say in brackets how a line came to its end."""
    if result.ran is Ran.NO:
        return ""
    if result.ran is not Ran.RAN:
        return f"({result.ran})"
    tries = f", {result.attempts} tries" if result.attempts > 1 else ""
    return f"(ran{tries}, {result.seconds:.2f} s)"
