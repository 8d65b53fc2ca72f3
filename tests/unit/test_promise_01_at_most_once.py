"""Promise 1: a key executes at most once while it is claimed.

Check, decision, `Pending` and the waiter's registration are one critical section. The race of
eight threads is in `integration/test_threads.py`.
"""

import asyncio
from typing import Any

import pytest
from gates import Gate, Meter, ThreadGate, turns, value

from agentq import (
    Cached,
    Failed,
    InFlight,
    Job,
    LaneConfig,
    Pending,
    Processing,
    Queue,
    Queued,
    Retry,
)


async def test_eight_tasks_racing_one_key_run_it_once() -> None:
    meter = Meter()
    async with Queue() as queue:
        outputs = await asyncio.gather(*(queue.push_and_wait(Job("k", meter)) for _ in range(8)))
        assert outputs == [1] * 8
        assert meter.runs == 1
        stats = queue.stats()["normal"]
        assert (stats.completed, stats.joined) == (1, 7)


async def test_eight_tasks_racing_many_keys_run_each_once() -> None:
    ran: list[int] = []

    async def run(number: int) -> int:
        await turns(number % 3)
        ran.append(number)
        return number

    async with Queue() as queue:

        async def racer() -> list[int]:
            return [
                await queue.push_and_wait(Job(f"k{number}", run, args=(number,)))
                for number in range(50)
            ]

        outputs = await asyncio.gather(*(racer() for _ in range(8)))
    assert outputs == [list(range(50))] * 8
    assert ran == list(range(50))


async def test_exactly_one_racer_queues_and_the_others_join() -> None:
    gate = Gate()
    async with Queue() as queue:
        accepted = await asyncio.gather(*(queue.push(Job("k", gate)) for _ in range(8)))
        assert [type(answer) for answer in accepted] == [Queued] + [InFlight] * 7
        gate.opened.set()


async def test_the_claim_is_made_before_push_first_suspends() -> None:
    gate = Gate()
    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}) as queue:
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", value))
        push: Any = queue.push(Job("k", value))
        push.send(None)  # its first suspension: there is no room
        assert queue.state("k") == Pending()
        assert type(await queue.push(Job("k", value))) is InFlight
        push.close()
        gate.opened.set()


async def test_a_push_with_room_never_suspends() -> None:
    gate = Gate()
    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}) as queue:
        for key, state in (("runs", Processing()), ("waits", Pending())):
            push: Any = queue.push(Job(key, gate))
            with pytest.raises(StopIteration) as returned:
                push.send(None)
            assert type(returned.value.value) is Queued
            assert queue.state(key) == state
        gate.opened.set()


@pytest.mark.parametrize("joiners", [1, 8])
async def test_a_second_pusher_joins_at_once_while_the_first_waits_for_room(joiners: int) -> None:
    gate, meter = Gate(), Meter()
    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}) as queue:
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", value))
        first = asyncio.create_task(queue.push(Job("k", meter)))
        await turns(3)
        assert not first.done()
        for _ in range(joiners):
            push: Any = queue.push(Job("k", meter))
            with pytest.raises(StopIteration) as returned:
                push.send(None)
            assert type(returned.value.value) is InFlight
        gate.opened.set()
        assert type(await first) is Queued
    assert meter.runs == 1


async def test_a_completed_key_answers_with_its_output_and_never_runs_again() -> None:
    meter = Meter()
    async with Queue() as queue:
        assert await queue.push_and_wait(Job("k", meter)) == 1
        for _ in range(3):
            assert await queue.push(Job("k", meter)) == Cached(1)
            assert await queue.push_and_wait(Job("k", meter)) == 1
        assert queue.stats()["normal"].cached == 6
    assert meter.runs == 1


@pytest.mark.parametrize("output", [None, False, 0, "", [], ValueError("kept"), Failed("no")])
async def test_any_output_is_cached_also_one_that_looks_like_nothing(output: Any) -> None:
    meter = Meter()

    async def give() -> Any:
        await meter()
        return output

    async with Queue() as queue:
        assert await queue.push_and_wait(Job("k", give)) is output
        cached = await queue.push(Job("k", give))
        assert type(cached) is Cached
        assert cached.output is output
    assert meter.runs == 1


async def test_a_key_in_backoff_is_joined() -> None:
    runs = 0
    failed = asyncio.Event()

    async def flaky() -> int:
        nonlocal runs
        runs += 1
        if runs == 1:
            failed.set()
            raise ValueError("first")
        return runs

    async with Queue() as queue:
        job = Job("k", flaky, retry=Retry(attempts=2, initial=0.05, jitter=0))
        first = await queue.push(job)
        await failed.wait()
        await turns(3)
        assert queue.state("k") == Pending()
        second = await queue.push(job)
        assert (type(first), type(second)) == (Queued, InFlight)
        assert await second.handle.result() == 2  # type: ignore[union-attr]
    assert runs == 2


async def test_a_timed_out_thread_still_running_holds_back_the_next_run_of_its_key() -> None:
    slow, again = ThreadGate(), ThreadGate()
    again.opened.set()
    async with Queue() as queue:
        accepted = await queue.push(Job("k", slow, timeout=0.02))
        assert type(accepted) is Queued
        assert await accepted.handle == Failed("timed out after 0.02 s")
        second = await queue.push(Job("k", again, args=(2,)))
        assert type(second) is Queued
        await turns(10)
        assert queue.state("k") == Pending()
        assert again.runs == 0
        slow.opened.set()
        assert await second.handle.result() == 2
    assert (slow.runs, again.runs) == (1, 1)


async def test_a_cancelled_coroutine_still_cleaning_up_holds_back_the_next_run_of_its_key() -> None:
    cleaning, cleaned = asyncio.Event(), asyncio.Event()
    order: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await cleaned.wait()
            order.append("cleaned")

    async def again() -> None:
        order.append("again")

    async with Queue() as queue:
        accepted = await queue.push(Job("k", stubborn, timeout=0.02))
        assert type(accepted) is Queued
        assert await accepted.handle == Failed("timed out after 0.02 s")
        await cleaning.wait()
        second = await queue.push(Job("k", again))
        assert type(second) is Queued
        await turns(10)
        assert order == []
        cleaned.set()
        await second.handle
    assert order == ["cleaned", "again"]


async def test_after_a_failure_the_key_runs_afresh_and_once() -> None:
    runs = 0

    async def fail() -> None:
        nonlocal runs
        runs += 1
        await turns(2)
        raise ValueError(runs)

    async with Queue() as queue:
        for run in (1, 2, 3):
            accepted = [await queue.push(Job("k", fail)) for _ in range(8)]
            assert [type(answer) for answer in accepted] == [Queued] + [InFlight] * 7
            for answer in accepted:
                assert not isinstance(answer, Cached)
                assert await answer.handle == Failed(f"ValueError: {run}")
    assert runs == 3
