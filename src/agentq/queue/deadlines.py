"""Timeouts of running jobs: one heap and at most one timer of the loop for all of them.

Most timeouts never fire, and an item in this heap costs less than a timer of the loop's (`make
bench` measures what a timeout adds to a job). An item whose deadline was met stays in
the heap, empty, until it is due or until such items are the larger part.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from itertools import count
from threading import RLock

from agentq.queue.entry import Deadline, Entry

_STALE_ALLOWED = 64


class Deadlines:
    """The deadlines of one queue. `lock` is held by whoever calls `set` and `meet`."""

    def __init__(
        self,
        home: AbstractEventLoop,
        lock: RLock,
        context: Context,
        expired: Callable[[Entry], None],
    ) -> None:
        self._home = home
        self._lock = lock
        self._context = context
        self._expired = expired
        self._heap: list[Deadline] = []
        self._stale = 0
        self._numbers = count()
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0

    def set(self, entry: Entry, after: float) -> None:
        """Have `expired(entry)` called `after` seconds from now, unless it is met before.

        Called on the queue's loop.
        """
        when = self._home.time() + after
        entry.deadline = deadline = [when, next(self._numbers), entry]
        heappush(self._heap, deadline)
        if self._timer is None or when < self._timer_at:
            self._arm(when)

    def meet(self, entry: Entry) -> None:
        """The deadline of `entry` no longer matters."""
        deadline, entry.deadline = entry.deadline, None
        assert deadline is not None
        deadline[2] = None
        self._stale += 1
        if self._stale > _STALE_ALLOWED and self._stale * 2 > len(self._heap):
            self._heap = [deadline for deadline in self._heap if deadline[2] is not None]
            heapify(self._heap)
            self._stale = 0

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._home.call_at(when, self._fire, context=self._context)

    def _fire(self) -> None:
        with self._lock:
            due = self._due()
        for entry in due:
            self._expired(entry)

    def _due(self) -> list[Entry]:
        self._timer = None
        # A loop may call a timer early by the resolution of its clock.
        now = max(self._home.time(), self._timer_at)
        due = []
        while self._heap:
            when, _, entry = self._heap[0]
            if entry is None:
                self._stale -= 1
            elif when > now:
                self._arm(when)
                break
            else:
                entry.deadline = None
                due.append(entry)
            heappop(self._heap)
        return due
