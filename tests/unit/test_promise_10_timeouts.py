"""Promise 10: `timeout` ends the run, counts as a failed try, and frees the permit."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from gates import Gate, ThreadGate, handle_of, turns, value, virtual_time

from agentq import (
    Completed,
    Failed,
    Job,
    JobFailed,
    LaneConfig,
    Pending,
    Queue,
    Queued,
    Retry,
)

ONE_PERMIT = {"normal": LaneConfig(permits=1)}


@pytest.mark.parametrize(
    ("timeout", "reason"),
    [
        (0.02, "timed out after 0.02 s"),
        (timedelta(milliseconds=30), "timed out after 0.03 s"),
    ],
)
async def test_a_timeout_fails_the_job_and_says_after_how_long(timeout: Any, reason: str) -> None:
    gate = Gate()
    async with Queue(ONE_PERMIT) as queue:
        with pytest.raises(JobFailed) as caught:
            await queue.push_and_wait(Job("k", gate, timeout=timeout))
        assert caught.value.reason == reason
        assert repr(caught.value.__cause__) == f"TimeoutError('{reason}')"
        assert queue.state("k") == Failed(reason)


async def test_the_job_is_cancelled_and_may_clean_up_and_the_permit_is_free_again() -> None:
    seen: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async with Queue(ONE_PERMIT) as queue:
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("k", slow, timeout=0.01))
        assert await queue.push_and_wait(Job("next", value, args=(1,))) == 1
    assert seen == ["cancelled"]


@pytest.mark.parametrize("kind", ["output", "error"])
async def test_whatever_a_timed_out_coroutine_still_does_changes_nothing(kind: str) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if kind == "error":
                raise ValueError("late") from None
        return "late"

    async with Queue(ONE_PERMIT) as queue:
        with pytest.raises(JobFailed, match=r"timed out after 0\.01 s"):
            await queue.push_and_wait(Job("k", stubborn, timeout=0.01))
        await queue.push_and_wait(Job("next", value))
        assert queue.state("k") == Failed("timed out after 0.01 s")
        stats = queue.stats()["normal"]
        assert (stats.failed, stats.completed, stats.running) == (1, 1, 0)


async def test_a_thread_keeps_its_permit_until_it_ends_and_its_late_result_is_discarded() -> None:
    thread, gate = ThreadGate(), Gate()
    async with Queue(ONE_PERMIT) as queue:
        accepted = await queue.push(Job("k", thread, args=("late",), timeout=0.02))
        assert type(accepted) is Queued
        await queue.push(Job("next", gate))
        assert await accepted.handle == Failed("timed out after 0.02 s")
        await turns(10)
        stats = queue.stats()["normal"]
        assert (stats.running, stats.waiting, stats.failed, gate.runs) == (1, 1, 1, 0)
        thread.opened.set()
        await gate.started.wait()
        assert queue.state("k") == Failed("timed out after 0.02 s")
        gate.opened.set()
        assert await accepted.handle == Failed("timed out after 0.02 s")
    assert queue.stats()["normal"].completed == 1


@pytest.mark.parametrize("late", ["a coroutine", "an error"])
async def test_nothing_of_a_late_thread_is_left_unawaited_or_unretrieved(late: str) -> None:
    thread = ThreadGate()
    ended = threading.Event()

    def job() -> Any:
        thread()
        ended.set()
        if late == "an error":
            raise ValueError("late")
        return value("late")

    async with Queue(ONE_PERMIT) as queue:
        with pytest.raises(JobFailed, match="timed out"):
            await queue.push_and_wait(Job("k", job, timeout=0.01))
        thread.opened.set()
        assert await asyncio.to_thread(ended.wait, 10)
        await queue.push_and_wait(Job("next", value))
        assert queue.state("k") == Failed("timed out after 0.01 s")


async def test_an_awaitable_that_a_thread_returned_is_timed_out_as_well() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async with Queue(ONE_PERMIT) as queue:
        with pytest.raises(JobFailed, match=r"timed out after 0\.02 s"):
            await queue.push_and_wait(Job("k", lambda: never(), timeout=0.02))
        assert await queue.push_and_wait(Job("next", value, args=(1,))) == 1


@virtual_time
async def test_a_timeout_counts_as_a_failed_try() -> None:
    runs: list[int] = []

    async def slow_at_first() -> str:
        runs.append(len(runs))
        if len(runs) < 3:
            await asyncio.Event().wait()
        return "third"

    async with Queue(ONE_PERMIT) as queue:
        retry = Retry(attempts=3, initial=0, on=(TimeoutError,))
        job = Job("k", slow_at_first, timeout=60, retry=retry)
        assert await queue.push_and_wait(job) == "third"
    assert runs == [0, 1, 2]


async def test_timeouts_use_up_the_attempts() -> None:
    gate = Gate()
    async with Queue(ONE_PERMIT) as queue:
        job = Job("k", gate, timeout=0.01, retry=Retry(attempts=2, initial=0))
        with pytest.raises(JobFailed, match=r"timed out after 0\.01 s"):
            await queue.push_and_wait(job)
    assert gate.runs == 2


async def test_a_timeout_that_on_does_not_name_is_not_tried_again() -> None:
    gate = Gate()
    async with Queue(ONE_PERMIT) as queue:
        retry = Retry(attempts=5, initial=0, on=(ValueError,))
        with pytest.raises(JobFailed, match="timed out"):
            await queue.push_and_wait(Job("k", gate, timeout=0.01, retry=retry))
    assert gate.runs == 1


async def test_the_next_try_of_a_timed_out_thread_waits_until_the_thread_has_ended() -> None:
    lock = threading.Lock()
    gate = threading.Event()
    now = most = runs = 0

    def slow_at_first() -> int:
        nonlocal now, most, runs
        with lock:
            runs += 1
            now += 1
            most = max(most, now)
            run = runs
        if run == 1:
            assert gate.wait(10)
        with lock:
            now -= 1
        return run

    async with Queue({"normal": LaneConfig(permits=3)}) as queue:
        job = Job("k", slow_at_first, timeout=0.4, retry=Retry(attempts=2, initial=0))
        accepted = await queue.push(job)
        assert type(accepted) is Queued
        while queue.state("k") != Pending():
            await asyncio.sleep(0.005)
        await turns(10)
        assert runs == 1
        gate.set()
        assert await accepted.handle == Completed(2)
    assert (runs, most) == (2, 1)


@virtual_time
async def test_every_try_has_the_whole_timeout() -> None:
    started: list[float] = []

    async def nearly() -> None:
        started.append(asyncio.get_running_loop().time())
        await asyncio.sleep(59)
        if len(started) < 3:
            raise ValueError

    async with Queue() as queue:
        retry = Retry(attempts=3, initial=0, jitter=0)
        await queue.push_and_wait(Job("k", nearly, timeout=60, retry=retry))
    assert [at - started[0] for at in started] == [0, 59, 118]


@virtual_time
async def test_waiting_for_a_permit_does_not_count() -> None:
    gate = Gate()
    async with Queue(ONE_PERMIT) as queue:
        await queue.push(Job("first", gate))
        handle = await handle_of(queue, Job("k", asyncio.sleep, args=(50, 7), timeout=60))
        await asyncio.sleep(3600)
        gate.opened.set()
        assert await handle == Completed(7)


@virtual_time
async def test_a_job_in_time_is_not_disturbed() -> None:
    async with Queue() as queue:
        for number in range(100):
            job = Job(f"k{number}", asyncio.sleep, args=(number % 60, number), timeout=60)
            assert await queue.push_and_wait(job) == number
        gate = Gate()
        await queue.push(Job("later", gate))
        await asyncio.sleep(3600)
        stats = queue.stats()["normal"]
        assert (stats.completed, stats.failed, stats.running) == (100, 0, 1)
        gate.opened.set()


@virtual_time
async def test_many_timeouts_pass_each_at_its_own_time() -> None:
    loop = asyncio.get_running_loop()
    ended: list[tuple[str, float]] = []

    async def slow(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append((name, loop.time() - begun))

    timeouts = [50, 10, 40, 20.5, 30, 0.25]
    async with Queue({"normal": LaneConfig(permits=10)}) as queue:
        begun = loop.time()
        await queue.push(Job("long", slow, args=("long",), timeout=7200))
        jobs = [
            Job(f"k{timeout}", slow, args=(f"k{timeout}",), timeout=timeout) for timeout in timeouts
        ]
        waits = (queue.push_and_wait(job) for job in jobs)
        errors = await asyncio.gather(*waits, return_exceptions=True)
        assert [getattr(error, "reason", "") for error in errors] == [
            f"timed out after {timeout:g} s" for timeout in timeouts
        ]
        assert ended == [(f"k{timeout}", timeout) for timeout in sorted(timeouts)]
        await asyncio.sleep(3600)
        queue.cancel("long")
    assert ended[-1] == ("long", 3650)


@virtual_time
async def test_a_job_cancelled_by_hand_before_its_timeout_was_cancelled() -> None:
    gate = Gate()
    async with Queue() as queue:
        handle = await handle_of(queue, Job("k", gate, timeout=60))
        await gate.started.wait()
        queue.cancel("k")
        assert await handle == Failed("cancelled")
        await asyncio.sleep(120)
        assert queue.state("k") == Failed("cancelled")
        assert queue.stats()["normal"].failed == 1


@virtual_time
async def test_met_timeouts_are_forgotten_and_later_ones_still_pass() -> None:
    async with Queue({"normal": LaneConfig(permits=300)}) as queue:
        jobs = [Job(f"k{number}", value, timeout=7200 + number) for number in range(200)]
        stuck = asyncio.ensure_future(queue.push_and_wait(Job("stuck", Gate(), timeout=7300.5)))
        await asyncio.gather(*(queue.push_and_wait(job) for job in jobs))
        started = asyncio.get_running_loop().time()
        with pytest.raises(JobFailed, match=r"timed out after 7300\.5 s"):
            await stuck
        assert 7300 <= asyncio.get_running_loop().time() - started <= 7300.5
