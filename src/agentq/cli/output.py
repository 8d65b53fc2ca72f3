"""Keeps standard output for results alone, and chooses who shows them."""

from __future__ import annotations

import logging
import os
import sys

from agentq.cli.board import Board
from agentq.cli.report import FailuresOnly, JsonLines, PlainLines, Reporter, say
from agentq.cli.writer import Writer


class Output:
    """Standard output, as it is when the command starts.

    Unless it is a terminal to draw on, it is taken over: what modules, functions and their
    children print goes to standard error from then on, for the rest of the process. So it can
    neither stand between results nor fail because nobody reads them.

    Args:
        as_json: lines of JSON are wanted, whatever standard output is.
        quiet: failures only are wanted.
    """

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        stdout = sys.stdout
        drawn_on = stdout is not None and stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._terminal = stdout if drawn_on and not (as_json or quiet) else None
        self._as_json = as_json
        self._quiet = quiet
        self._encoding = "utf-8" if as_json or stdout is None else stdout.encoding
        self._descriptor = None if self._terminal is not None else _taken_over()

    def reporter(self, board: Board, total: int | None) -> Reporter:
        """Choose who shows a run that has `total` lines, when that is known."""
        if self._terminal is not None:
            from agentq.cli.live import LiveDisplay

            return LiveDisplay(self._terminal, board, total)
        if self._quiet and not self._as_json:
            return FailuresOnly()
        writer = None if self._descriptor is None else Writer(self._descriptor, self._encoding)
        return JsonLines(writer) if self._as_json else PlainLines(writer, board)


def settle_standard_output() -> None:
    """Flush what functions have printed; when nobody reads it, let it go quietly."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def log_harmlessly() -> None:
    """Write what the queue and asyncio log to standard error, without control characters."""
    handler = _Harmless(logging.WARNING)
    for name in ("agentq", "asyncio"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False


class _Harmless(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        for line in self.format(record).splitlines():
            say(line)


def _taken_over() -> int | None:
    """Have what is printed go to standard error. Returns another descriptor for what it was."""
    if sys.stdout is None:
        return None
    try:
        printed = sys.stdout.fileno()
    except OSError:  # someone has put another object there, which is no file
        return None
    sys.stdout.flush()
    own = os.dup(printed)
    elsewhere = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else sys.stderr.fileno()
    os.dup2(elsewhere, printed)
    return own
