"""The scheduler: one lock, the state map, the lanes, and what happens to an entry in between.

Who owns what. A claim is owned by its push until the lane has taken the job (`withdraw`), then by
the queue. A run is owned by its task, whose guard calls `ended_well` or `ended_badly` exactly
once (endings.py). A permit is taken in `guard.start` and given back in `endings.stopped`, when the
job's code has really stopped. Everything here is synchronous, so nothing can be cancelled half-way.
"""

from __future__ import annotations

import asyncio
import threading
import time
from asyncio import AbstractEventLoop, Future, TimerHandle
from asyncio.events import _get_running_loop
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from agentq.core.errors import QueueClosed
from agentq.core.job import Job
from agentq.core.keys import checked_key
from agentq.core.lanes import LaneConfig
from agentq.core.lifecycle import Verdict
from agentq.core.retention import Retention
from agentq.core.states import State, Transition
from agentq.queue import endings, lending, refusals
from agentq.queue.context import running
from agentq.queue.deadlines import Deadlines
from agentq.queue.entry import ADMITTING, BACKOFF, RUNNING, WAITING, Entry, Stop
from agentq.queue.guard import start
from agentq.queue.lane import Lane
from agentq.queue.ledger import MISSING, Kept, Ledger
from agentq.queue.lending import Wait
from agentq.queue.observer import Observer
from agentq.queue.stage import Stage
from agentq.queue.threads import ThreadCache
from agentq.queue.waiters import wake

_OPEN = Stage.OPEN
_QUEUE, _JOIN, _REPLAY = Verdict.QUEUE, Verdict.JOIN, Verdict.REPLAY


