"""Where code is suspended: for room, for one job, for any of several."""

from __future__ import annotations

import asyncio
from asyncio import Future
from typing import TYPE_CHECKING

from agentq.core.errors import JobLost, QueueClosed
from agentq.queue import lending
from agentq.queue.entry import ADMITTING, SETTLED, WITHDRAWN, Entry
from agentq.queue.lending import Wait
from agentq.queue.waiters import wait_on

if TYPE_CHECKING:
    from agentq.queue.scheduler import Scheduler


async def for_room(entry: Entry) -> None:
    """Wait until the lane has taken `entry`, which this push has made.

    Raises `QueueClosed` when the queue has turned it away. Cancelled, it withdraws the claim and
    leaves nothing of it, unless others have joined it.
    """
    try:
        await _for_room(entry)
    except BaseException:
        entry.scheduler.withdraw(entry)
        raise
    check_taken(entry)


def check_taken(entry: Entry) -> None:
    """Raise `QueueClosed` when the queue stopped accepting before it had room for `entry`."""
    if entry.phase is WITHDRAWN:
        raise QueueClosed(f"the queue stopped accepting while {entry.key!r} waited for room")


async def _for_room(entry: Entry) -> None:
    scheduler = entry.scheduler
    owner = scheduler.owner()
    if owner is None:
        future = asyncio.get_running_loop().create_future()
        with scheduler.lock:
            if entry.phase is not ADMITTING:
                return
            entry.admission = future
        await wait_on(future, scheduler.home)
        return
    wait = Wait(owner)
    try:
        with scheduler.lock:
            if entry.phase is not ADMITTING:
                return
            entry.admission = wait
            wait.admitting = entry
        await for_news(scheduler, wait)
    finally:
        with scheduler.lock:
            lending.close(wait)


async def for_outcome(entry: Entry) -> None:
    """Wait until `entry` has settled.

    Inside a job, its permit is lent meanwhile. Raises `WouldDeadlock` when the job would wait for
    itself, and `JobLost` when the queue's loop has stopped and this runs on another.
    """
    try:
        await _for_outcome(entry)
    except QueueClosed as error:
        raise JobLost(entry.key, str(error)) from None


async def _for_outcome(entry: Entry) -> None:
    scheduler = entry.scheduler
    owner = scheduler.owner()
    if owner is None:
        future: Future[None] = asyncio.get_running_loop().create_future()
        with scheduler.lock:
            if entry.phase is SETTLED:
                return
            if entry.waiters is None:
                entry.waiters = {}
            entry.waiters[future] = None
        try:
            await wait_on(future, scheduler.home)
        finally:
            if entry.waiters is not None:
                with scheduler.lock:
                    if entry.waiters is not None:
                        entry.waiters.pop(future, None)
        return
    wait = Wait(owner)
    try:
        with scheduler.lock:
            if entry.phase is SETTLED:
                return
            lending.watch(wait, entry)
        await for_news(scheduler, wait)
    finally:
        with scheduler.lock:
            lending.close(wait)


async def for_news(scheduler: Scheduler, wait: Wait) -> None:
    """Wait until something has happened to what `wait` waits for.

    The permit of its owner is lent meanwhile. It is back when this returns, and also when this
    raises `CancelledError`.
    """
    loop = asyncio.get_running_loop()
    with scheduler.lock:
        if wait.has_news():
            wait.nudged = False
            return
        future: Future[None] = loop.create_future()
        lending.suspend(wait, future)
        if wait.owner is not None:
            scheduler.advance_for(wait)
    try:
        scheduler.tell()
        await wait_on(future, scheduler.home)
    except GeneratorExit:  # collected with a loop that is gone: it cannot wait for anything
        with scheduler.lock:
            if wait.future is not None:
                lending.release(wait)
        raise
    except BaseException:
        await _take_permit_back(scheduler, wait)
        raise
    wait.nudged = False


async def _take_permit_back(scheduler: Scheduler, wait: Wait) -> None:
    """The wait is over by cancellation; cancelled again meanwhile, this goes on all the same."""
    while True:
        future: Future[None] = asyncio.get_running_loop().create_future()
        with scheduler.lock:
            if lending.abandon(wait, future):
                return
        try:
            await wait_on(future, scheduler.home)
        except asyncio.CancelledError:
            continue  # the first cancellation is raised once the permit is back
        except QueueClosed:  # the queue's loop has stopped, and with it every permit
            with scheduler.lock:
                if wait.future is not None:
                    lending.release(wait)
            return
