"""The state map: which keys are in flight, which are finished, and every change between states.

Called with the scheduler's lock held. Finished keys are kept apart, as bare values, so that a
million of them cost what a plain dict costs and give the garbage collector nothing to follow.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from types import NoneType
from typing import Any

from agentq.core.lifecycle import Verdict, on_push
from agentq.core.retention import Retention
from agentq.core.states import Completed, Failed, Pending, Processing, State, Transition
from agentq.queue.entry import BACKOFF, RUNNING, SETTLED, WITHDRAWN, Entry

MISSING: Any = object()

_WRAPPED = (Completed, Failed)


class Ledger:
    """Keys and their states. The only place where a state changes."""

    def __init__(
        self, retention: Retention | None, clock: Callable[[], float], *, observed: bool
    ) -> None:
        self.live: dict[str, Entry] = {}
        self.changes: deque[Transition] | None = deque() if observed else None
        self._clock = clock
        ttl = None if retention is None else retention.ttl
        assert ttl is None or isinstance(ttl, float)
        self._ttl: float | None = ttl
        self._max_keys = None if retention is None else retention.max_keys
        self._limited = retention is not None
        # An OrderedDict forgets its oldest key in constant time; a plain dict is smaller.
        self.finished: dict[str, Any] = {} if retention is None else OrderedDict()
        self._deadlines: OrderedDict[str, float] = OrderedDict()
        self._fingerprints: dict[str, bytes] = {}

    def state(self, key: str) -> State | None:
        """The state of `key`, or None when it is not known."""
        entry = self.live.get(key)
        if entry is not None:
            return Processing() if entry.phase is RUNNING else Pending()
        self._forget_expired()
        value = self.finished.get(key, MISSING)
        return None if value is MISSING else _state_of(value)

    def replay(self, key: str) -> Any:
        """The cached output of a key that has nothing to be checked, or `MISSING`: look closer."""
        value = self.finished.get(key, MISSING)
        if type(value) in _WRAPPED or self._limited or key in self._fingerprints:
            return MISSING
        return value

    def look(self, key: str, given: bytes | None) -> tuple[Verdict, Any]:
        """Decide what a push of a known `key` comes to, and give what answers it.

        The second value is the entry to join, the cached output, or None.
        """
        entry = self.live.get(key)
        if entry is not None:
            return on_push(entry.state, entry.job.fingerprint, given), entry
        self._forget_expired()
        value = self.finished.get(key, MISSING)
        if value is MISSING:
            return on_push(NoneType, None, given), None
        state = _state_of(value)
        verdict = on_push(type(state), self._fingerprints.get(key), given)
        return verdict, state.output if isinstance(state, Completed) else None

    def open(self, entry: Entry) -> None:
        """A new claim: nothing or Failed → Pending."""
        key = entry.key
        before = None
        if key in self.finished:
            before = _state_of(self.finished[key])
            self._forget(key)
        self.live[key] = entry
        if self.changes is not None:
            self._changed(entry, before, Pending())

    def withdraw(self, entry: Entry) -> None:
        """A push cancelled before its lane took the job: Pending → nothing."""
        entry.phase = WITHDRAWN
        del self.live[entry.key]
        if self.changes is not None:
            self._changed(entry, Pending(), None)

    def start(self, entry: Entry) -> None:
        """A try begins: Pending → Processing."""
        entry.phase = RUNNING
        entry.attempt += 1
        if self.changes is not None:
            self._changed(entry, Pending(), Processing())

    def back_off(self, entry: Entry) -> None:
        """A try failed and another will follow: Processing → Pending."""
        entry.phase = BACKOFF
        if self.changes is not None:
            self._changed(entry, Processing(), Pending())

    def complete(self, entry: Entry, output: Any) -> None:
        """The job returned: Processing → Completed."""
        entry.output = output
        entry.phase = SETTLED
        key = entry.key
        del self.live[key]
        # An output that is itself a state is told from one by being wrapped.
        self.finished[key] = Completed(output) if type(output) in _WRAPPED else output
        if entry.job.fingerprint is not None:
            self._fingerprints[key] = entry.job.fingerprint
        if self._limited:
            self._retain(key)
        if self.changes is not None:
            self._changed(entry, Processing(), Completed(output))

    def fail(self, entry: Entry, reason: str) -> None:
        """The job failed, was cancelled or dropped: Pending or Processing → Failed."""
        before = Processing() if entry.phase is RUNNING else Pending()
        entry.reason = reason
        entry.phase = SETTLED
        del self.live[entry.key]
        failed = Failed(reason)
        self.finished[entry.key] = failed
        self._retain(entry.key)
        if self.changes is not None:
            self._changed(entry, before, failed)

    def _changed(self, entry: Entry, before: State | None, after: State | None) -> None:
        assert self.changes is not None
        self.changes.append(Transition(entry.key, entry.lane.name, before, after))

    def _retain(self, key: str) -> None:
        if self._ttl is not None:
            self._deadlines[key] = self._clock() + self._ttl
            self._forget_expired()
        if self._max_keys is not None:
            while len(self.finished) > self._max_keys:
                self._forget(next(iter(self.finished)))

    def _forget_expired(self) -> None:
        if not self._deadlines:
            return
        now = self._clock()
        while self._deadlines:
            key, deadline = next(iter(self._deadlines.items()))
            if deadline > now:
                return
            self._forget(key)

    def _forget(self, key: str) -> None:
        del self.finished[key]
        self._deadlines.pop(key, None)
        self._fingerprints.pop(key, None)


def _state_of(value: Any) -> Completed | Failed:
    return value if type(value) in _WRAPPED else Completed(value)
