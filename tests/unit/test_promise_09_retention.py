"""Promise 9: by default keys are kept; `Retention` forgets finished ones, oldest first."""

import asyncio
import gc
import math
import time
import weakref
from collections.abc import Iterator
from contextvars import copy_context
from datetime import timedelta
from typing import Any

import pytest
from gates import Gate, Meter, turns, value

from agentq import (
    Cached,
    Completed,
    Failed,
    InFlight,
    Job,
    JobFailed,
    Pending,
    Processing,
    Queue,
    Queued,
    Retention,
    Retry,
    task,
)
from agentq.queue.entry import Entry
from agentq.queue.ledger import Ledger


class Clock:
    """Moves the time of the running loop forward, as far as anybody who asks for it is told."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._true = loop.time
        self._ahead = 0.0
        setattr(loop, "time", lambda: self._true() + self._ahead)  # noqa: B010

    def forward(self, seconds: float) -> None:
        self._ahead += seconds


async def fail() -> None:
    raise ValueError("no")


def kept(queue: Queue, count: int) -> list[int]:
    return [number for number in range(count) if queue.state(f"k{number}") is not None]


async def finish(queue: Queue, numbers: Iterator[int] | range) -> None:
    for number in numbers:
        await queue.push_and_wait(Job(f"k{number}", value, args=(number,)))


async def test_by_default_every_key_is_kept() -> None:
    async with Queue() as queue:
        await finish(queue, range(3000))
        assert len(kept(queue, 3000)) == 3000
        assert await queue.push(Job("k0", value)) == Cached(0)


async def test_no_more_than_max_keys_are_kept_and_the_oldest_go_first() -> None:
    async with Queue(retention=Retention(max_keys=3)) as queue:
        for count in range(1, 8):
            await finish(queue, range(count - 1, count))
            assert kept(queue, 8) == list(range(max(0, count - 3), count))


async def test_a_forgotten_key_runs_again() -> None:
    meter = Meter()
    async with Queue(retention=Retention(max_keys=1)) as queue:
        assert await queue.push_and_wait(Job("a", meter)) == 1
        assert await queue.push_and_wait(Job("a", meter)) == 1
        await queue.push_and_wait(Job("b", value))
        assert queue.state("a") is None
        accepted = await queue.push(Job("a", meter))
        assert type(accepted) is Queued
        assert await accepted.handle.result() == 2


async def test_max_keys_zero_keeps_nothing() -> None:
    async with Queue(retention=Retention(max_keys=0)) as queue:
        accepted = await queue.push(Job("k", value, args=(1,)))
        assert type(accepted) is Queued
        assert await accepted.handle == Completed(1)  # whoever has the handle still knows
        assert queue.state("k") is None


async def test_age_counts_from_the_end_not_from_the_push() -> None:
    gate = Gate()
    async with Queue(retention=Retention(max_keys=2)) as queue:
        slow = await queue.push(Job("k0", gate))
        assert type(slow) is Queued
        await finish(queue, range(1, 3))
        gate.opened.set()
        await slow.handle
        assert kept(queue, 3) == [0, 2]


async def test_failed_keys_count_and_are_forgotten_too() -> None:
    async with Queue(retention=Retention(max_keys=2)) as queue:
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("k0", fail))
        await finish(queue, range(1, 3))
        assert kept(queue, 3) == [1, 2]


async def test_a_failed_key_that_ran_again_is_as_young_as_its_last_end() -> None:
    async with Queue(retention=Retention(max_keys=2)) as queue:
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("k0", fail))
        await finish(queue, range(1, 2))
        await finish(queue, range(1))  # k0 once more
        await finish(queue, range(2, 3))
        assert kept(queue, 3) == [0, 2]


async def test_being_asked_for_makes_no_key_younger() -> None:
    async with Queue(retention=Retention(max_keys=2)) as queue:
        await finish(queue, range(2))
        for _ in range(3):
            assert await queue.push(Job("k0", value)) == Cached(0)
        await finish(queue, range(2, 3))
        assert kept(queue, 3) == [1, 2]


@pytest.mark.parametrize("retention", [Retention(max_keys=0), Retention(ttl=1e-9)])
async def test_keys_in_flight_are_never_forgotten(retention: Retention) -> None:
    clock = Clock()
    gate = Gate()
    flaky = asyncio.Event()

    async def fails_once() -> None:
        flaky.set()
        raise ValueError

    async with Queue(retention=retention) as queue:
        running = await queue.push(Job("running", gate, args=(1,)))
        retrying = await queue.push(
            Job("retrying", fails_once, retry=Retry(attempts=2, initial=9e9, maximum=9e9))
        )
        await gate.started.wait()
        await flaky.wait()
        await turns(3)
        await finish(queue, range(20))
        clock.forward(1800)
        await finish(queue, range(20, 40))
        assert queue.state("running") == Processing()
        assert queue.state("retrying") == Pending()
        assert type(await queue.push(Job("running", gate))) is InFlight
        assert type(await queue.push(Job("retrying", value))) is InFlight
        gate.opened.set()
        assert type(running) is Queued
        assert await running.handle == Completed(1)
        queue.cancel("retrying")
        assert type(retrying) is Queued
        assert await retrying.handle == Failed("cancelled")
    assert gate.runs == 1


@pytest.mark.parametrize("ttl", [60, 60.0, timedelta(minutes=1)])
async def test_a_key_is_forgotten_when_its_ttl_has_passed_and_not_before(ttl: Any) -> None:
    clock = Clock()
    meter = Meter()
    async with Queue(retention=Retention(ttl=ttl)) as queue:
        await queue.push_and_wait(Job("k", meter))
        clock.forward(59)
        assert queue.state("k") == Completed(1)
        assert await queue.push(Job("k", meter)) == Cached(1)
        clock.forward(1.1)
        assert queue.state("k") is None
        assert await queue.push_and_wait(Job("k", meter)) == 2


async def test_an_expired_output_is_never_an_answer() -> None:
    clock = Clock()
    meter = Meter()
    async with Queue(retention=Retention(ttl=60)) as queue:
        await queue.push_and_wait(Job("k", meter))
        clock.forward(61)
        accepted = await queue.push(Job("k", meter))  # asked for nothing in between
        assert type(accepted) is Queued
        assert await accepted.handle == Completed(2)


async def test_only_what_is_old_enough_is_forgotten() -> None:
    clock = Clock()
    async with Queue(retention=Retention(ttl=60)) as queue:
        for number in range(6):
            await finish(queue, range(number, number + 1))
            clock.forward(20)
        assert kept(queue, 6) == [4, 5] or kept(queue, 6) == [3, 4, 5]
        clock.forward(21)
        assert kept(queue, 6) == [5] or kept(queue, 6) == [4, 5]
        clock.forward(60)
        assert kept(queue, 6) == []


async def test_a_failure_expires_as_well() -> None:
    clock = Clock()
    async with Queue(retention=Retention(ttl=60)) as queue:
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("k", fail))
        assert queue.state("k") == Failed("ValueError: no")
        clock.forward(61)
        assert queue.state("k") is None


async def test_both_limits_hold_together() -> None:
    clock = Clock()
    async with Queue(retention=Retention(ttl=60, max_keys=2)) as queue:
        await finish(queue, range(3))
        assert kept(queue, 3) == [1, 2]
        clock.forward(61)
        await finish(queue, range(3, 4))
        assert kept(queue, 4) == [3]


async def test_what_is_forgotten_is_freed() -> None:
    class Output:
        pass

    @task(name="make", key="make:{number}")
    async def make(number: int) -> Output:
        return Output()

    async with Queue(retention=Retention(max_keys=1)) as queue:
        reference = weakref.ref(await queue.push_and_wait(make.job(1)))
        gc.collect()
        assert type(reference()) is Output
        await queue.push_and_wait(make.job(2))
        gc.collect()
        assert reference() is None


def cost_of_forgetting(max_keys: int) -> float:
    """The time to finish 20,000 keys when `max_keys` are kept already, so that each forgets one."""
    ledger = Ledger(Retention(max_keys=max_keys), time.monotonic, observed=False)
    lane: Any = None

    def finish_keys(numbers: range) -> None:
        for number in numbers:
            entry = Entry(lane, f"k{number}", Job("k", value), lane, copy_context())
            ledger.open(entry)
            ledger.complete(entry, number)

    finish_keys(range(max_keys))
    started = time.thread_time()
    finish_keys(range(max_keys, max_keys + 20_000))
    spent = time.thread_time() - started
    assert ledger.state(f"k{19_999}") is None
    assert len(ledger.finished) == max_keys
    return spent


def test_forgetting_costs_the_same_however_many_keys_are_kept() -> None:
    few = min(cost_of_forgetting(100) for _ in range(3))
    many = min(cost_of_forgetting(70_000) for _ in range(3))
    assert many < 4 * few  # searching past what was forgotten costs more than ten times as much


@pytest.mark.parametrize(
    ("field", "wrong", "error", "message"),
    [
        ("ttl", 0, ValueError, "ttl must be more than 0 seconds and finite, not 0"),
        ("ttl", -1, ValueError, "ttl must be more than 0 seconds"),
        ("ttl", math.nan, ValueError, "ttl must be more than 0 seconds"),
        ("ttl", math.inf, ValueError, "ttl must be more than 0 seconds"),
        ("ttl", timedelta(0), ValueError, "ttl must be more than 0 seconds"),
        ("ttl", "1", TypeError, "ttl must be seconds or a timedelta, not '1'"),
        ("ttl", True, TypeError, "ttl must be seconds or a timedelta, not True"),
        ("max_keys", -1, ValueError, "max_keys must be 0 or more, not -1"),
        ("max_keys", 1.5, TypeError, "max_keys must be a whole number, not 1.5"),
        ("max_keys", True, TypeError, "max_keys must be a whole number, not True"),
    ],
)
def test_a_wrong_limit_is_refused_by_name(
    field: str, wrong: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        Retention(**{field: wrong})
    assert str(caught.value).startswith(f"Retention.{message}")
