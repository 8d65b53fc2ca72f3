"""Nested work: how a job that waits for other jobs lends its permit to what it waits for.

The reasoning, why this cannot deadlock and why the limit holds, is in
docs/decisions/0003-lending.md. Everything here is called with the scheduler's lock held.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Callable, Iterator

from agentq.core.errors import WouldDeadlock
from agentq.queue.entry import Entry
from agentq.queue.waiters import wake


class Wait:
    """One place in some code that waits for jobs, or for room for one.

    Attributes:
        owner: the running job whose code this is; None outside of jobs.
        targets: the entries waited for that are not settled yet.
        settled: those that have settled and were not collected yet.
        admitting: the entry whose push waits here for room.
        nudged: something else happened that the waiting code wants to look at.
        future: what the waiting task is suspended in; None when it is not suspended.
        resuming: what was waited for is there, and the owner waits to have its permit back.
    """

    __slots__ = ("admitting", "future", "nudged", "owner", "resuming", "settled", "targets")

    def __init__(self, owner: Entry | None) -> None:
        self.owner = owner
        self.targets: dict[Entry, None] = {}
        self.settled: deque[Entry] = deque()
        self.admitting: Entry | None = None
        self.nudged = False
        self.future: Future[None] | None = None
        self.resuming = False
        if owner is not None:
            if owner.opened is None:
                owner.opened = {}
            owner.opened[self] = None

    def has_news(self) -> bool:
        """Tell whether there is something to look at, so that nobody need be suspended."""
        return bool(self.settled) or self.nudged


def watch(wait: Wait, target: Entry) -> None:
    """Add a target. Raises `WouldDeadlock` when it could never settle before the owner ends."""
    owner = wait.owner
    if owner is not None:
        if _reaches(target, owner):
            ring = " → ".join(repr(entry.key) for entry in [owner, *_path(target, owner)])
            raise WouldDeadlock(f"job {owner.key!r} would wait for itself: {ring}")
        target.lane.want(target)
    wait.targets[target] = None
    if target.waits is None:
        target.waits = {}
    target.waits[wait] = None


def unwatch(wait: Wait, target: Entry) -> None:
    """Take a target away."""
    if target not in wait.targets:
        return
    del wait.targets[target]
    if target.waits is not None:
        target.waits.pop(wait, None)
    if wait.owner is not None:
        target.lane.unwant(target)


def suspend(wait: Wait, future: Future[None]) -> None:
    """The waiting code stops here; a job's first such wait lends its permit."""
    wait.future = future
    owner = wait.owner
    if owner is None:
        return
    if wait.admitting is not None:
        wait.admitting.lane.room_demand += 1
    owner.waiting += 1
    if owner.waiting == 1:
        owner.lane.lent += 1


def settled(target: Entry) -> None:
    """Tell the waits for `target` that it has settled."""
    waits, target.waits = target.waits, None
    if waits is None:
        return
    for wait in waits:
        del wait.targets[target]
        if wait.owner is not None:
            target.lane.unwant(target)
        wait.settled.append(target)
        resume(wait)


def resume(wait: Wait) -> None:
    """Let the waiting code go on, once its job has its permit back.

    A job of which another task is still waiting goes on without: it counts as waiting until the
    last of its waits is over.
    """
    if wait.future is None or wait.resuming:
        return
    owner = wait.owner
    if owner is not None and owner.waiting == 1:
        lane = owner.lane
        if lane.running - lane.lent >= lane.permits and not owner.scheduler.given_up:
            wait.resuming = True
            lane.resuming.append(wait)
            return
    release(wait)


def admitted(wait: Wait) -> None:
    """Tell a wait that the entry it had no room for has a place now, or never will."""
    if wait.future is not None and wait.owner is not None and wait.admitting is not None:
        wait.admitting.lane.room_demand -= 1
    wait.admitting = None
    wait.nudged = True
    resume(wait)


def release(wait: Wait) -> None:
    """Let the waiting code go on now, whatever permits there are."""
    future, wait.future = wait.future, None
    assert future is not None
    _leave(wait)
    wake(future)


def abandon(wait: Wait, replacement: Future[None]) -> bool:
    """The waiting code was cancelled. True when it may go on now.

    Until then it waits on `replacement` for its job's permit, as a condition variable waits for
    its lock: the code that handles the cancellation is the job's own and counts like any other.
    """
    if wait.future is None:
        return True
    wait.future = replacement
    resume(wait)
    return wait.future is None


def close(wait: Wait) -> None:
    """The waiting code will not wait here again."""
    for target in list(wait.targets):
        unwatch(wait, target)
    if wait.owner is not None and wait.owner.opened is not None:
        wait.owner.opened.pop(wait, None)


def disown(owner: Entry) -> None:
    """A job's code has stopped; what tasks it left behind wait on as nobody's."""
    if owner.opened is None:
        return
    if owner.waiting:
        owner.lane.lent -= 1
        owner.waiting = 0
    for wait in owner.opened:
        for target in wait.targets:
            target.lane.unwant(target)
        if wait.future is not None and wait.admitting is not None:
            wait.admitting.lane.room_demand -= 1
        wait.owner = None
        if wait.resuming:
            wait.resuming = False
            release(wait)
    owner.opened = None


def _leave(wait: Wait) -> None:
    wait.resuming = False
    owner = wait.owner
    if owner is None:
        return
    if wait.admitting is not None:
        wait.admitting.lane.room_demand -= 1
    owner.waiting -= 1
    if owner.waiting == 0:
        owner.lane.lent -= 1


def _reaches(start: Entry, goal: Entry) -> bool:
    """Tell whether `start` is `goal`, or waits for it directly or through others.

    It is looked for from both ends in turn, so the smaller of the two sides bounds the cost: a job
    that many wait for, or that waits for many, is asked about in constant time.
    """
    forward, backward = _walk(start, _awaited_by), _walk(goal, _waiting_for)
    while True:
        for walk, end in ((forward, goal), (backward, start)):
            entry = next(walk, None)
            if entry is None:
                return False
            if entry is end:
                return True


def _walk(start: Entry, onward: Callable[[Entry], Iterator[Entry]]) -> Iterator[Entry]:
    seen = {start}
    pending = [iter((start,))]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
            continue
        if entry is not start:
            if entry in seen:
                continue
            seen.add(entry)
        yield entry
        pending.append(onward(entry))


def _awaited_by(entry: Entry) -> Iterator[Entry]:
    for wait in entry.opened or ():
        yield from wait.targets
    earlier = entry.scheduler.lingering.get(entry.key)
    if earlier is not None and earlier.successor is entry:
        yield earlier  # the code of the key's last run has to stop first


def _waiting_for(entry: Entry) -> Iterator[Entry]:
    for wait in entry.waits or ():
        if wait.owner is not None:
            yield wait.owner
    if entry.successor is not None:
        yield entry.successor


def _path(start: Entry, goal: Entry) -> list[Entry]:
    """The way from `start` to `goal`, which it reaches."""
    came_from: dict[Entry, Entry | None] = {start: None}
    pending = deque([start])
    while pending:
        entry = pending.popleft()
        if entry is goal:
            break
        for awaited in _awaited_by(entry):
            if awaited not in came_from:
                came_from[awaited] = entry
                pending.append(awaited)
    path = [goal]
    while (before := came_from[path[-1]]) is not None:
        path.append(before)
    return path[::-1]
