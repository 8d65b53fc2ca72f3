"""The display on a terminal: numbers per lane while the batch runs, then a table."""

from __future__ import annotations

import os
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agentq.cli.board import Board
from agentq.cli.escape import clipped, visible
from agentq.cli.report import how
from agentq.cli.results import Ran, Result, State

_STYLES = {
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.LOST: "red",
    State.NOT_RUN: "yellow",
}
_LANE_WIDTH = 24
_LABEL_WIDTH = 40
_DETAIL_WIDTH = 200
_REASON_WIDTH = 1000
_REFRESHES_PER_SECOND = 8
_SHOW_CURSOR = b"\x1b[?25h\n"


class LiveDisplay:
    """A `Reporter` for a terminal. Drawn by a thread, so a halted terminal halts no job."""

    def __init__(self, terminal: IO[str], board: Board, total: int | None) -> None:
        self._console = Console(file=terminal, highlight=False, markup=False, emoji=False)
        self._descriptor = terminal.fileno()
        self._board = board
        self._total = total
        self._notice: str | None = None
        self._live = Live(
            get_renderable=self._progress,
            console=self._console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
        )
        self._live.start()

    def result(self, result: Result) -> None:
        """Nothing to do: the next refresh shows it."""

    def notice(self, text: str) -> None:
        """Show it below the numbers until the end."""
        self._notice = text

    async def room(self) -> None:
        """There is room: only the newest lines are shown."""

    async def finish(self) -> str | None:
        """Replace the display by the summary."""
        self._live.stop()
        self._console.print(self._summary())
        return None

    def hurry(self) -> None:
        """Nothing waits here."""

    def abort(self) -> None:
        """Show the cursor again."""
        os.write(self._descriptor, _SHOW_CURSOR)

    def _progress(self) -> RenderableType:
        board = self._board
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("lane")
        for name in ("waiting", "running", "completed", "failed"):
            table.add_column(name, justify="right")
        for name, counts in board.lanes.items():
            if counts.lines:
                lane = Text(clipped(name, _LANE_WIDTH))
                numbers = (counts.waiting, counts.running, counts.completed)
                table.add_row(lane, *map(str, numbers), _alarming(counts.failed))
        total = "" if self._total is None else f" of {self._total}"
        done = f"{board.total.done}{total} lines done, {board.seconds:.0f} s"
        parts: list[RenderableType] = [table, Text(done, style="bold")]
        parts += [self._event(result) for result in list(board.events)]
        return Group(*parts, *self._noticed())

    def _noticed(self) -> list[RenderableType]:
        if self._notice is None:
            return []
        return [Text(visible(self._notice), style="yellow")]

    def _event(self, result: Result, *, whole: bool = False) -> Text:
        """One result: in one line, or with all of its reason."""
        text = Text(no_wrap=not whole, overflow="fold" if whole else "ellipsis")
        text.append(f"{result.state.replace('_', ' '):<9} ", style=_STYLES[result.state])
        text.append(f"line {result.line:<4} {clipped(result.label, _LABEL_WIDTH)} ")
        text.append(f"{how(result)} ", style="dim")
        text.append(result.detail(_REASON_WIDTH if whole else _DETAIL_WIDTH))
        return text

    def _summary(self) -> RenderableType:
        board = self._board
        table = Table(title="batch", title_justify="left", header_style="bold")
        table.add_column("lane")
        for name in ("lines", "ran", "shared", "completed", "failed", "not run"):
            table.add_column(name, justify="right")
        for name, counts in board.lanes.items():
            if counts.lines:
                lane = Text(clipped(name, _LANE_WIDTH))
                numbers = (counts.lines, counts.ran[Ran.RAN], counts.shared, counts.completed)
                failed, not_run = _alarming(counts.failed), str(counts.not_run)
                table.add_row(lane, *map(str, numbers), failed, not_run)
        parts: list[RenderableType] = [table]
        parts += [self._event(result, whole=True) for result in board.failures]
        unshown = board.total.failed - len(board.failures)
        if unshown > 0:
            parts.append(Text(f"and {unshown} more failures", style="red"))
        return Group(*parts, *self._noticed(), Text(board.summary(), style="bold"))


def _alarming(number: int) -> Text:
    return Text(str(number), style="red" if number else "")
