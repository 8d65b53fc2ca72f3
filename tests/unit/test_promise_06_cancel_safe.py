"""Promise 6: `push` and `push_and_wait` are cancel safe; a job belongs to the queue.

The seeded rounds are in `integration/test_case_03.py` and `test_case_09.py`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from gates import Gate, Meter, turns, value

from agentq import (
    Completed,
    Failed,
    InFlight,
    Job,
    JobFailed,
    LaneConfig,
    Pending,
    Queue,
    Queued,
    Transition,
)

TIGHT = {"normal": LaneConfig(capacity=1, permits=1)}
VERBS: list[Callable[[Queue, Job], Coroutine[Any, Any, Any]]] = [Queue.push, Queue.push_and_wait]


async def full(queue: Queue) -> Gate:
    """Fill the lane: one job runs until the gate is opened, one waits."""
    gate = Gate()
    await queue.push(Job("runs", gate))
    await queue.push(Job("waits", value))
    await gate.started.wait()
    return gate


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("verb", VERBS)
async def test_cancelled_while_waiting_for_room_nothing_is_left(verb: Any) -> None:
    meter = Meter()
    changes: list[Transition] = []
    async with Queue(TIGHT, on_change=changes.append) as queue:
        gate = await full(queue)
        before = queue.stats()
        push = asyncio.create_task(verb(queue, Job("k", meter)))
        await turns(2)
        assert queue.state("k") == Pending()
        await cancelled(push)
        assert queue.state("k") is None
        assert queue.stats() == before
        assert queue.cancel("k") is False
        gate.opened.set()
        assert await queue.push_and_wait(Job("k", meter)) == 1  # the key is free again
    assert meter.runs == 1
    assert [change.after for change in changes if change.key == "k"][:3] == [
        Pending(),
        None,
        Pending(),
    ]


@pytest.mark.parametrize("verb", VERBS)
async def test_cancelled_while_waiting_for_room_the_job_belongs_to_those_who_joined(
    verb: Any,
) -> None:
    meter = Meter()
    async with Queue(TIGHT) as queue:
        gate = await full(queue)
        first = asyncio.create_task(verb(queue, Job("k", meter)))
        await turns(2)
        joined = await queue.push(Job("k", meter))
        assert type(joined) is InFlight
        await cancelled(first)
        assert queue.state("k") == Pending()
        assert type(await queue.push(Job("k", meter))) is InFlight
        gate.opened.set()
        assert await joined.handle == Completed(1)
    assert meter.runs == 1


@pytest.mark.parametrize("verb", VERBS)
async def test_a_job_left_to_joiners_keeps_its_turn(verb: Any) -> None:
    order: list[str] = []

    async def note(name: str) -> None:
        order.append(name)

    async with Queue(TIGHT) as queue:
        gate = await full(queue)
        pushes = []
        for name in ("a", "b", "c"):
            pushes.append(asyncio.create_task(verb(queue, Job(name, note, args=(name,)))))
            await turns(1)
        await queue.push(Job("b", note))
        await cancelled(pushes.pop(1))
        gate.opened.set()
        await asyncio.gather(*pushes)
    assert order == ["a", "b", "c"]


async def test_joiners_that_gave_up_as_well_still_get_their_job_run() -> None:
    meter = Meter()
    async with Queue(TIGHT) as queue:
        gate = await full(queue)
        first = asyncio.create_task(queue.push(Job("k", meter)))
        await turns(1)
        joiner = asyncio.create_task(queue.push_and_wait(Job("k", meter)))
        await turns(1)
        await cancelled(joiner)
        await cancelled(first)
        gate.opened.set()
    assert queue.state("k") == Completed(1)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_cancelled_push_makes_room_for_the_one_behind_it(verb: Any) -> None:
    async with Queue(TIGHT) as queue:
        gate = await full(queue)
        first = asyncio.create_task(verb(queue, Job("first", value)))
        await turns(1)
        second = asyncio.create_task(queue.push(Job("second", value, args=(2,))))
        await turns(1)
        await cancelled(first)
        gate.opened.set()
        accepted = await second
        assert type(accepted) is Queued
        assert await accepted.handle.result() == 2


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("joined", [False, True])
async def test_cancelled_in_the_tick_in_which_a_place_becomes_free(verb: Any, joined: bool) -> None:
    meter = Meter()
    async with Queue(TIGHT) as queue:
        gate = await full(queue)
        push = asyncio.create_task(verb(queue, Job("k", meter)))
        await turns(1)
        if joined:
            assert type(await queue.push(Job("k", meter))) is InFlight
        assert queue.cancel("waits") is True  # its place goes to "k" in this very moment
        await cancelled(push)
        assert queue.state("k") == (Pending() if joined else None)
        accepted = await asyncio.wait_for(queue.push(Job("last", value)), 5) if not joined else None
        gate.opened.set()
        if accepted is not None:
            assert type(accepted) is Queued
    assert meter.runs == (1 if joined else 0)


@pytest.mark.parametrize("verb", VERBS)
async def test_the_place_that_became_free_for_a_cancelled_push_goes_to_the_next(verb: Any) -> None:
    async with Queue(TIGHT) as queue:
        gate = await full(queue)
        first = asyncio.create_task(verb(queue, Job("first", value)))
        await turns(1)
        second = asyncio.create_task(queue.push(Job("second", value)))
        await turns(1)
        assert queue.cancel("waits") is True  # its place goes to "first" in this very moment
        await cancelled(first)
        await turns(2)
        assert second.done()  # nothing else has ended: the running job still runs
        stats = queue.stats()["normal"]
        assert (stats.running, stats.waiting) == (1, 1)
        gate.opened.set()


async def test_cancelled_before_its_first_step_a_push_has_done_nothing() -> None:
    async with Queue() as queue:
        push = asyncio.Task(queue.push(Job("k", value)))
        push.cancel()
        with pytest.raises(asyncio.CancelledError):
            await push
        assert queue.state("k") is None
        assert queue.stats()["normal"].completed == 0


async def test_cancelled_later_the_job_runs_on() -> None:
    gate = Gate()
    async with Queue() as queue:
        first = asyncio.create_task(queue.push_and_wait(Job("k", gate, args=(7,))))
        await gate.started.wait()
        await cancelled(first)
        gate.opened.set()
        assert await queue.push_and_wait(Job("k", gate)) == 7
    assert gate.runs == 1


async def test_cancelled_while_waiting_for_a_permit_the_job_runs_later() -> None:
    meter = Meter()
    async with Queue(TIGHT) as queue:
        gate = Gate()
        await queue.push(Job("runs", gate))
        first = asyncio.create_task(queue.push_and_wait(Job("k", meter)))
        await turns(2)
        assert queue.stats()["normal"].waiting == 1
        await cancelled(first)
        assert queue.stats()["normal"].waiting == 1
        gate.opened.set()
    assert queue.state("k") == Completed(1)


async def test_a_joiner_that_gives_up_disturbs_nobody() -> None:
    gate = Gate()
    async with Queue() as queue:
        waiters = [
            asyncio.create_task(queue.push_and_wait(Job("k", gate, args=(7,)))) for _ in range(4)
        ]
        await turns(1)
        accepted = await queue.push(Job("k", gate))
        assert type(accepted) is InFlight
        await gate.started.wait()
        await cancelled(waiters.pop(2))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(accepted.handle.result(), 0.01)
        gate.opened.set()
        assert await asyncio.gather(*waiters) == [7, 7, 7]
        assert await accepted.handle == Completed(7)
    assert gate.runs == 1


async def test_a_handle_may_be_awaited_and_given_up_any_number_of_times() -> None:
    gate = Gate()
    async with Queue() as queue:
        accepted = await queue.push(Job("k", gate, args=(7,)))
        assert type(accepted) is Queued
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    await accepted.handle
        gate.opened.set()
        assert [await accepted.handle for _ in range(3)] == [Completed(7)] * 3


async def test_a_failure_reaches_those_who_still_wait_and_nobody_else() -> None:
    go = asyncio.Event()

    async def fail() -> None:
        await go.wait()
        raise ValueError("no")

    async with Queue() as queue:
        waiters = [asyncio.create_task(queue.push_and_wait(Job("k", fail))) for _ in range(3)]
        await turns(3)
        await cancelled(waiters.pop())
        go.set()
        for waiter in waiters:
            with pytest.raises(JobFailed, match="ValueError: no"):
                await waiter
        assert queue.state("k") == Failed("ValueError: no")


async def test_a_withdrawn_push_of_a_failed_key_leaves_the_failure_known() -> None:
    async def fail() -> None:
        raise ValueError("no")

    async with Queue(TIGHT) as queue:
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("k", fail))
        gate = await full(queue)
        push = asyncio.create_task(queue.push(Job("k", value)))
        await turns(2)
        await cancelled(push)
        assert queue.state("k") == Failed("ValueError: no")
        gate.opened.set()