class Scheduler:
    """The machine behind a `Queue`. Its methods may be called from any thread.

    Attributes:
        home: the event loop that the queue lives on, once it has been entered.
        lock: guards everything below; never held across an `await` or while a job's code runs.
        lingering: by key, runs whose outcome is recorded while their code still runs.
        idlers: futures of those who wait until nothing is in flight.
        ended: set when the queue is closed and nothing is in flight.
    """

    home: AbstractEventLoop
    deadlines: Deadlines
    keeper: asyncio.Task[None]

    def __init__(
        self,
        configs: dict[str, LaneConfig],
        retention: Retention | None,
        on_change: Callable[[Transition], object] | None,
    ) -> None:
        self.lock = threading.RLock()
        self.stage = Stage.NEW
        self.lanes = {name: Lane(name, config) for name, config in configs.items()}
        self.ledger = Ledger(retention, self._time, observed=on_change is not None)
        self.threads = ThreadCache()
        self.lingering: dict[str, Entry] = {}
        self.idlers: dict[Future[None], None] = {}
        self._on_change = on_change
        self.observer: Observer | None = None
        self.ended: Future[None] | None = None
        self.give_up_at: float | None = None
        self.given_up = False
        self.why = Stop.CLOSE.value
        self._context: Context | None = None

    def bind(self, home: AbstractEventLoop) -> None:
        """Open, on the loop that is running here."""
        self.home = home
        self._context = copy_context()
        self.deadlines = Deadlines(home, self.lock, self._context, endings.timed_out)
        self.ended = home.create_future()
        if self._on_change is not None:
            assert self.ledger.changes is not None
            self.observer = Observer(self._on_change, self.ledger.changes, home)
        self.stage = Stage.OPEN

    def _time(self) -> float:
        return time.monotonic() if self.stage is Stage.NEW else self.home.time()

    def tell(self) -> None:
        """Tell `on_change` what has changed. Called after the lock has been let go."""
        if self.observer is not None:
            self.observer.flush()

    def owner(self) -> Entry | None:
        """The job of this queue whose code is calling, or None."""
        run = running.get()
        if run is None:
            return None
        entry, attempt = run
        # A task that an earlier try has left behind is nobody's, like one left by an ended job.
        if entry.holding and entry.attempt == attempt and entry.scheduler is self:
            return entry
        return None

    # ── pushing ──────────────────────────────────────────────────────────────────────────────

    def claim(self, job: Job) -> tuple[Verdict, Any]:
        """Check, decide, write `Pending`, and hand out what the pusher will wait on.

        Returns QUEUE with the new entry, JOIN with the entry in flight, or REPLAY with the cached
        output. A new entry that is still `ADMITTING` has no place in its lane yet.
        """
        if type(job) is not Job and not isinstance(job, Job):
            raise refusals.not_a_job(job)
        key = job.key if job.key_is_plain else checked_key(job.key)
        lane = self.lanes.get(job.lane)
        if lane is None:
            raise refusals.no_such_lane(job, self.lanes)
        ledger = self.ledger
        with self.lock:
            if self.stage is not _OPEN:
                self._check_open()
            known = ledger.finished.get(key, MISSING)
            if known is not MISSING:
                if type(known) is not Kept:  # nothing to be checked
                    lane.cached += 1
                    return _REPLAY, known
                verdict, found = ledger.look(key, job.fingerprint)
            elif key in ledger.live:
                verdict, found = ledger.look(key, job.fingerprint)
            else:
                verdict = _QUEUE
            if verdict is _QUEUE:
                at_home = _get_running_loop() is self.home
                if not at_home:
                    self._check_open()
                found = Entry(self, key, job, lane, copy_context())
                ledger.open(found)
                if self.lingering and key in self.lingering:
                    self._park(found)
                elif (
                    at_home
                    and lane.running < lane.permits
                    and not (lane.waiting or lane.admitting or lane.resuming)
                ):
                    start(found)
                elif lane.waiting < lane.capacity and lane.is_busy():
                    lane.place(found)
                else:
                    self._enqueue(found)
            elif verdict is _JOIN:
                found.joined = True
                found.lane.joined += 1
            elif verdict is _REPLAY:
                lane.cached += 1
            else:
                raise refusals.another_call(key)
        if self.observer is not None:
            self.observer.flush()
        return verdict, found

    def _check_open(self) -> None:
        self._check_loop()
        if self.stage is Stage.NEW:
            raise QueueClosed("the queue is not open yet; use it inside 'async with queue:'")
        if self.stage is Stage.CLOSED or (self.stage is Stage.DRAINING and not self.owner()):
            raise QueueClosed(f"the queue is {self.stage.value} and takes no more work")

    def _check_loop(self) -> None:
        """A loop that is closed runs nothing any more."""
        if self.ended is not None and self.home.is_closed():
            self.shut("its event loop is closed")

    def withdraw(self, entry: Entry) -> None:
        """The push of `entry` was cancelled. Nothing is left of it, unless others have joined."""
        with self.lock:
            entry.admission = None
            if entry.phase not in (ADMITTING, WAITING) or entry.joined or entry.attempt:
                return
            self._drop_place(entry)
            self.ledger.withdraw(entry)
            self.advance(entry.lane)
            self.wake_idlers()
        self.tell()

    def _park(self, entry: Entry) -> None:
        """The code of the key's last run still runs: wait until it has stopped."""
        entry.phase = BACKOFF
        entry.joined = True  # its push does not wait for room: it is taken
        entry.lane.retrying += 1
        self.lingering[entry.key].successor = entry

    def _enqueue(self, entry: Entry) -> None:
        entry.lane.line_up(entry)
        self.advance(entry.lane)

    def requeue(self, entry: Entry) -> None:
        """Its next try is due: line up again, behind those that wait for a place."""
        entry.lane.retrying -= 1
        self._enqueue(entry)

    # ── permits; with the lock held ──────────────────────────────────────────────────────────

    start = staticmethod(start)

    def advance(self, lane: Lane) -> None:
        """Give out the places and permits of `lane` that can be given out."""
        at_home = _get_running_loop() is self.home
        while True:
            while (entry := lane.next_admitted()) is not None:
                lane.place(entry)
                self.admitted(entry)
            if (wait := lane.next_resumed()) is not None:
                lending.release(wait)
                continue
            if not at_home:
                if lane.waiting:
                    self.at_home(self._advance_soon, lane)
                return
            entry = lane.next_started()
            if entry is None:
                return
            start(entry)

    def _advance_soon(self, lane: Lane) -> None:
        with self.lock:
            self.advance(lane)
        self.tell()

    def advance_for(self, wait: Wait) -> None:
        """Code of a job is suspended in `wait`: its permit, and what it waits for, may move."""
        assert wait.owner is not None
        lanes = [wait.owner.lane, *(target.lane for target in wait.targets)]
        if wait.admitting is not None:
            lanes.append(wait.admitting.lane)
        for lane in dict.fromkeys(lanes):
            if lane.waiting or lane.admitting or lane.resuming:
                self.advance(lane)

    def admitted(self, entry: Entry) -> None:
        """Tell the push of `entry` that its wait for room is over."""
        admission, entry.admission = entry.admission, None
        if isinstance(admission, Wait):
            lending.admitted(admission)
        elif admission is not None:
            wake(admission)

    def _drop_place(self, entry: Entry) -> None:
        """Take back what an entry that does not run holds in its lane."""
        if entry.phase is WAITING:
            entry.lane.unplace(entry)
        elif entry.phase is ADMITTING:
            entry.lane.leave(entry)
        elif entry.phase is BACKOFF:
            entry.lane.retrying -= 1

    # ── asking, cancelling, closing ──────────────────────────────────────────────────────────

    def nudge(self, wait: Wait) -> None:
        """Something else happened that the code suspended in `wait` wants to look at."""
        with self.lock:
            wait.nudged = True
            lending.resume(wait)

    def state(self, key: str) -> State | None:
        """The state of a key."""
        with self.lock:
            self._check_loop()
            return self.ledger.state(key)

    def cancel(self, key: str) -> bool:
        """End the job in flight under `key`."""
        if self._in_a_step():
            self._soon_at_home(self.cancel, key)
            return key in self.ledger.live
        with self.lock:
            entry = self.ledger.live.get(key)
            if entry is None:
                return False
            if entry.phase is RUNNING:
                entry.stop = entry.stop or Stop.CANCEL
                if entry.task is not None:
                    self.at_home(entry.task.cancel)
            else:
                self._drop_place(entry)
                endings.fail(self, entry, Stop.CANCEL.value, None)
                self.advance(entry.lane)
        self.tell()
        return True

    def close(self) -> None:
        """Take no more work, drop what has not started, cancel what runs. Returns at once."""
        if self._in_a_step():
            self._soon_at_home(self.close)
            return
        with self.lock:
            self.shut(Stop.CLOSE.value)
        self.tell()

    def _in_a_step(self) -> bool:
        """Tell whether this was called by a signal handler or a finaliser inside a step of ours.

        They run at any moment, also while their own thread holds the lock in the middle of a
        change. What they ask for is done after it.
        """
        return self.lock._is_owned()  # type: ignore[attr-defined, no-any-return] # noqa: SLF001

    def shut(self, why: str) -> None:
        """As `close`, with the lock held, and a reason for those whose end will not be known."""
        dead = self.ended is None or self.home.is_closed()
        if self.stage is Stage.CLOSED and not dead:
            return
        if self.stage is not Stage.CLOSED:
            self.why = why
        self.stage = Stage.CLOSED
        for entry in list(self.ledger.live.values()):
            if self.is_only_a_push(entry):
                self.turn_away(entry)
                continue
            if entry.phase is not RUNNING:
                self._drop_place(entry)
                endings.lose(self, entry, why)
                continue
            entry.stop = Stop.CLOSE
            if entry.thread or dead:
                self.lingering[entry.key] = entry
                endings.lose(self, entry, why)
            if entry.task is not None and not dead:
                self.at_home(entry.task.cancel)
        self.wake_idlers()

    def is_only_a_push(self, entry: Entry) -> bool:
        """Tell whether there is nothing of `entry` yet but a push that waits for room."""
        return entry.phase is ADMITTING and not entry.joined and not entry.attempt

    def turn_away(self, entry: Entry) -> None:
        """Leave nothing of `entry`; its push raises `QueueClosed`."""
        entry.lane.leave(entry)
        self.ledger.withdraw(entry)
        self.admitted(entry)

    def wake_idlers(self) -> None:
        """Wake those who wait until nothing is in flight, if that is so."""
        if self.ledger.live:
            return
        idlers, self.idlers = self.idlers, {}
        for future in idlers:
            wake(future)
        if self.stage is Stage.CLOSED and self.ended is not None:
            wake(self.ended)

    def call_later(self, delay: float, call: Callable[[Entry], None], entry: Entry) -> TimerHandle:
        """Have the loop call `call(entry)` after `delay` seconds, in the queue's own context."""
        return self.home.call_later(delay, call, entry, context=self._context)

    def at_home(self, call: Callable[..., object], *args: object) -> None:
        """Make a call on the queue's loop: now if this is it, else soon."""
        if _get_running_loop() is self.home:
            call(*args)
        else:
            self._soon_at_home(call, *args)

    def _soon_at_home(self, call: Callable[..., object], *args: object) -> None:
        try:
            self.home.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop is closed: the next use of the queue finds that out
            return
