"""Promise 10: nothing is retried unless the job carries a `Retry`; no permit is held in between."""

import asyncio
import itertools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from gates import Gate, handle_of, turns, value, virtual_time

from agentq import (
    Completed,
    Failed,
    InFlight,
    Job,
    JobFailed,
    LaneConfig,
    Pending,
    Processing,
    Queue,
    Queued,
    Retry,
    Transition,
    current,
)

ONE_PERMIT = {"normal": LaneConfig(permits=1)}


class Flaky:
    """A job that fails in its first tries, in one of the two ways jobs run."""

    def __init__(
        self, failures: int, error: Callable[[], BaseException] = lambda: ValueError("no")
    ) -> None:
        self.failures = failures
        self.error = error
        self.runs = 0
        self.failed = asyncio.Event()

    async def on_loop(self) -> int:
        self.runs += 1
        if self.runs <= self.failures:
            self.failed.set()
            raise self.error()
        return self.runs

    def in_thread(self) -> int:
        self.runs += 1
        if self.runs <= self.failures:
            raise self.error()
        return self.runs


def at_once(attempts: int, **rest: Any) -> Retry:
    return Retry(attempts=attempts, initial=0, jitter=0, **rest)


@pytest.mark.parametrize(
    "error",
    [ValueError, TimeoutError, ConnectionError, SystemExit, asyncio.CancelledError, OSError],
)
async def test_without_a_retry_nothing_is_tried_again(error: type[BaseException]) -> None:
    flaky = Flaky(1, error)
    async with Queue() as queue:
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("k", flaky.on_loop))
        await turns(5)
    assert flaky.runs == 1


@pytest.mark.parametrize("kind", ["on_loop", "in_thread"])
@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_attempts_counts_tries_in_all(attempts: int, kind: str) -> None:
    flaky = Flaky(99)
    async with Queue() as queue:
        with pytest.raises(JobFailed, match="ValueError: no"):
            await queue.push_and_wait(Job("k", getattr(flaky, kind), retry=at_once(attempts)))
    assert flaky.runs == attempts


@pytest.mark.parametrize("kind", ["on_loop", "in_thread"])
async def test_the_first_success_ends_the_tries(kind: str) -> None:
    flaky = Flaky(2)
    async with Queue() as queue:
        assert await queue.push_and_wait(Job("k", getattr(flaky, kind), retry=at_once(9))) == 3
        await turns(5)
        assert queue.state("k") == Completed(3)
        assert queue.stats()["normal"].completed == 1
        assert queue.stats()["normal"].failed == 0
    assert flaky.runs == 3


async def test_the_last_failure_is_the_one_recorded() -> None:
    errors = iter([KeyError("first"), ValueError("second")])
    flaky = Flaky(9, lambda: next(errors))
    async with Queue() as queue:
        with pytest.raises(JobFailed, match="ValueError: second") as caught:
            await queue.push_and_wait(Job("k", flaky.on_loop, retry=at_once(2)))
        assert repr(caught.value.__cause__) == "ValueError('second')"


@pytest.mark.parametrize(
    ("on", "error", "runs"),
    [
        ((Exception,), ValueError, 3),
        ((ValueError,), ValueError, 3),
        (ValueError, ValueError, 3),
        ((KeyError, ValueError), ValueError, 3),
        ((KeyError,), ValueError, 1),
        ((), ValueError, 1),
        ((Exception,), SystemExit, 1),
        ((SystemExit,), SystemExit, 3),
        ((Exception,), asyncio.CancelledError, 1),
    ],
)
async def test_only_what_on_names_is_tried_again(
    on: Any, error: type[BaseException], runs: int
) -> None:
    flaky = Flaky(99, error)
    async with Queue() as queue:
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("k", flaky.on_loop, retry=at_once(3, on=on)))
    assert flaky.runs == runs


async def test_during_backoff_the_key_is_pending_and_no_permit_is_held() -> None:
    flaky = Flaky(1)
    async with Queue(ONE_PERMIT) as queue:
        retry = Retry(attempts=2, initial=0.05, jitter=0)
        accepted = await queue.push(Job("k", flaky.on_loop, retry=retry))
        assert type(accepted) is Queued
        await flaky.failed.wait()
        await turns(2)
        assert queue.state("k") == Pending()
        stats = queue.stats()["normal"]
        assert (stats.running, stats.waiting, stats.retrying) == (0, 0, 1)
        assert await queue.push_and_wait(Job("other", value, args=(7,))) == 7
        assert flaky.runs == 1
        assert await accepted.handle == Completed(2)
        assert queue.stats()["normal"].retrying == 0


async def test_joiners_before_and_during_backoff_stay_joined() -> None:
    flaky = Flaky(1)
    async with Queue() as queue:
        job = Job("k", flaky.on_loop, retry=Retry(attempts=2, initial=0.03, jitter=0))
        first = asyncio.create_task(queue.push_and_wait(job))
        await turns(1)
        early = asyncio.create_task(queue.push_and_wait(job))
        await flaky.failed.wait()
        await turns(3)
        late = await queue.push(job)
        assert type(late) is InFlight
        assert [first.done(), early.done()] == [False, False]
        assert list(await asyncio.gather(first, early, late.handle.result())) == [2, 2, 2]
    assert flaky.runs == 2


