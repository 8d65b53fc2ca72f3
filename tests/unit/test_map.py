"""`Queue.map`: outcomes in completion order, from any source, with bounded memory."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from gates import Gate, Meter, turns, value

from agentq import (
    Completed,
    Failed,
    Job,
    JobLost,
    LaneConfig,
    Outcome,
    Pending,
    Queue,
    QueueClosed,
    Queued,
)

TIGHT = {name: LaneConfig(capacity=1, permits=1) for name in ("high", "normal", "low")}


async def closed(outcomes: Any) -> None:
    await outcomes.aclose()


async def collect(outcomes: AsyncIterator[tuple[str, Outcome]]) -> list[tuple[str, Outcome]]:
    return [item async for item in outcomes]


def numbered(count: int) -> list[Job]:
    return [Job(f"k{number}", value, args=(number,)) for number in range(count)]


async def asynchronous(jobs: Any) -> AsyncIterator[Job]:
    for job in jobs:
        await asyncio.sleep(0)
        yield job


@pytest.mark.parametrize("source", [list, iter, tuple, asynchronous])
async def test_every_job_is_answered_once(source: Callable[..., Any]) -> None:
    async with Queue({"normal": LaneConfig(capacity=2, permits=2)}) as queue:
        items = await collect(queue.map(source(numbered(50))))
    assert sorted(items) == sorted((f"k{number}", Completed(number)) for number in range(50))


@pytest.mark.parametrize("source", [list, asynchronous])
async def test_no_jobs_no_answers(source: Callable[..., Any]) -> None:
    async with Queue() as queue:
        assert await collect(queue.map(source([]))) == []


@pytest.mark.parametrize("source", [list, asynchronous])
async def test_answers_come_in_the_order_in_which_jobs_end(source: Callable[..., Any]) -> None:
    gates = [Gate() for _ in range(3)]
    async with Queue() as queue:
        jobs = [Job(f"k{number}", gate, args=(number,)) for number, gate in enumerate(gates)]
        outcomes = queue.map(source(jobs))
        for number in (2, 0, 1):
            answer = asyncio.ensure_future(anext(outcomes))
            await gates[number].started.wait()
            await turns(3)
            assert not answer.done()
            gates[number].opened.set()
            assert await answer == (f"k{number}", Completed(number))
        with pytest.raises(StopAsyncIteration):
            await anext(outcomes)


async def test_failures_are_answers_and_do_not_end_it() -> None:
    async def odd(number: int) -> int:
        if number % 2:
            raise ValueError(number)
        return number

    async with Queue() as queue:
        items = await collect(queue.map(Job(f"k{n}", odd, args=(n,)) for n in range(4)))
    assert sorted(items, key=lambda item: item[0]) == [
        ("k0", Completed(0)),
        ("k1", Failed("ValueError: 1")),
        ("k2", Completed(2)),
        ("k3", Failed("ValueError: 3")),
    ]


@pytest.mark.parametrize("source", [list, asynchronous])
async def test_a_key_that_comes_several_times_runs_once_and_is_answered_each_time(
    source: Callable[..., Any],
) -> None:
    meter = Meter()
    async with Queue() as queue:
        items = await collect(queue.map(source([Job("k", meter)] * 10)))
    assert items == [("k", Completed(1))] * 10
    assert meter.runs == 1


@pytest.mark.parametrize("source", [list, asynchronous])
async def test_cached_keys_are_answered_wherever_they_come(source: Callable[..., Any]) -> None:
    async with Queue(TIGHT) as queue:
        for number in (0, 1, 4, 9):
            await queue.push_and_wait(Job(f"k{number}", value, args=("cached",)))
        items = await collect(queue.map(source(numbered(10))))
    assert sorted(items) == sorted(
        (f"k{n}", Completed("cached" if n in (0, 1, 4, 9) else n)) for n in range(10)
    )


@pytest.mark.parametrize("source", [list, asynchronous])
async def test_nothing_but_cached_keys_is_no_reason_to_wait(source: Callable[..., Any]) -> None:
    async with Queue() as queue:
        for job in numbered(300):
            await queue.push_and_wait(job)
        items = await collect(queue.map(source(numbered(300))))
        assert [outcome for _, outcome in items] == [Completed(number) for number in range(300)]
        assert queue.stats()["normal"].cached == 300


async def test_a_long_run_of_cached_keys_lets_others_run() -> None:
    async with Queue() as queue:
        await queue.push_and_wait(Job("k", value))
        count = 0
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        async for _ in queue.map(itertools.repeat(Job("k", value), 2000)):
            count += 1
        ticking.cancel()
        assert count == 2000
        assert ticks >= 10


async def test_it_joins_jobs_in_flight() -> None:
    gate = Gate()
    async with Queue() as queue:
        await queue.push(Job("k", gate, args=(7,)))
        answer = asyncio.ensure_future(collect(queue.map([Job("k", value)])))
        await turns(3)
        assert not answer.done()
        gate.opened.set()
        assert await answer == [("k", Completed(7))]
    assert gate.runs == 1


class Endless:
    """An endless source that counts what is taken from it, and says when it is closed."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func
        self.taken = 0
        self.closed = False

    def sync(self) -> Iterator[Job]:
        try:
            while True:
                self.taken += 1
                yield Job(f"k{self.taken}", self.func)
        finally:
            self.closed = True

    async def asynchronous(self) -> AsyncIterator[Job]:
        try:
            while True:
                self.taken += 1
                yield Job(f"k{self.taken}", self.func)
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            self.closed = True


