"""The scheduler: one lock, the state map, the lanes, and what happens to an entry in between.

Who owns what. A claim is owned by its push until the lane has taken the job (`withdraw`), then by
the queue. A run is owned by its task, whose guard calls `ended_well` or `ended_badly` exactly
once. A permit is taken in `_start` and given back in `_stopped`, when the job's code has really
stopped, which may be after its outcome was recorded. Everything here is synchronous, so nothing
can be cancelled half-way.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from asyncio import AbstractEventLoop, CancelledError, Future
from asyncio.events import _get_running_loop
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from agentq.core.errors import KeyConflict, QueueClosed, UnknownLane
from agentq.core.job import Job
from agentq.core.keys import MAX_KEY_LENGTH, checked_key
from agentq.core.lanes import LaneConfig
from agentq.core.lifecycle import Verdict, after_failure
from agentq.core.reason import reason_of
from agentq.core.retention import Retention
from agentq.core.states import State, Transition
from agentq.queue import guard, lending
from agentq.queue.context import running_entry
from agentq.queue.entry import (
    ADMITTING,
    BACKOFF,
    RUNNING,
    SETTLED,
    WAITING,
    Entry,
    Stop,
)
from agentq.queue.lane import Lane
from agentq.queue.ledger import Ledger
from agentq.queue.lending import Wait
from agentq.queue.observer import Observer
from agentq.queue.stage import Stage
from agentq.queue.threads import ThreadCache
from agentq.queue.waiters import wake

JOIN, QUEUE, REPLAY = Verdict.JOIN, Verdict.QUEUE, Verdict.REPLAY

_NO_LOOP = AbstractEventLoop()


class Scheduler:
    """The machine behind a `Queue`. Its methods may be called from any thread unless they say no.

    Attributes:
        home: the event loop that the queue lives on.
        lock: guards everything below; never held across an `await` or while a job's code runs.
    """

    def __init__(
        self,
        configs: dict[str, LaneConfig],
        retention: Retention | None,
        on_change: Callable[[Transition], object] | None,
    ) -> None:
        self.lock = threading.RLock()
        self.lanes = {name: Lane(name, config) for name, config in configs.items()}
        self.stage = Stage.NEW
        self.home: AbstractEventLoop = _NO_LOOP
        self.threads = ThreadCache()
        self.ledger = Ledger(retention, self._time, observed=on_change is not None)
        self.lingering: dict[str, Entry] = {}
        self.idlers: set[Future[None]] = set()
        self.keeper: asyncio.Task[None] | None = None
        self.ended: Future[None] | None = None
        self._on_change = on_change
        self._observer: Observer | None = None
        self._context: Context = copy_context()

    def bind(self, home: AbstractEventLoop) -> None:
        """Open, on the loop that is running here."""
        self.home = home
        self._context = copy_context()
        self.stage = Stage.OPEN
        self.ended = home.create_future()
        if self._on_change is not None:
            assert self.ledger.changes is not None
            self._observer = Observer(self._on_change, self.ledger.changes, home)

    def _time(self) -> float:
        return time.monotonic() if self.home is _NO_LOOP else self.home.time()

    def tell(self) -> None:
        """Tell `on_change` what has changed. Called after the lock has been let go."""
        if self._observer is not None:
            self._observer.flush()

    # ── pushing ──────────────────────────────────────────────────────────────────────────────

    def claim(self, job: Job) -> tuple[Verdict, Any]:
        """Check, decide, write `Pending`, and hand out what the pusher will wait on.

        Returns QUEUE with the new entry, JOIN with the entry in flight, or REPLAY with the cached
        output. A new entry that is still `ADMITTING` has no place in its lane yet.
        """
        if not isinstance(job, Job):
            raise TypeError(f"a queue takes a Job, not {job!r}; make one with Job(key, func)")
        key = job.key
        if (
            type(key) is not str
            or not 0 < len(key) <= MAX_KEY_LENGTH
            or not key.isascii()
            or "\0" in key
        ):
            key = checked_key(key)
        lane = self.lanes.get(job.lane)
        if lane is None:
            raise UnknownLane(
                f"job {key!r} names lane {str(job.lane)!r}, which this queue does not have; its "
                f"lanes are {', '.join(self.lanes)}; give it one with Queue(lanes={{…}})"
            )
        at_home = _get_running_loop() is self.home
        with self.lock:
            if self.stage is not Stage.OPEN or not at_home:
                self._check_open()
            verdict, found = self.ledger.look(key, job.fingerprint)
            if verdict is QUEUE:
                found = Entry(key, job, lane, copy_context())
                self.ledger.open(found)
                if key in self.lingering:
                    self._park(found)
                elif at_home and lane.is_free():
                    self._start(found)
                else:
                    self._enqueue(found)
            elif verdict is JOIN:
                found.joined = True
                found.lane.joined += 1
            elif verdict is REPLAY:
                lane.cached += 1
            else:
                raise KeyConflict(
                    f"key {key!r} belongs to a call of a different task or with different "
                    "arguments; a key answers for one call only, so push this one under another"
                )
        if self._observer is not None:
            self._observer.flush()
        return verdict, found

    def _check_open(self) -> None:
        if self.stage is Stage.NEW:
            raise QueueClosed("the queue is not open yet; use it inside 'async with queue:'")
        if self.home.is_closed():
            self._shut("its event loop is closed")
        if self.stage is Stage.CLOSED or (self.stage is Stage.DRAINING and not self.owner()):
            raise QueueClosed(f"the queue is {self.stage.value} and takes no more work")

    def owner(self) -> Entry | None:
        """The job of this queue whose code is calling, or None."""
        entry = running_entry.get()
        if entry is None or not entry.holding or self.lanes.get(entry.lane.name) is not entry.lane:
            return None
        return entry

    def withdraw(self, entry: Entry) -> None:
        """The push of `entry` was cancelled. Nothing is left of it, unless others have joined."""
        with self.lock:
            entry.admission = None
            if entry.phase not in (ADMITTING, WAITING) or entry.joined or entry.attempt:
                return
            self._drop_place(entry)
            self.ledger.withdraw(entry)
            self._advance(entry.lane)
            self._wake_idlers()
        self.tell()

    def _park(self, entry: Entry) -> None:
        """The code of the key's last run is still running: wait until it has stopped."""
        entry.phase = BACKOFF
        entry.lane.retrying += 1
        self.lingering[entry.key].successor = entry

    def _enqueue(self, entry: Entry) -> None:
        entry.lane.line_up(entry)
        self._advance(entry.lane)

    def _requeue(self, entry: Entry) -> None:
        entry.lane.retrying -= 1
        self._enqueue(entry)

    # ── permits ──────────────────────────────────────────────────────────────────────────────

    def advance(self, lane: Lane) -> None:
        """Give out the places and permits of `lane` that can be given out."""
        with self.lock:
            self._advance(lane)
        self.tell()

    def advance_for(self, wait: Wait) -> None:
        """Code of a job is suspended in `wait`: its permit, and what it waits for, may move."""
        assert wait.owner is not None
        lanes = {wait.owner.lane}
        lanes.update(target.lane for target in wait.targets)
        if wait.admitting is not None:
            lanes.add(wait.admitting.lane)
        for lane in lanes:
            if lane.has_queue():
                self._advance(lane)

    def nudge(self, wait: Wait) -> None:
        """Something else happened that the code suspended in `wait` wants to look at."""
        with self.lock:
            wait.nudged = True
            lending.resume(wait)

    def _advance(self, lane: Lane) -> None:
        at_home = _get_running_loop() is self.home
        while True:
            while (entry := lane.next_admitted()) is not None:
                lane.place(entry)
                self._admitted(entry)
            if (wait := lane.next_resumed()) is not None:
                lending.release(wait)
                continue
            if not at_home:
                if lane.waiting:
                    self._at_home(self.advance, lane)
                return
            entry = lane.next_started()
            if entry is None:
                return
            self._start(entry)

    def _admitted(self, entry: Entry) -> None:
        admission, entry.admission = entry.admission, None
        if isinstance(admission, Wait):
            lending.admitted(admission)
        elif admission is not None:
            wake(admission)

    def _start(self, entry: Entry) -> None:
        entry.lane.running += 1
        entry.holding = True
        entry.stop = None
        self.ledger.start(entry)
        guard.start(self, entry)
        timeout = entry.job.timeout
        if timeout is not None:
            entry.timer = self.home.call_later(
                timeout, self._time_out, entry, context=self._context
            )

    def _stopped(self, entry: Entry) -> None:
        """The code of `entry` has really stopped: its permit comes back."""
        lane = entry.lane
        entry.holding = False
        lane.running -= 1
        if entry.opened is not None:
            lending.disown(entry)
        if self.lingering and self.lingering.get(entry.key) is entry:
            del self.lingering[entry.key]
        if entry.phase is BACKOFF and entry.timer is None:
            self._requeue(entry)
        successor, entry.successor = entry.successor, None
        if successor is not None and successor.phase is BACKOFF:
            self._requeue(successor)
        if lane.has_queue():
            self._advance(lane)

    # ── the end of a run ─────────────────────────────────────────────────────────────────────

    def ended_well(self, entry: Entry, output: Any) -> None:
        """The job's task has returned. Home thread only."""
        with self.lock:
            entry.task = None
            if entry.phase is RUNNING:
                self._cancel_timer(entry)
                entry.lane.completed += 1
                self.ledger.complete(entry, output)
                self._settled(entry)
            self._stopped(entry)
        if self._observer is not None:
            self._observer.flush()

    def ended_badly(self, entry: Entry, error: BaseException) -> None:
        """The job's task has raised, or was cancelled at any moment. Home thread only."""
        with self.lock:
            entry.task = None
            if entry.phase is RUNNING:
                self._failed_try(entry, error)
            if entry.thread:
                self.lingering[entry.key] = entry
            else:
                self._stopped(entry)
        self.tell()

    def thread_ended(self, entry: Entry) -> None:
        """The thread of a run that was given up has returned after all. Home thread only."""
        with self.lock:
            entry.thread = False
            if entry.task is None:
                self._stopped(entry)
        self.tell()

    def _failed_try(self, entry: Entry, error: BaseException) -> None:
        cancelled = isinstance(error, CancelledError)
        if cancelled and entry.stop is None and self.keeper is not None:
            if self.keeper.cancelling() or self.keeper.done():
                self._shut("its event loop is shutting down")
        if entry.stop is None:
            draw = random.random()
            delay = after_failure(entry.job.retry, entry.attempt, error, draw)
            if delay is not None:
                self._back_off(entry, delay)
            else:
                self._fail(entry, reason_of(error), error)
        elif not cancelled:
            self._fail(entry, reason_of(error), error)
        elif entry.stop is Stop.CLOSE:
            self._lose(entry, Stop.CLOSE.value)
        else:
            self._fail(entry, entry.stop.value, error)

    def _time_out(self, entry: Entry) -> None:
        with self.lock:
            entry.timer = None
            task = entry.task
            if entry.phase is not RUNNING or task is None:
                return
            reason = f"timed out after {entry.job.timeout:g} s"
            error = TimeoutError(reason)
            delay = None
            if entry.stop is None:
                draw = random.random()
                delay = after_failure(entry.job.retry, entry.attempt, error, draw)
            entry.stop = Stop.TIMEOUT
            if delay is not None:
                self._back_off(entry, delay)
            else:
                self.lingering[entry.key] = entry
                self._fail(entry, reason, error)
        task.cancel()
        self.tell()

    def _back_off(self, entry: Entry, delay: float) -> None:
        self._cancel_timer(entry)
        self.ledger.back_off(entry)
        entry.lane.retrying += 1
        entry.timer = self.home.call_later(delay, self._due, entry, context=self._context)

    def _due(self, entry: Entry) -> None:
        with self.lock:
            entry.timer = None
            if entry.phase is BACKOFF and not entry.holding:
                self._requeue(entry)
        self.tell()

    def _fail(self, entry: Entry, reason: str, error: BaseException | None) -> None:
        self._cancel_timer(entry)
        entry.error = error
        entry.lane.failed += 1
        self.ledger.fail(entry, reason)
        self._settled(entry)

    def _lose(self, entry: Entry, reason: str) -> None:
        entry.lost = True
        self._fail(entry, f"lost: {reason}", None)

    def _settled(self, entry: Entry) -> None:
        waiters, entry.waiters = entry.waiters, None
        if waiters is not None:
            for future in waiters:
                wake(future)
        if entry.waits is not None:
            lending.settled(entry)
        if entry.admission is not None:
            self._admitted(entry)
        if self.idlers or self.stage is Stage.CLOSED:
            self._wake_idlers()

    def _cancel_timer(self, entry: Entry) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None

    def _drop_place(self, entry: Entry) -> None:
        """Take back what an entry that does not run holds in its lane."""
        if entry.phase is WAITING:
            entry.lane.unplace(entry)
        elif entry.phase is ADMITTING:
            entry.lane.leave(entry)
        elif entry.phase is BACKOFF:
            entry.lane.retrying -= 1
            if entry.holding:
                self.lingering[entry.key] = entry

    # ── asking and cancelling ────────────────────────────────────────────────────────────────

    def state(self, key: str) -> State | None:
        """The state of a key."""
        with self.lock:
            if self.stage is Stage.OPEN and self.home.is_closed():
                self._shut("its event loop is closed")
            return self.ledger.state(key)

    def cancel(self, key: str) -> bool:
        """End the job in flight under `key`."""
        with self.lock:
            entry = self.ledger.live.get(key)
            if entry is None:
                return False
            task = entry.task
            if entry.phase is RUNNING:
                entry.stop = entry.stop or Stop.CANCEL
            else:
                self._drop_place(entry)
                self._fail(entry, Stop.CANCEL.value, None)
                self._advance(entry.lane)
                task = None
        if task is not None:
            self._at_home(task.cancel)
        self.tell()
        return True

    def close(self, why: str = Stop.CLOSE.value) -> None:
        """Take no more work, drop what has not started, cancel what runs. Returns at once."""
        with self.lock:
            self._shut(why)
        self.tell()

    def _shut(self, why: str) -> None:
        if self.stage is Stage.CLOSED:
            return
        self.stage = Stage.CLOSED
        dead = self.home is _NO_LOOP or self.home.is_closed()
        for entry in list(self.ledger.live.values()):
            if entry.phase is not RUNNING:
                self._drop_place(entry)
                self._lose(entry, why)
                continue
            entry.stop = Stop.CLOSE
            if entry.thread or dead:
                self.lingering[entry.key] = entry
                self._lose(entry, why)
            if entry.task is not None and not dead:
                self._at_home(entry.task.cancel)
        self._wake_idlers()

    def give_up(self, why: str) -> list[str]:
        """Lose every job that a cancellation did not end; returns their keys."""
        with self.lock:
            left = list(self.ledger.live.values())
            for entry in left:
                self.lingering[entry.key] = entry
                self._lose(entry, why)
        self.tell()
        return [entry.key for entry in left]

    def refuse_waiting(self) -> None:
        """Turn away pushes from outside that have no place yet; the queue is draining."""
        with self.lock:
            for lane in self.lanes.values():
                for entry in lane.lined_up():
                    admission = entry.admission
                    if admission is None or entry.joined:
                        continue
                    if isinstance(admission, Wait) and admission.owner is not None:
                        continue
                    lane.leave(entry)
                    self.ledger.withdraw(entry)
                    self._admitted(entry)
            self._wake_idlers()
        self.tell()

    def _wake_idlers(self) -> None:
        if not self.ledger.live:
            idlers, self.idlers = self.idlers, set()
            for future in idlers:
                wake(future)
            if self.stage is Stage.CLOSED and self.ended is not None:
                wake(self.ended)

    def _at_home(self, call: Callable[..., object], *args: object) -> None:
        if _get_running_loop() is self.home:
            call(*args)
            return
        try:
            self.home.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop is closed: the next use of the queue finds that out
            return
