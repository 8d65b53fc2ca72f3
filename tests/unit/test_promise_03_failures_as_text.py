"""Promise 3: a failure is kept as text; the state map keeps no exception or frame alive."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from gates import turns

from agentq import Failed, Job, JobFailed, Queue, Queued, Retry, Transition


class Big:
    """Something in a frame that should not stay alive."""


class OddError(Exception):
    """An exception that can be weakly referenced."""


async def on_loop(seen: list[Any], argument: object = None) -> None:
    big = Big()
    error = OddError("no")
    seen += [weakref.ref(big), weakref.ref(error)]
    raise error


def in_thread(seen: list[Any]) -> None:
    big = Big()
    error = OddError("no")
    seen += [weakref.ref(big), weakref.ref(error)]
    raise error


async def with_cause(seen: list[Any]) -> None:
    try:
        await on_loop(seen)
    except OddError as error:
        raise OddError("no") from error


async def gone(references: list[Any]) -> None:
    """Wait until nothing keeps what is referred to alive; threads may take a moment to let go."""
    async with asyncio.timeout(5):
        while any(reference() is not None for reference in references):
            await asyncio.sleep(0.005)
            gc.collect()


@pytest.mark.parametrize("waited", ["by nobody", "by its handle", "by push_and_wait"])
@pytest.mark.parametrize("func", [on_loop, in_thread, with_cause])
async def test_the_state_map_keeps_no_exception_and_no_frame_alive(
    func: Callable[..., Any], waited: str
) -> None:
    seen: list[Any] = []
    failed = asyncio.Event()

    def on_change(change: Transition) -> None:
        if isinstance(change.after, Failed):
            failed.set()

    async with Queue(on_change=on_change) as queue:
        job = Job("k", func, args=(seen,))
        if waited == "by push_and_wait":
            with pytest.raises(JobFailed):
                await queue.push_and_wait(job)
        else:
            accepted = await queue.push(job)
            assert type(accepted) is Queued
            if waited == "by its handle":
                assert await accepted.handle == Failed("OddError: no")
            del accepted
            await failed.wait()
        del job
        assert len(seen) == 2
        await gone(seen)
        assert queue.state("k") == Failed("OddError: no")


@pytest.mark.parametrize("func", [on_loop, in_thread])
async def test_tries_that_failed_before_leave_nothing_alive_either(
    func: Callable[..., Any],
) -> None:
    seen: list[Any] = []
    async with Queue() as queue:
        job = Job("k", func, args=(seen,), retry=Retry(attempts=3, initial=0))
        with pytest.raises(JobFailed):
            await queue.push_and_wait(job)
        assert len(seen) == 6
        await gone(seen)


@pytest.mark.parametrize("func", [on_loop, in_thread])
async def test_a_timeout_that_was_not_needed_keeps_nothing_alive(func: Callable[..., Any]) -> None:
    seen: list[Any] = []
    async with Queue() as queue:
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("k", func, args=(seen,), timeout=3600))
        assert len(seen) == 2
        await gone(seen)


async def test_a_try_that_will_not_come_keeps_nothing_alive() -> None:
    seen: list[Any] = []
    async with Queue() as queue:
        retry = Retry(attempts=2, initial=3600, maximum=3600)
        await queue.push(Job("k", on_loop, args=(seen,), retry=retry))
        while not queue.stats()["normal"].retrying:
            await asyncio.sleep(0)
        argument = Big()
        await queue.push(Job("other", on_loop, args=(seen, argument), retry=retry))
        seen.append(weakref.ref(argument))
        del argument
        while queue.stats()["normal"].retrying + queue.stats()["normal"].failed < 2:
            await asyncio.sleep(0)
        assert [queue.cancel("k"), queue.cancel("other")] == [True, True]
        await gone(seen)


async def test_a_live_waiter_gets_the_failure_from_the_original_exception() -> None:
    error = OddError("no")

    async def fail() -> None:
        await turns(2)
        raise error

    async with Queue() as queue:
        job = Job("k", fail)
        results = await asyncio.gather(
            queue.push_and_wait(job), queue.push_and_wait(job), return_exceptions=True
        )
        assert [type(result) for result in results] == [JobFailed, JobFailed]
        assert [result.__cause__ for result in results] == [error, error]


@pytest.mark.parametrize("func", [on_loop, in_thread])
async def test_the_traceback_begins_in_the_jobs_own_frame(func: Callable[..., Any]) -> None:
    async with Queue() as queue:
        with pytest.raises(JobFailed) as caught:
            await queue.push_and_wait(Job("k", func, args=([],)))
    cause = caught.value.__cause__
    assert cause is not None
    assert cause.__traceback__ is not None
    assert cause.__traceback__.tb_frame.f_code is func.__code__


async def test_each_waiter_has_an_error_of_its_own() -> None:
    async def fail() -> None:
        await turns(2)
        raise OddError("no")

    async with Queue() as queue:
        errors = await asyncio.gather(
            *(queue.push_and_wait(Job("k", fail)) for _ in range(3)), return_exceptions=True
        )
    assert len({id(error) for error in errors}) == 3


async def test_a_late_waiter_is_told_the_reason() -> None:
    async with Queue() as queue:
        accepted = await queue.push(Job("k", on_loop, args=([],)))
        assert type(accepted) is Queued
        assert await accepted.handle == Failed("OddError: no")
        with pytest.raises(JobFailed, match=r"^job 'k' failed: OddError: no$"):
            await accepted.handle.result()
        assert await accepted.handle == Failed("OddError: no")


@pytest.mark.parametrize("unit", ["x", "é", "\0"])
async def test_a_huge_message_is_kept_as_ten_thousand_bytes(unit: str) -> None:
    async def fail() -> None:
        raise ValueError(unit * 5_000_000)

    async with Queue() as queue:
        accepted = await queue.push(Job("k", fail))
        assert type(accepted) is Queued
        outcome = await accepted.handle
        assert isinstance(outcome, Failed)
        assert 9_990 <= len(outcome.reason.encode()) <= 10_000
        assert outcome.reason.startswith("ValueError: ")
        assert outcome.reason.endswith(" bytes in all]")
        assert queue.state("k") == outcome


async def test_a_completed_job_keeps_nothing_of_its_run_alive() -> None:
    seen: list[Any] = []

    async def run(argument: Big) -> str:
        local = Big()
        seen.append(weakref.ref(local))
        return "done"

    argument = Big()
    seen.append(weakref.ref(argument))
    async with Queue() as queue:
        assert await queue.push_and_wait(Job("k", run, args=(argument,))) == "done"
        del argument
        assert len(seen) == 2
        await gone(seen)