@pytest.mark.parametrize("kind", ["sync", "asynchronous"])
async def test_of_an_endless_source_no_more_is_taken_than_lanes_have_room(kind: str) -> None:
    gate = Gate()
    endless = Endless(gate)
    async with Queue({"normal": LaneConfig(capacity=3, permits=2)}) as queue:
        async with aclosing(queue.map(getattr(endless, kind)())) as outcomes:
            first = asyncio.ensure_future(anext(outcomes))
            await gate.started.wait()
            await turns(30)
            assert endless.taken == 6  # two run, three wait, one is taken and finds no room
            gate.opened.set()
            await first
            for _ in range(200):
                await anext(outcomes)
        assert endless.closed
        assert endless.taken <= 201 + 6 + 5
    assert queue.stats()["normal"].waiting == 0


@pytest.mark.parametrize("kind", ["sync", "asynchronous"])
async def test_answers_that_nobody_takes_do_not_pile_up(kind: str) -> None:
    endless = Endless(value)
    async with Queue(TIGHT) as queue:
        outcomes = queue.map(getattr(endless, kind)())
        await anext(outcomes)
        await turns(200)  # jobs are done at once, but their answers are not fetched
        assert endless.taken <= 7  # capacity and permits of three lanes, and one
        await closed(outcomes)


@pytest.mark.parametrize("kind", ["sync", "asynchronous"])
async def test_stopping_early_closes_the_source_and_lets_pushed_jobs_run_on(kind: str) -> None:
    meter = Meter()
    endless = Endless(meter)
    async with Queue({"normal": LaneConfig(capacity=3, permits=1)}) as queue:
        async with aclosing(queue.map(getattr(endless, kind)())) as outcomes:
            async for _ in outcomes:
                break
        assert endless.closed
        taken = endless.taken
        stats = queue.stats()["normal"]
        accepted = stats.completed + stats.running + stats.waiting
        assert accepted in (taken, taken - 1)  # the one without a place is withdrawn
        await queue.drain()
        assert meter.runs == accepted
        assert endless.taken == taken


async def test_stopping_early_leaves_nothing_of_a_job_without_a_place() -> None:
    gate = Gate()
    async with Queue(TIGHT) as queue:
        jobs = [Job(f"k{number}", gate) for number in range(5)]
        answer = asyncio.create_task(collect(queue.map(jobs)))
        await gate.started.wait()
        await turns(5)
        assert [queue.state(f"k{number}") is None for number in range(5)] == [
            False,
            False,
            False,
            True,
            True,
        ]
        answer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answer
        assert queue.state("k2") is None
        assert queue.state("k1") == Pending()
        gate.opened.set()
    assert gate.runs == 2


async def test_a_job_without_a_place_that_others_joined_is_theirs() -> None:
    gate = Gate()
    async with Queue(TIGHT) as queue:
        answer = asyncio.create_task(collect(queue.map([Job(f"k{n}", gate) for n in range(5)])))
        await gate.started.wait()
        await turns(5)
        joined = asyncio.create_task(queue.push_and_wait(Job("k2", gate)))
        await turns(2)
        answer.cancel()
        gate.opened.set()
        assert await joined is None
    assert gate.runs == 3