@virtual_time
async def test_the_waits_between_tries_are_as_long_as_the_policy_says() -> None:
    started: list[float] = []

    async def fail() -> None:
        started.append(asyncio.get_running_loop().time())
        raise ValueError

    async with Queue() as queue:
        retry = Retry(attempts=5, initial=10, factor=3, maximum=100, jitter=0)
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("k", fail, retry=retry))
    gaps = [later - earlier for earlier, later in itertools.pairwise(started)]
    assert gaps == [10, 30, 90, 100]


@virtual_time
async def test_jitter_shortens_the_waits_by_its_part_at_most() -> None:
    started: list[float] = []

    async def fail() -> None:
        started.append(asyncio.get_running_loop().time())
        raise ValueError

    async with Queue() as queue:
        retry = Retry(attempts=40, initial=100, maximum=100, jitter=0.5)
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("k", fail, retry=retry))
    gaps = [later - earlier for earlier, later in itertools.pairwise(started)]
    assert 50 <= min(gaps) < max(gaps) <= 100


@virtual_time
async def test_cancelled_during_backoff_it_has_failed_at_once_and_is_not_tried_again() -> None:
    flaky = Flaky(1)
    async with Queue(ONE_PERMIT) as queue:
        retry = Retry(attempts=2, initial=60, jitter=0)
        handle = await handle_of(queue, Job("k", flaky.on_loop, retry=retry))
        await asyncio.sleep(30)
        assert queue.state("k") == Pending()
        assert queue.cancel("k") is True
        assert queue.state("k") == Failed("cancelled")
        assert await handle == Failed("cancelled")
        assert queue.stats()["normal"].retrying == 0
        await asyncio.sleep(60)  # past the moment of the try that must not come
        stats = queue.stats()["normal"]
        assert (stats.running, stats.waiting, stats.retrying, stats.failed) == (0, 0, 0, 1)
    assert flaky.runs == 1


@pytest.mark.parametrize("on", [(Exception,), (BaseException,)])
async def test_cancelled_while_it_runs_it_is_not_tried_again(on: Any) -> None:
    gate = Gate()
    async with Queue() as queue:
        accepted = await queue.push(Job("k", gate, retry=at_once(5, on=on)))
        assert type(accepted) is Queued
        await gate.started.wait()
        assert queue.cancel("k") is True
        assert await accepted.handle == Failed("cancelled")
        await turns(5)
    assert gate.runs == 1


async def test_a_failure_after_it_was_cancelled_is_not_tried_again_either() -> None:
    gate = Gate()

    async def angry() -> None:
        try:
            await gate()
        finally:
            raise ValueError("while cleaning up")

    async with Queue() as queue:
        accepted = await queue.push(Job("k", angry, retry=at_once(5)))
        assert type(accepted) is Queued
        await gate.started.wait()
        queue.cancel("k")
        assert await accepted.handle == Failed("ValueError: while cleaning up")
        await turns(5)
    assert gate.runs == 1


async def test_a_try_again_lines_up_behind_those_that_wait() -> None:
    order: list[str] = []
    flaky = Flaky(1)

    async def first() -> None:
        order.append("first")
        await flaky.on_loop()

    async def note(name: str) -> None:
        order.append(name)

    async with Queue(ONE_PERMIT) as queue:
        await queue.push(Job("first", first, retry=at_once(2)))
        for name in ("a", "b"):
            await queue.push(Job(name, note, args=(name,)))
    assert order == ["first", "a", "b", "first"]


async def test_the_attempt_is_counted_and_the_states_are_told() -> None:
    attempts: list[int] = []
    changes: list[Transition] = []

    async def fail() -> None:
        attempts.append(current().attempt)
        raise ValueError("no")

    async with Queue(on_change=changes.append) as queue:
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("k", fail, retry=at_once(3)))
        with pytest.raises(JobFailed):  # a fresh push has a fresh budget
            await queue.push_and_wait(Job("k", fail, retry=at_once(2)))
    assert attempts == [1, 2, 3, 1, 2]
    one_try = [Pending(), Processing()]
    failed = Failed("ValueError: no")
    assert [change.after for change in changes] == [
        *one_try * 3,
        failed,
        *one_try * 2,
        failed,
    ]


async def test_each_try_runs_in_a_fresh_copy_of_the_pushers_context() -> None:
    name: ContextVar[str] = ContextVar("name", default="nobody")
    seen: list[str] = []

    async def fail() -> None:
        seen.append(name.get())
        name.set("changed by the job")
        raise ValueError

    async with Queue() as queue:
        name.set("pusher")
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("k", fail, retry=at_once(3)))
    assert seen == ["pusher"] * 3
