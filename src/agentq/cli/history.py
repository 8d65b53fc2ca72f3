"""What has happened to keys: their tries, how long they took, and how they failed."""

from __future__ import annotations

import time
from dataclasses import dataclass

from agentq import Completed, Failed, Processing, Transition
from agentq.cli.results import State

NOT_STARTED = "interrupted before it started"


@dataclass(slots=True)
class Tries:
    """The tries of one key.

    Attributes:
        began: when the first began.
        count: how many have begun.
        ended: when the last has ended; 0 before that.
    """

    began: float
    count: int = 0
    ended: float = 0.0

    @property
    def seconds(self) -> float:
        """From the first begin to the end, or to now."""
        return max(0.0, (self.ended or time.monotonic()) - self.began)


class History:
    """Told of every change of state, in the same moment that it happens."""

    def __init__(self) -> None:
        self._tries: dict[str, Tries] = {}
        self._failures: dict[str, tuple[State, str]] = {}
        self._dropped: set[str] = set()

    def changed(self, change: Transition) -> None:
        """Note a change of state."""
        key, after = change.key, change.after
        if isinstance(after, Processing):
            tries = self._tries.setdefault(key, Tries(time.monotonic()))
            tries.count += 1
        elif isinstance(after, Completed | Failed):
            if key in self._tries:
                self._tries[key].ended = time.monotonic()
            if isinstance(after, Failed):
                self._failures[key] = self._failure(key, after.reason)

    def drop(self, key: str) -> None:
        """A key that does not run now is about to be cancelled by an interrupt."""
        self._dropped.add(key)

    def failure(self, key: str) -> tuple[State, str] | None:
        """How a key has failed, if it has."""
        return self._failures.get(key)

    def has_begun(self, key: str) -> bool:
        """Tell whether a key in flight has had a try, or a failed one had."""
        if key in self._failures:
            return self._failures[key][0] is not State.NOT_RUN
        return key in self._tries

    def tries(self, key: str) -> Tries:
        """The tries of a key that has not been forgotten."""
        return self._tries.get(key) or Tries(time.monotonic())

    def forget_tries(self, key: str) -> None:
        """The tries of a key have been told."""
        self._tries.pop(key, None)

    def _failure(self, key: str, reason: str) -> tuple[State, str]:
        if key not in self._dropped:
            return State.FAILED, reason
        if key not in self._tries:
            return State.NOT_RUN, NOT_STARTED
        count = self._tries[key].count
        return State.FAILED, f"interrupted after {count} failed {'try' if count == 1 else 'tries'}"