@pytest.mark.parametrize("kind", ["sync", "asynchronous"])
async def test_an_error_in_the_source_is_raised_and_pushed_jobs_run_on(kind: str) -> None:
    meter = Meter()

    def failing() -> Iterator[Job]:
        yield Job("k0", meter)
        yield Job("k1", meter)
        raise ValueError("source")

    async with Queue() as queue:
        source = failing() if kind == "sync" else asynchronous(failing())
        with pytest.raises(ValueError, match="source"):
            await collect(queue.map(source))
    assert meter.runs == 2


@pytest.mark.parametrize("source", [list, asynchronous])
async def test_what_is_no_job_is_refused(source: Callable[..., Any]) -> None:
    async with Queue() as queue:
        with pytest.raises(TypeError, match="a queue takes a Job, not 7"):
            await collect(queue.map(source([Job("k", value), 7])))


async def test_what_is_no_source_is_refused() -> None:
    wrong: Any = 7
    async with Queue() as queue:
        with pytest.raises(TypeError, match="map takes an iterable or an async iterable of jobs"):
            await collect(queue.map(wrong))


async def test_several_lanes_are_served_from_one_source() -> None:
    async with Queue(TIGHT) as queue:
        lanes = itertools.cycle(("high", "normal", "low"))
        jobs = [Job(f"k{n}", value, args=(n,), lane=next(lanes)) for n in range(30)]
        items = await collect(queue.map(jobs))
        assert sorted(items) == sorted((f"k{n}", Completed(n)) for n in range(30))
        assert [stats.completed for stats in queue.stats().values()] == [10, 10, 10]


async def test_several_maps_at_once_share_the_lanes() -> None:
    async with Queue(TIGHT) as queue:
        answers = await asyncio.gather(*(collect(queue.map(numbered(20))) for _ in range(5)))
        for items in answers:
            assert sorted(items) == sorted((f"k{n}", Completed(n)) for n in range(20))
        assert queue.stats()["normal"].completed == 20


async def test_jobs_that_were_cancelled_are_answered_as_failed() -> None:
    gate = Gate()
    async with Queue() as queue:
        answer = asyncio.create_task(collect(queue.map([Job("k", gate)])))
        await gate.started.wait()
        queue.cancel("k")
        assert await answer == [("k", Failed("cancelled"))]


async def test_a_queue_that_closes_meanwhile_is_told_as_a_lost_job() -> None:
    gate = Gate()
    async with Queue() as queue:
        endless = Endless(gate)
        answer = asyncio.create_task(collect(queue.map(endless.sync())))
        await gate.started.wait()
        queue.close()
        with pytest.raises(JobLost, match="the queue closed before the job ended"):
            await answer
        assert endless.closed


async def test_a_queue_that_drains_meanwhile_turns_the_rest_away() -> None:
    gate = Gate()
    endless = Endless(gate)
    async with Queue(TIGHT) as queue:
        answer = asyncio.create_task(collect(queue.map(endless.sync())))
        await gate.started.wait()
        await turns(3)
        drained = asyncio.create_task(queue.drain())
        await turns(3)
        gate.opened.set()
        with pytest.raises(QueueClosed):
            await answer
        await drained
        assert endless.closed
    assert gate.runs == 2


async def test_a_slow_asynchronous_source_does_not_hold_back_answers() -> None:
    go = asyncio.Event()

    async def slow() -> AsyncIterator[Job]:
        yield Job("k0", value, args=(0,))
        await go.wait()
        yield Job("k1", value, args=(1,))

    async with Queue() as queue:
        outcomes = queue.map(slow())
        assert await anext(outcomes) == ("k0", Completed(0))
        go.set()
        assert await anext(outcomes) == ("k1", Completed(1))
        with pytest.raises(StopAsyncIteration):
            await anext(outcomes)


async def test_a_source_that_itself_waits_for_answers_works() -> None:
    done: list[str] = []

    async def step_by_step(queue: Queue) -> AsyncIterator[Job]:
        for number in range(5):
            accepted = await queue.push(Job(f"before {number}", value))
            assert type(accepted) is Queued
            await accepted.handle
            yield Job(f"k{number}", value)

    async with Queue(TIGHT) as queue:
        async for key, _ in queue.map(step_by_step(queue)):
            done.append(key)
    assert sorted(done) == [f"k{number}" for number in range(5)]
