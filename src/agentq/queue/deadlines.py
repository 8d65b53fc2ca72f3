"""Timeouts of running jobs: one heap and at most one timer of the loop for all of them.

Most timeouts never fire. A loop's timer costs about half of `asyncio.timeout`; an entry in this
heap costs a fraction of that (`make bench` measures it). A met deadline stays in the heap as a
stale item until it is due or until stale items are the larger part.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from itertools import count

from agentq.queue.entry import Entry

_STALE_ALLOWED = 64

Item = tuple[float, int, Entry]


class Deadlines:
    """The deadlines of one queue. Used on its loop's thread, with the scheduler's lock held."""

    def __init__(
        self, home: AbstractEventLoop, context: Context, expired: Callable[[Entry], None]
    ) -> None:
        self._home = home
        self._context = context
        self._expired = expired
        self._heap: list[Item] = []
        self._stale = 0
        self._numbers = count()
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0

    def set(self, entry: Entry, after: float) -> None:
        """Have `expired(entry)` called `after` seconds from now, unless it is met before."""
        when = self._home.time() + after
        entry.deadline = item = (when, next(self._numbers), entry)
        heappush(self._heap, item)
        if self._timer is None or when < self._timer_at:
            self._arm(when)

    def meet(self, entry: Entry) -> None:
        """The deadline of `entry` no longer matters."""
        entry.deadline = None
        self._stale += 1
        if self._stale > _STALE_ALLOWED and self._stale * 2 > len(self._heap):
            self._heap = [item for item in self._heap if item[2].deadline is item]
            heapify(self._heap)
            self._stale = 0

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._home.call_at(when, self._fire, context=self._context)

    def _fire(self) -> None:
        self._timer = None
        now = self._home.time()
        while self._heap:
            item = self._heap[0]
            current = item[2].deadline is item
            # A loop may call a timer early by the resolution of its clock.
            if current and item[0] > now and item[0] > self._timer_at:
                self._arm(item[0])
                return
            heappop(self._heap)
            if current:
                item[2].deadline = None
                self._expired(item[2])
            else:
                self._stale -= 1
