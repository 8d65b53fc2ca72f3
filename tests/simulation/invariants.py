"""What must hold inside a queue after every step of its loop, and when it has come to rest."""

from collections import Counter

from agentq import Queue
from agentq.queue.entry import ADMITTING, BACKOFF, RUNNING, SETTLED, WAITING, WITHDRAWN, Entry
from agentq.queue.lane import Lane
from agentq.queue.lending import Wait
from agentq.queue.scheduler import Scheduler


def check_step(queue: Queue) -> None:
    """Check every number of every lane against the entries, and that nothing is left lying."""
    scheduler = queue._scheduler
    live = list(scheduler.ledger.live.values())
    holding = [entry for entry in live if entry.holding]
    for key, entry in scheduler.lingering.items():
        assert entry.key == key
        assert entry.holding, f"{key} lingers but its code has stopped"
        assert entry.phase in (SETTLED, BACKOFF), f"{key} lingers in {entry.phase}"
        if scheduler.ledger.live.get(key) is not entry:
            holding.append(entry)
    assert scheduler.ledger.changes is None or not scheduler.ledger.changes, "a change was not told"
    for entry in live:
        _check_entry(scheduler, entry)
    waits = [wait for entry in holding for wait in entry.opened or ()]
    for wait in waits:
        _check_wait(wait)
    for lane in scheduler.lanes.values():
        _check_lane(lane, live, holding, waits, given_up=scheduler.given_up)
    deadlines = _live_deadlines(scheduler)
    assert set(deadlines) == {entry for entry in live if entry.deadline is not None}
    assert not deadlines or scheduler.deadlines._timer is not None


def _live_deadlines(scheduler: Scheduler) -> list[Entry]:
    return [entry for _, _, entry in scheduler.deadlines._heap if entry is not None]


def _check_entry(scheduler: Scheduler, entry: Entry) -> None:
    assert entry.phase not in (SETTLED, WITHDRAWN), f"{entry.key} is over, but still in flight"
    if entry.phase is RUNNING:
        assert entry.holding
        assert (entry.deadline is not None) == (entry.job.timeout is not None)
        assert entry.task is not None
    else:
        assert entry.deadline is None
    if entry.phase is BACKOFF:
        lingering = scheduler.lingering.get(entry.key)
        waits_for_code = entry.holding or (lingering is not None and lingering.successor is entry)
        assert entry.timer is not None or waits_for_code, f"{entry.key} is never tried again"
    else:
        assert entry.timer is None
    if not entry.holding:
        assert not entry.opened
        assert entry.waiting == 0
    demand = [wait for wait in entry.waits or () if wait.owner is not None]
    assert entry.demand == len(demand)


def _check_wait(wait: Wait) -> None:
    owner = wait.owner
    assert owner is not None
    suspended = [other for other in owner.opened or () if other.future is not None]
    assert owner.waiting == len(suspended), f"{owner.key} counts its waits wrong"
    if wait.resuming:
        assert wait.future is not None
        assert wait in owner.lane.resuming
    for target in wait.targets:
        assert target.waits is not None
        assert wait in target.waits


def _check_lane(
    lane: Lane, live: list[Entry], holding: list[Entry], waits: list[Wait], *, given_up: bool
) -> None:
    here = [entry for entry in live if entry.lane is lane]
    phases = Counter(entry.phase for entry in here)
    held = [entry for entry in holding if entry.lane is lane]
    assert lane.running == len(held), f"{lane.name}: a permit is lost or doubled"
    assert lane.lent == sum(1 for entry in held if entry.waiting), f"{lane.name}: lent is wrong"
    assert lane.waiting == phases[WAITING]
    assert lane.waiting <= lane.capacity
    assert (
        lane.admitting
        == phases[ADMITTING]
        == len({entry for entry in lane._line if entry.phase is ADMITTING})
    )
    assert lane.retrying == phases[BACKOFF]
    executing = lane.running - lane.lent
    # Jobs that did not end within the time to clean up are given up, and so is the limit.
    assert executing <= lane.permits or given_up, (
        f"{lane.name}: {executing} execute on {lane.permits} permits"
    )
    stats = lane.stats()
    assert (stats.running, stats.lending) == (executing, lane.lent)
    _check_work_conserved(lane, here, waits)


def _check_work_conserved(lane: Lane, here: list[Entry], waits: list[Wait]) -> None:
    """Nothing that could go on is held back. Places and permits are given out at once."""
    placed = [entry for entry in here if entry.phase is WAITING]
    lined_up = [entry for entry in here if entry.phase is ADMITTING]
    assert not (lined_up and len(placed) < lane.capacity), f"{lane.name}: room, but nobody let in"
    if lane.running - lane.lent >= lane.permits:
        return
    for wait in waits:
        assert not (wait.resuming and wait.owner and wait.owner.lane is lane), (
            f"{lane.name}: {wait.owner} could have its permit back"
        )
    if not placed:
        return
    assert lane.running >= lane.permits, f"{lane.name}: a permit is free, and {placed} wait"
    wanted = [entry for entry in placed if entry.demand]
    assert not wanted, f"{lane.name}: jobs wait for {wanted}, which could run on a lent permit"
    room_wanted = [wait for wait in waits if wait.future is not None and _needs_room(wait, lane)]
    room_wanted_in_line = [entry for entry in lined_up if entry.demand]
    assert not room_wanted, f"{lane.name}: a job waits for room, but its head is not started"
    assert not room_wanted_in_line, f"{lane.name}: jobs wait for {room_wanted_in_line}, as above"


def _needs_room(wait: Wait, lane: Lane) -> bool:
    return wait.admitting is not None and wait.admitting.lane is lane and not wait.resuming


def check_rest(queue: Queue) -> None:
    """Check that a queue without work has nothing left of what it has done."""
    scheduler = queue._scheduler
    assert not scheduler.ledger.live
    assert not scheduler.lingering
    assert not scheduler.idlers
    assert not _live_deadlines(scheduler)
    for lane in scheduler.lanes.values():
        counts = (lane.running, lane.lent, lane.waiting, lane.admitting, lane.retrying)
        assert counts == (0, 0, 0, 0, 0), f"{lane.name}: {counts}"
        assert lane.room_demand == 0
        assert not [wait for wait in lane.resuming if wait.resuming]
        stats = lane.stats()
        assert (stats.waiting, stats.running, stats.lending, stats.retrying) == (0, 0, 0, 0)
