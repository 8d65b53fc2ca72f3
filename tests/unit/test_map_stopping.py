"""`Queue.map` when its consumer stops early, and what it leaves to others."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from gates import Gate, handle_of, turns, value

from agentq import (
    Completed,
    Failed,
    InFlight,
    Job,
    JobFailed,
    LaneConfig,
    Pending,
    Queue,
    QueueClosed,
    Queued,
    Transition,
)

TIGHT = {name: LaneConfig(capacity=1, permits=1) for name in ("high", "normal", "low")}


async def test_an_asynchronous_source_that_waits_is_stopped_and_cleans_up() -> None:
    cleaned = asyncio.Event()

    async def waits() -> AsyncIterator[Job]:
        try:
            yield Job("k", value)
            await asyncio.Event().wait()
        finally:
            await turns(2)
            cleaned.set()

    async with Queue() as queue:
        outcomes: Any = queue.map(waits())
        assert await anext(outcomes) == ("k", Completed(None))
        second = asyncio.ensure_future(anext(outcomes))
        await turns(3)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert cleaned.is_set()


async def test_an_asynchronous_source_that_fails_unseen_leaves_no_error_behind() -> None:
    go = asyncio.Event()

    async def fails() -> AsyncIterator[Job]:
        yield Job("k", value)
        await go.wait()
        raise ValueError("nobody asks for this job")

    async with Queue() as queue:
        outcomes: Any = queue.map(fails())
        assert await anext(outcomes) == ("k", Completed(None))
        go.set()
        await turns(3)
        await outcomes.aclose()
    # "never retrieved" would reach the loop's exception handler, which fails every test here.


@pytest.mark.parametrize("verb", ["push", "push_and_wait", "map"])
async def test_a_job_that_on_change_has_cancelled_at_once_is_answered(verb: str) -> None:
    def on_change(change: Transition) -> None:
        if change.key == "k" and change.after == Pending():
            queue.cancel("k")

    gate = Gate()
    async with Queue(TIGHT, on_change=on_change) as queue:
        await queue.push(Job("runs", gate))
        job = Job("k", value)
        if verb == "push":
            assert await (await handle_of(queue, job)) == Failed("cancelled")
        elif verb == "push_and_wait":
            with pytest.raises(JobFailed, match="cancelled"):
                await queue.push_and_wait(job)
        else:
            assert [item async for item in queue.map([job])] == [("k", Failed("cancelled"))]
        gate.opened.set()


@pytest.mark.parametrize("verb", ["push", "push_and_wait", "map"])
async def test_a_push_during_which_on_change_closes_the_queue_is_turned_away(verb: str) -> None:
    def on_change(change: Transition) -> None:
        if change.key == "k" and change.after == Pending():
            queue.close()

    async with Queue(TIGHT, on_change=on_change) as queue:
        await queue.push(Job("runs", Gate()))
        await queue.push(Job("waits", value))
        job = Job("k", value)
        with pytest.raises(QueueClosed):
            await (anext(queue.map([job])) if verb == "map" else getattr(queue, verb)(job))
        assert queue.state("k") is None


async def test_of_an_endless_source_of_one_key_in_flight_no_more_is_taken_than_there_is_room() -> (
    None
):
    gate = Gate()
    taken = itertools.count()

    def endless() -> Iterator[Job]:
        while True:
            next(taken)
            yield Job("k", gate)

    async with Queue(TIGHT) as queue:
        async with aclosing(queue.map(endless())) as outcomes:
            first = asyncio.ensure_future(anext(outcomes))
            await gate.started.wait()
            await turns(20)
            assert next(taken) == 6  # the capacity and the permits of three lanes
            gate.opened.set()
            assert await first == ("k", Completed(None))
        assert queue.stats()["normal"].completed == 1


async def test_joining_a_key_in_the_line_leaves_its_pusher_alone() -> None:
    gate = Gate()
    async with Queue(TIGHT) as queue:
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", value))
        pusher = asyncio.create_task(queue.push(Job("k", value, args=(7,))))
        await turns(2)
        outcomes = queue.map([Job("k", value)])
        answer = asyncio.ensure_future(anext(outcomes))
        await turns(2)
        gate.opened.set()
        assert type(await pusher) is Queued
        assert await answer == ("k", Completed(7))


@pytest.mark.parametrize("joined", [True, False])
async def test_stopping_early_withdraws_only_the_push_of_its_own(joined: bool) -> None:
    gate = Gate()
    async with Queue(TIGHT) as queue:
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", value))
        if joined:
            pusher = asyncio.create_task(queue.push(Job("k", value, args=(7,))))
            await turns(2)
        outcomes: Any = queue.map([Job("k", value)])
        answer = asyncio.ensure_future(anext(outcomes))
        await turns(2)
        answer.cancel()
        await asyncio.wait((answer,))
        assert (queue.state("k") is not None) is joined
        gate.opened.set()
        if joined:
            assert type(await pusher) is Queued


async def test_a_job_that_stopped_its_map_no_longer_waits_for_what_it_pushed() -> None:
    stopped, parent_ends = asyncio.Event(), asyncio.Event()

    async def child() -> Any:
        await stopped.wait()
        accepted = await queue.push(Job("parent", value))
        assert type(accepted) is InFlight
        parent_ends.set()
        return await accepted.handle.result()

    async def parent() -> str:
        jobs = [Job("child", child), Job("quick", value)]
        async with aclosing(queue.map(jobs)) as outcomes:
            async for _ in outcomes:
                break
        stopped.set()
        await parent_ends.wait()
        return "parent"

    async with Queue() as queue:
        handle = await handle_of(queue, Job("parent", parent))
        assert await handle == Completed("parent")
        assert await queue.push_and_wait(Job("child", value)) == "parent"
