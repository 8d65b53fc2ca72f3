"""The end of a run: its outcome is recorded, waiters are told, the permit comes back.

Recording and stopping are two steps. Usually they are one moment, when the job's task ends. A run
that is given up (timed out, or synchronous and cancelled) is recorded at once, while its code may
go on: it lingers, keeps its permit, and holds back the next run of its key until it has stopped.
Runs end on the queue's loop; a job can be failed from any thread. Nothing here awaits.
"""

from __future__ import annotations

import random
from asyncio import CancelledError
from typing import TYPE_CHECKING, Any

from agentq.core.lifecycle import after_failure
from agentq.core.reason import reason_of
from agentq.queue import lending
from agentq.queue.entry import BACKOFF, RUNNING, Entry, Stop
from agentq.queue.stage import Stage
from agentq.queue.waiters import wake

if TYPE_CHECKING:
    from agentq.queue.scheduler import Scheduler


LOOP_SHUTS_DOWN = "its event loop is shutting down"

_OPEN = Stage.OPEN


def ended_well(entry: Entry, output: Any) -> None:
    """The job's task is returning."""
    scheduler = entry.scheduler
    with scheduler.lock:
        entry.task = None
        if entry.phase is RUNNING:
            if entry.deadline is not None:
                scheduler.deadlines.meet(entry)
            entry.lane.completed += 1
            scheduler.ledger.complete(entry, output)
            if (
                entry.waiters is not None
                or entry.waits is not None
                or entry.context is not None
                or scheduler.stage is not _OPEN
            ):
                _settled(scheduler, entry)
        stopped(scheduler, entry)
    if scheduler.observer is not None:
        scheduler.observer.flush()


def ended_badly(entry: Entry, error: BaseException) -> None:
    """The job's task is raising, or was cancelled, at whatever moment."""
    scheduler = entry.scheduler
    # The exception is the user's code: it is asked before the lock is taken.
    reason, delay = reason_of(error), _next_try(entry, error)
    with scheduler.lock:
        entry.task = None
        if entry.phase is RUNNING:
            _failed_try(scheduler, entry, error, reason, delay)
        if entry.thread:
            scheduler.lingering[entry.key] = entry
        else:
            stopped(scheduler, entry)
    scheduler.tell()


def thread_ended(entry: Entry) -> None:
    """The thread of a run that was given up has returned after all."""
    scheduler = entry.scheduler
    with scheduler.lock:
        entry.thread = False
        if entry.task is None:
            stopped(scheduler, entry)
    scheduler.tell()


def timed_out(entry: Entry) -> None:
    """The deadline of a run has passed."""
    scheduler = entry.scheduler
    reason = f"timed out after {entry.job.timeout:g} s"
    error = TimeoutError(reason)
    delay = _next_try(entry, error)
    with scheduler.lock:
        task = entry.task
        if entry.phase is not RUNNING or task is None:
            return
        if entry.stop is not None:
            delay = None
        entry.stop = Stop.TIMEOUT
        scheduler.lingering[entry.key] = entry
        if delay is None:
            fail(scheduler, entry, reason, error)
        else:
            _back_off(scheduler, entry, delay)
    task.cancel()
    scheduler.tell()


def stopped(scheduler: Scheduler, entry: Entry) -> None:
    """The code of `entry` has really stopped: its permit comes back."""
    lane = entry.lane
    entry.holding = False
    lane.running -= 1
    if entry.opened is not None:
        lending.disown(entry)
    crowded = lane.waiting or lane.admitting or lane.resuming or scheduler.lingering
    if crowded:
        if scheduler.keeper.cancelling():
            scheduler.shut(LOOP_SHUTS_DOWN)
        if scheduler.lingering:
            _no_longer_lingers(scheduler, entry)
    if entry.phase is BACKOFF and entry.timer is None:
        scheduler.requeue(entry)
    if crowded:
        if lane.admitting or lane.resuming or lane.lent:
            scheduler.advance(lane)
        elif lane.waiting and lane.running < lane.permits:  # all that `advance` would come to
            scheduler.start(lane.pop_oldest())


def fail(scheduler: Scheduler, entry: Entry, reason: str, error: BaseException | None) -> None:
    """Record that the job has failed for good."""
    if entry.deadline is not None:
        scheduler.deadlines.meet(entry)
    if entry.timer is not None:
        scheduler.at_home(entry.timer.cancel)  # a loop's timers are for its own thread
        entry.timer = None
    entry.error = error
    entry.lane.failed += 1
    scheduler.ledger.fail(entry, reason)
    _settled(scheduler, entry)


def lose(scheduler: Scheduler, entry: Entry, reason: str) -> None:
    """Record that the job's own end will not be known here."""
    entry.lost = True
    fail(scheduler, entry, f"lost: {reason}", None)


def _settled(scheduler: Scheduler, entry: Entry) -> None:
    entry.context = None
    waiters = entry.waiters
    if waiters is not None:
        entry.waiters = None
        for future in waiters:
            wake(future)
    if entry.waits is not None:
        lending.settled(entry)
    if entry.admission is not None:
        scheduler.admitted(entry)
    if scheduler.idlers or scheduler.stage is Stage.CLOSED:
        scheduler.wake_idlers()


def _no_longer_lingers(scheduler: Scheduler, entry: Entry) -> None:
    if scheduler.lingering.get(entry.key) is entry:
        del scheduler.lingering[entry.key]
    successor, entry.successor = entry.successor, None
    if successor is not None and successor.phase is BACKOFF:
        scheduler.requeue(successor)


def _failed_try(
    scheduler: Scheduler, entry: Entry, error: BaseException, reason: str, delay: float | None
) -> None:
    cancelled = issubclass(type(error), CancelledError)
    if cancelled and entry.stop is None and scheduler.keeper.cancelling():
        scheduler.shut(LOOP_SHUTS_DOWN)
        if entry.phase is not RUNNING:  # a synchronous job: recorded by that
            return
    if entry.stop is None:
        if delay is None:
            fail(scheduler, entry, reason, error)
        else:
            _back_off(scheduler, entry, delay)
    elif not cancelled:
        fail(scheduler, entry, reason, error)
    elif entry.stop is Stop.CLOSE:
        lose(scheduler, entry, scheduler.why)
    else:
        fail(scheduler, entry, entry.stop.value, error)


def _next_try(entry: Entry, error: BaseException) -> float | None:
    retry = entry.job.retry
    if retry is None:
        return None
    return after_failure(retry, entry.attempt, error, random.random())  # noqa: S311 (jitter)


def _back_off(scheduler: Scheduler, entry: Entry, delay: float) -> None:
    if entry.deadline is not None:
        scheduler.deadlines.meet(entry)
    scheduler.ledger.back_off(entry)
    entry.lane.retrying += 1
    entry.timer = scheduler.call_later(delay, _due, entry)


def _due(entry: Entry) -> None:
    scheduler = entry.scheduler
    with scheduler.lock:
        entry.timer = None
        if entry.phase is BACKOFF and not entry.holding:
            scheduler.requeue(entry)
    scheduler.tell()
