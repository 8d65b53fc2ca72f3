"""`Lane`: who may wait and who may run. Pure bookkeeping, called with the lock held.

A lane's numbers, at every moment:

    running              jobs whose code has started and not stopped; each has a permit, its own
                         or a lent one
    lent                 those of them that wait for other jobs
    running - lent       those that execute their own code: never more than `permits`
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from agentq.core.lanes import LaneConfig, LaneStats
from agentq.queue.entry import ADMITTING, WAITING, Entry

if TYPE_CHECKING:
    from agentq.queue.lending import Wait

_STALE_ALLOWED = 64


class Lane:
    """One lane. Entries leave its deques lazily: one in another phase by now is skipped."""

    __slots__ = (
        "_demanded",
        "_line",
        "_places",
        "admitting",
        "cached",
        "capacity",
        "completed",
        "failed",
        "joined",
        "lent",
        "name",
        "permits",
        "resuming",
        "retrying",
        "room_demand",
        "running",
        "waiting",
    )

    def __init__(self, name: str, config: LaneConfig) -> None:
        self.name = name
        self.capacity = config.capacity
        self.permits = config.permits
        self.running = 0
        self.lent = 0
        self.waiting = 0
        self.retrying = 0
        self.completed = self.failed = self.joined = self.cached = 0
        self.admitting = 0
        self.resuming: deque[Wait] = deque()
        self.room_demand = 0
        self._line: deque[Entry] = deque()
        self._places: deque[Entry] = deque()
        self._demanded: deque[Entry] = deque()

    def is_busy(self) -> bool:
        """Tell whether every permit carries a job that runs its own code, and nobody lines up.

        Then a new entry can only be given a place.
        """
        return self.running == self.permits and not (self.lent or self.admitting)

    def line_up(self, entry: Entry) -> None:
        """Let `entry` wait for a place, behind those that wait already."""
        entry.phase = ADMITTING
        self.admitting += 1
        self._line.append(entry)
        if entry.demand:
            self.room_demand += 1

    def leave(self, entry: Entry) -> None:
        """Take `entry` out of the line; the caller changes its phase."""
        self._left(entry)
        if len(self._line) > 2 * self.admitting + _STALE_ALLOWED:
            self._line = deque(
                other for other in self._line if other.phase is ADMITTING and other is not entry
            )

    def _left(self, entry: Entry) -> None:
        self.admitting -= 1
        if entry.demand:
            self.room_demand -= 1
        if not self.admitting:
            self._line.clear()

    def place(self, entry: Entry) -> None:
        """Give `entry` a place."""
        entry.phase = WAITING
        self.waiting += 1
        self._places.append(entry)
        if entry.demand:
            self._demanded.append(entry)

    def unplace(self, entry: Entry) -> None:
        """Take back the place of `entry`; the caller changes its phase."""
        self.waiting -= 1
        if len(self._places) > 2 * self.waiting + _STALE_ALLOWED:
            self._places = deque(
                other for other in self._places if other.phase is WAITING and other is not entry
            )
        if not self.waiting:
            self._places.clear()
            self._demanded.clear()

    def want(self, entry: Entry) -> None:
        """A job begins to wait for `entry`, which may now run on a lent permit."""
        entry.demand += 1
        if entry.demand > 1:
            return
        if entry.phase is ADMITTING:
            self.room_demand += 1
        elif entry.phase is WAITING:
            self._demanded.append(entry)
            if len(self._demanded) > 2 * self.waiting + _STALE_ALLOWED:
                wanted = [one for one in self._demanded if one.phase is WAITING and one.demand]
                self._demanded = deque(dict.fromkeys(wanted))

    def unwant(self, entry: Entry) -> None:
        """A job waits for `entry` no longer."""
        entry.demand -= 1
        if not entry.demand and entry.phase is ADMITTING:
            self.room_demand -= 1

    def next_admitted(self) -> Entry | None:
        """The next entry to be given a place, or None when there is no room or nobody waits."""
        while self.admitting and self.waiting < self.capacity:
            entry = self._line.popleft()
            if entry.phase is ADMITTING:
                self._left(entry)
                return entry
        return None

    def next_resumed(self) -> Wait | None:
        """The next wait of a job that wants its permit back, if one can be had."""
        while self.resuming and self.running - self.lent < self.permits:
            wait = self.resuming.popleft()
            if wait.resuming and wait.future is not None:
                return wait
        return None

    def next_started(self) -> Entry | None:
        """The next entry to run, or None. Its place is taken back; the caller starts it.

        On a free permit the oldest runs. On a permit lent by a waiting job, only a job that some
        job waits for, or the oldest while some job waits for room in this lane.
        """
        if not self.waiting or self.running - self.lent >= self.permits:
            return None
        if self.running < self.permits:
            return self.pop_oldest()
        while self._demanded:
            entry = self._demanded.popleft()
            if entry.phase is WAITING and entry.demand:
                self.unplace(entry)
                return entry
        return self.pop_oldest() if self.room_demand else None

    def pop_oldest(self) -> Entry:
        """Take the place of the entry that has waited longest."""
        self.waiting -= 1
        while True:
            entry = self._places.popleft()
            if entry.phase is WAITING:
                break
        if not self.waiting and (self._places or self._demanded):
            self._places.clear()
            self._demanded.clear()
        return entry

    def stats(self) -> LaneStats:
        """The numbers of this moment."""
        return LaneStats(
            waiting=self.waiting,
            running=self.running - self.lent,
            capacity=self.capacity,
            permits=self.permits,
            completed=self.completed,
            failed=self.failed,
            joined=self.joined,
            cached=self.cached,
            lending=self.lent,
            retrying=self.retrying,
        )
