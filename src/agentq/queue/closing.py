"""How a queue opens, drains and closes, and how it notices that its loop is going away."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from asyncio.events import _get_running_loop
from typing import TYPE_CHECKING

from agentq.core.errors import QueueClosed, WouldDeadlock
from agentq.queue import endings, lending
from agentq.queue.endings import LOOP_SHUTS_DOWN
from agentq.queue.lending import Wait
from agentq.queue.stage import Stage
from agentq.queue.waiters import wait_on

if TYPE_CHECKING:
    from agentq.queue.scheduler import Scheduler

log = logging.getLogger("agentq")

CLEANUP_SECONDS = 1.0
"""How long cancelled jobs may clean up before they are given up."""


def enter(scheduler: Scheduler) -> None:
    """Open the queue on the running loop and start its keeper."""
    with scheduler.lock:
        if scheduler.stage is not Stage.NEW:
            before = "entered" if scheduler.ended is not None else "closed"
            raise QueueClosed(
                f"this queue was {before} before; a queue is used once, so make a new one"
            )
        loop = asyncio.get_running_loop()
        scheduler.bind(loop)
        scheduler.keeper = loop.create_task(_keep(scheduler), name="agentq keeper")


async def _keep(scheduler: Scheduler) -> None:
    """Live as long as the queue, and notice when its loop shuts down.

    A loop that shuts down cancels all tasks, this one among them; then no handle may hang.
    """
    assert scheduler.ended is not None
    try:
        await scheduler.ended
    except asyncio.CancelledError:
        with scheduler.lock:
            scheduler.shut(LOOP_SHUTS_DOWN)
        scheduler.tell()
        limit(scheduler)
        raise


async def drain(scheduler: Scheduler, timeout: float | None) -> None:
    """Let everything accepted finish, within `timeout` seconds, then close."""
    if scheduler.owner() is not None:
        raise WouldDeadlock("a job cannot drain its own queue: it would wait for itself")
    with scheduler.lock:
        if scheduler.stage is Stage.NEW:
            scheduler.stage = Stage.CLOSED
        if scheduler.stage is Stage.OPEN:
            scheduler.stage = Stage.DRAINING
        _refuse_waiting(scheduler)
    scheduler.tell()
    try:
        await asyncio.wait_for(_idle(scheduler), timeout)
    except TimeoutError:
        pass
    finally:
        scheduler.close()
        limit(scheduler)
        await rest(scheduler)


async def rest(scheduler: Scheduler) -> None:
    """Wait until a closed queue has nothing in flight and its cancelled jobs have cleaned up."""
    if scheduler.ended is None or scheduler.owner() is not None:
        return  # never opened; or called by a job, which is among those being cancelled
    await _idle(scheduler)
    if _get_running_loop() is not scheduler.home:
        return
    await asyncio.wait((scheduler.keeper,))
    # Runs that were recorded before they stopped have until the same moment to clean up.
    with scheduler.lock:
        tasks = [entry.task for entry in scheduler.lingering.values() if entry.task is not None]
    if tasks and scheduler.give_up_at is not None:
        await asyncio.wait(tasks, timeout=scheduler.give_up_at - scheduler.home.time())


def limit(scheduler: Scheduler) -> None:
    """Give up, after a while, the jobs that do not end although they were cancelled."""
    if scheduler.ended is None or not (scheduler.ledger.live or scheduler.lingering):
        return
    if _get_running_loop() is scheduler.home:
        if scheduler.give_up_at is None:
            scheduler.give_up_at = scheduler.home.time() + CLEANUP_SECONDS
            scheduler.home.call_at(scheduler.give_up_at, _give_up, scheduler)
    else:
        try:
            scheduler.home.call_soon_threadsafe(limit, scheduler)
        except RuntimeError:  # the loop is closed
            return


def _refuse_waiting(scheduler: Scheduler) -> None:
    """Turn away pushes from outside that have no place yet; those of jobs are let through."""
    for entry in list(scheduler.ledger.live.values()):
        admission = entry.admission
        of_a_job = isinstance(admission, Wait) and admission.owner is not None
        if scheduler.is_only_a_push(entry) and not of_a_job:
            scheduler.turn_away(entry)
    scheduler.wake_idlers()


def _give_up(scheduler: Scheduler) -> None:
    """Lose every job that a cancellation did not end.

    From here on code that is still to clean up no longer waits for a permit.
    """
    with scheduler.lock:
        scheduler.given_up = True
        for lane in scheduler.lanes.values():
            for wait in lane.resuming:
                if wait.resuming and wait.future is not None:
                    lending.release(wait)
            lane.resuming.clear()
        for entry in list(scheduler.ledger.live.values()):
            scheduler.lingering[entry.key] = entry
            endings.lose(scheduler, entry, "it was cancelled and did not end")
        keys = list(scheduler.lingering)
    scheduler.tell()
    if keys:
        log.warning(
            "closed, but %d jobs that were cancelled have not ended: %s",
            len(keys),
            ", ".join(repr(key) for key in keys[:10]),
        )


async def _idle(scheduler: Scheduler) -> None:
    """Wait until nothing is in flight."""
    while True:
        future: Future[None] = asyncio.get_running_loop().create_future()
        with scheduler.lock:
            if not scheduler.ledger.live:
                return
            scheduler.idlers[future] = None
        try:
            await wait_on(future, scheduler.home)
        finally:
            with scheduler.lock:
                scheduler.idlers.pop(future, None)
