"""The numbers of a running batch, per lane and in all."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from agentq.cli.results import Ran, Result, State

EVENTS = 6
FAILURES = 10


@dataclass(slots=True)
class Counts:
    """The numbers of some lines.

    Attributes:
        lines: how many there are so far.
        running: jobs whose code runs.
        states: ended lines by state. It has every state from the start, so that another thread
            may read it at any time.
        ran: ended lines by where their end comes from, likewise.
    """

    lines: int = 0
    running: int = 0
    states: dict[State, int] = field(default_factory=lambda: dict.fromkeys(State, 0))
    ran: dict[Ran, int] = field(default_factory=lambda: dict.fromkeys(Ran, 0))

    def ended(self, result: Result) -> None:
        """One of the lines has ended."""
        self.states[result.state] += 1
        self.ran[result.ran] += 1

    @property
    def done(self) -> int:
        """Lines that have ended."""
        return sum(self.states.values())

    @property
    def completed(self) -> int:
        """Lines that have completed."""
        return self.states[State.COMPLETED]

    @property
    def failed(self) -> int:
        """Lines that have failed, or whose end is not known."""
        return self.states[State.FAILED] + self.states[State.LOST]

    @property
    def not_run(self) -> int:
        """Lines that an interrupt kept from running."""
        return self.states[State.NOT_RUN]

    @property
    def shared(self) -> int:
        """Lines that were answered by the execution of an earlier one."""
        return self.ran[Ran.JOINED] + self.ran[Ran.CACHED]

    @property
    def waiting(self) -> int:
        """Lines that have not ended and whose job does not run: waiting, joined or in between."""
        return max(0, self.lines - self.running - self.done)


class Board:
    """Written on the loop's thread; a display may read it from another."""

    def __init__(self, lanes: Iterable[str]) -> None:
        self.lanes = {name: Counts() for name in lanes}
        self.total = Counts()
        self.events: deque[Result] = deque(maxlen=EVENTS)
        self.failures: list[Result] = []
        self._began = time.monotonic()

    def fed(self, lane: str) -> None:
        """A line has been given to a lane."""
        self.total.lines += 1
        self.lanes[lane].lines += 1

    def ended(self, result: Result) -> None:
        """A line has ended. One without a lane is bad, and was given to none."""
        if result.lane is None:
            self.total.lines += 1
        else:
            self.lanes[result.lane].ended(result)
        self.total.ended(result)
        self.events.append(result)
        if result.state in (State.FAILED, State.LOST) and len(self.failures) < FAILURES:
            self.failures.append(result)

    @property
    def seconds(self) -> float:
        """Since the batch began."""
        return time.monotonic() - self._began

    @property
    def all_completed(self) -> bool:
        """Whether every line that has ended has completed."""
        return self.total.completed == self.total.done

    def summary(self) -> str:
        """The whole in one line."""
        total = self.total
        ends = f"{total.completed} completed, {total.failed} failed"
        if total.not_run:
            ends += f", {total.not_run} not run"
        return (
            f"{total.done} {'line' if total.done == 1 else 'lines'}: {ends}; "
            f"{total.ran[Ran.RAN]} ran, {total.shared} shared an earlier line's result; "
            f"{self.seconds:.1f} s"
        )
