"""Chooses who shows a run, and keeps standard output for that alone."""

from __future__ import annotations

import logging
import os
import sys

from agentq.cli.board import Board
from agentq.cli.report import FailuresOnly, JsonLines, PlainLines, Reporter, say
from agentq.cli.writer import Writer


class Output:
    """How a run is shown, chosen by where standard output goes.

    Unless a live display shares the terminal with them, what functions and their children print
    goes to standard error from here on, for the rest of the process: it can neither stand between
    results nor fail because nobody reads them. Make one before any module of a batch is imported.

    Args:
        as_json: lines of JSON, whatever standard output is.
        quiet: failures only.
    """

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self._as_json = as_json
        self._quiet = quiet
        terminal = sys.stdout is not None and sys.stdout.isatty()
        self._live = (
            terminal and os.environ.get("TERM") != "dumb" and not (self._as_json or self._quiet)
        )
        self._encoding = "utf-8" if as_json or sys.stdout is None else sys.stdout.encoding
        self._own = None if self._live else _reserved()

    def reporter(self, board: Board, *, total: int | None) -> Reporter:
        """Who shows the run.

        Args:
            board: the numbers of the run.
            total: how many lines it has, when that is known.
        """
        if self._live:
            from agentq.cli.live import LiveDisplay

            return LiveDisplay(sys.stdout, board, total)
        if self._quiet and not self._as_json:
            return FailuresOnly()
        writer = None if self._own is None else Writer(self._own, self._encoding)
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


def _reserved() -> int | None:
    """Take standard output over, and have what is printed go to standard error."""
    if sys.stdout is None:
        return None
    sys.stdout.flush()
    printed = sys.stdout.fileno()
    own = os.dup(printed)
    elsewhere = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else sys.stderr.fileno()
    os.dup2(elsewhere, printed)
    return own
