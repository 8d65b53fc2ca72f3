"""The state map: which keys are in flight, which are finished, and every change between states.

Called with the scheduler's lock held. Finished keys are kept apart, as bare outputs where nothing
else has to be remembered, so that a million of them cost what a plain dict costs and give the
garbage collector nothing to follow.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from types import NoneType
from typing import Any

from msgspec import Struct

from agentq.core.lifecycle import Verdict, on_push
from agentq.core.retention import Retention
from agentq.core.states import Completed, Failed, Pending, Processing, State, Transition
from agentq.queue.entry import BACKOFF, RUNNING, SETTLED, WITHDRAWN, Entry

MISSING: Any = object()


class Kept(Struct, frozen=True):
    """A finished key of which more is remembered than its output.

    Attributes:
        state: how it ended.
        fingerprint: which call it was, if that is known.
        until: when to forget it, by the ledger's clock; None: never.
    """

    state: Completed | Failed
    fingerprint: bytes | None
    until: float | None


class Ledger:
    """Keys and their states. The only place where a state changes.

    Attributes:
        live: the keys in flight.
        finished: the others, oldest first: a bare output, or `Kept`.
        changes: what `on_change` has not been told yet; None when nobody wants to know.
    """

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

    def state(self, key: str) -> State | None:
        """The state of `key`, or None when it is not known."""
        entry = self.live.get(key)
        if entry is not None:
            return Processing() if entry.phase is RUNNING else Pending()
        return self._finished_state(key)

    def look(self, key: str, given: bytes | None) -> tuple[Verdict, Any]:
        """Decide what a push of `key` comes to, and give what answers it.

        The second value is the entry to join, the cached output, or None.
        """
        entry = self.live.get(key)
        if entry is not None:
            return on_push(entry.state, entry.job.fingerprint, given), entry
        kept = self._recall(key)
        if kept is None:
            return on_push(NoneType, None, given), None
        state = kept.state
        verdict = on_push(type(state), kept.fingerprint, given)
        return verdict, state.output if isinstance(state, Completed) else None

    def open(self, entry: Entry) -> None:
        """A new claim: nothing or Failed → Pending.

        A failure stays noted until the key has ended anew, for the case that the claim is
        withdrawn.
        """
        self.live[entry.key] = entry
        if self.changes is not None:
            self._changed(entry, self._finished_state(entry.key), Pending())

    def withdraw(self, entry: Entry) -> None:
        """A push cancelled before its lane took the job: Pending → what was before."""
        entry.phase = WITHDRAWN
        del self.live[entry.key]
        if self.changes is not None:
            self._changed(entry, Pending(), self._finished_state(entry.key))

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
        fingerprint = entry.job.fingerprint
        if fingerprint is None and not self._limited:
            self.finished[key] = output
        else:
            self._keep(key, Completed(output), fingerprint)
        if self.changes is not None:
            self._changed(entry, Processing(), Completed(output))

    def fail(self, entry: Entry, reason: str) -> None:
        """The job failed, was cancelled or dropped: Pending or Processing → Failed."""
        before = Processing() if entry.phase is RUNNING else Pending()
        entry.reason = reason
        entry.phase = SETTLED
        del self.live[entry.key]
        failed = Failed(reason)
        self._keep(entry.key, failed, None)
        if self.changes is not None:
            self._changed(entry, before, failed)

    def _changed(self, entry: Entry, before: State | None, after: State | None) -> None:
        assert self.changes is not None
        self.changes.append(Transition(entry.key, entry.lane.name, before, after))

    def _keep(self, key: str, state: Completed | Failed, fingerprint: bytes | None) -> None:
        until = None
        if self._limited:
            self.finished.pop(key, None)  # so that it comes in last, the youngest
        if self._ttl is not None:
            now = self._clock()
            until = now + self._ttl
            self._forget_expired(now)
        self.finished[key] = Kept(state, fingerprint, until)
        if self._max_keys is not None:
            while len(self.finished) > self._max_keys:
                del self.finished[next(iter(self.finished))]

    def _finished_state(self, key: str) -> Completed | Failed | None:
        kept = self._recall(key)
        return None if kept is None else kept.state

    def _recall(self, key: str) -> Kept | None:
        """What is known of a finished key."""
        if self._ttl is not None:
            self._forget_expired(self._clock())
        value = self.finished.get(key, MISSING)
        if value is MISSING:
            return None
        return value if type(value) is Kept else Kept(Completed(value), None, None)

    def _forget_expired(self, now: float) -> None:
        while self.finished:
            key, kept = next(iter(self.finished.items()))
            if kept.until > now:
                return
            del self.finished[key]
