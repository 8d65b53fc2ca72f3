"""Chooses who shows a run, and keeps standard output for that alone."""

from __future__ import annotations

import logging
import os
import sys

from agentq.cli.board import Board
from agentq.cli.report import FailuresOnly, JsonLines, PlainLines, Reporter, say
from agentq.cli.writer import Writer


def reporter_for(board: Board, *, total: int | None, as_json: bool, quiet: bool) -> Reporter:
    """Choose how a run is shown.

    Args:
        board: the numbers of the run.
        total: how many lines it has, when that is known.
        as_json: lines of JSON, whatever standard output is.
        quiet: failures only.
    """
    terminal = sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if terminal and not (as_json or quiet):
        from agentq.cli.live import LiveDisplay

        return LiveDisplay(sys.stdout, board, total)
    encoding = "utf-8" if as_json or sys.stdout is None else sys.stdout.encoding
    own = _reserved()
    if quiet and not as_json:
        return FailuresOnly()
    writer = None if own is None else Writer(own, encoding)
    return JsonLines(writer) if as_json else PlainLines(writer, board)


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
    """Take standard output over: what functions and their children print goes to standard error.

    So for the rest of the process: what is printed then can neither stand between results nor
    fail because nobody reads them.
    """
    if sys.stdout is None:
        return None
    sys.stdout.flush()
    printed = sys.stdout.fileno()
    own = os.dup(printed)
    elsewhere = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else sys.stderr.fileno()
    os.dup2(elsewhere, printed)
    return own
