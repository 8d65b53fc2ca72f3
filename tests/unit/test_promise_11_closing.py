"""Promise 11: draining lets everything accepted finish; closing ends it; no handle ever hangs."""

import asyncio
import threading
from typing import Any

import pytest
from gates import Gate, ThreadGate, turns, value

from agentq import (
    Completed,
    Failed,
    InFlight,
    Job,
    JobFailed,
    JobLost,
    LaneConfig,
    Queue,
    QueueClosed,
    Queued,
    Retry,
    WouldDeadlock,
)
from agentq.queue import closing

TIGHT = {"normal": LaneConfig(capacity=1, permits=1)}
CLOSED = "lost: the queue closed before the job ended"


async def test_leaving_the_block_lets_everything_accepted_finish() -> None:
    async with Queue(TIGHT) as queue:
        for number in range(10):
            await queue.push(Job(f"k{number}", value, args=(number,)))
    assert [queue.state(f"k{number}") for number in range(10)] == [
        Completed(number) for number in range(10)
    ]


async def test_drain_waits_for_running_waiting_and_retrying_jobs() -> None:
    gate, thread = Gate(), ThreadGate()
    runs: list[int] = []

    async def flaky() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise ValueError

    async with Queue({"normal": LaneConfig(capacity=5, permits=1)}) as queue:
        retry = Retry(attempts=2, initial=0.02, jitter=0)
        await queue.push(Job("retried", flaky, retry=retry))
        await turns(3)
        await queue.push(Job("running", gate, args=(1,)))
        await queue.push(Job("waiting", value, args=(2,)))
        await queue.push(Job("thread", thread, args=(3,), lane="high"))
        await gate.started.wait()
        drained = asyncio.create_task(queue.drain())
        await turns(5)
        assert not drained.done()
        gate.opened.set()
        thread.opened.set()
        await drained
        states = [queue.state(key) for key in ("retried", "running", "waiting", "thread")]
        assert states == [Completed(output) for output in (None, 1, 2, 3)]


async def test_a_draining_queue_takes_no_more_work_from_outside() -> None:
    gate = Gate()
    async with Queue() as queue:
        await queue.push_and_wait(Job("done", value, args=(1,)))
        await queue.push(Job("running", gate))
        drained = asyncio.create_task(queue.drain())
        await turns(2)
        for key in ("new", "running", "done"):
            for verb in (queue.push, queue.push_and_wait):
                with pytest.raises(QueueClosed, match="the queue is draining and takes no more"):
                    await verb(Job(key, value))
        with pytest.raises(QueueClosed, match="the queue is draining and takes no more work"):
            await anext(queue.map([Job("new", value)]))
        assert queue.state("new") is None
        gate.opened.set()
        await drained


async def test_a_push_that_waits_for_room_is_turned_away_by_drain() -> None:
    gate = Gate()
    async with Queue(TIGHT) as queue:
        await queue.push(Job("running", gate))
        await queue.push(Job("waiting", value))
        push = asyncio.create_task(queue.push(Job("k", value)))
        joined_push = asyncio.create_task(queue.push(Job("joined", value, args=(7,))))
        await turns(2)
        joined = await queue.push(Job("joined", value))
        assert type(joined) is InFlight
        drained = asyncio.create_task(queue.drain())
        with pytest.raises(QueueClosed, match="stopped accepting while 'k' waited for room"):
            await push
        assert queue.state("k") is None
        gate.opened.set()
        await drained
        assert type(await joined_push) is Queued  # others have joined it, so it was accepted
        assert await joined.handle == Completed(7)


async def test_after_its_timeout_drain_cancels_what_runs_and_drops_what_waits() -> None:
    gate, thread = Gate(), ThreadGate()
    async with Queue(TIGHT) as queue:
        accepted = [
            await queue.push(Job("running", gate)),
            await queue.push(Job("waiting", value)),
            await queue.push(Job("thread", thread, lane="high")),
        ]
        retry = Retry(attempts=2, initial=3600, jitter=0)
        accepted.append(await queue.push(Job("retrying", len, args=(7,), retry=retry, lane="low")))
        await gate.started.wait()
        await thread.has_started()
        while not queue.stats()["low"].retrying:
            await asyncio.sleep(0.005)
        await queue.drain(timeout=0.02)
        for answer in accepted:
            assert type(answer) is Queued
            with pytest.raises(JobLost, match="the queue closed before the job ended"):
                await answer.handle
            with pytest.raises(JobLost, match=f"job '{answer.handle.key}' is lost"):
                await answer.handle.result()
            assert queue.state(answer.handle.key) == Failed(CLOSED)
        thread.opened.set()
        stats = queue.stats()
        assert (stats["normal"].running, stats["normal"].waiting) == (0, 0)
        assert stats["low"].retrying == 0


async def test_a_drain_that_need_not_wait_does_not_use_up_its_timeout() -> None:
    loop = asyncio.get_running_loop()
    async with Queue() as queue:
        await queue.push(Job("k", value, args=(1,)))
        started = loop.time()
        await queue.drain(timeout=3600)
        assert loop.time() - started < 5
        assert queue.state("k") == Completed(1)


async def test_drain_with_timeout_zero_ends_everything_now() -> None:
    async with Queue() as queue:
        accepted = await queue.push(Job("k", Gate()))
        assert type(accepted) is Queued
        await queue.drain(0)
        with pytest.raises(JobLost):
            await accepted.handle


@pytest.mark.parametrize(
    ("timeout", "error"), [(-1, ValueError), (float("nan"), ValueError), ("1", TypeError)]
)
async def test_a_wrong_timeout_is_refused_and_the_queue_stays_open(
    timeout: Any, error: type[Exception]
) -> None:
    async with Queue() as queue:
        with pytest.raises(error, match="timeout must be "):
            await queue.drain(timeout)
        assert await queue.push_and_wait(Job("k", value, args=(1,))) == 1


async def test_drains_may_be_repeated_and_be_many_at_once() -> None:
    gate = Gate()
    async with Queue() as queue:
        await queue.push(Job("k", gate, args=(1,)))
        drains = [asyncio.create_task(queue.drain()) for _ in range(3)]
        await turns(3)
        assert [drain.done() for drain in drains] == [False] * 3
        gate.opened.set()
        await asyncio.gather(*drains)
        await queue.drain()
        assert queue.state("k") == Completed(1)


async def test_close_ends_everything_at_once_and_may_be_repeated() -> None:
    gate = Gate()
    async with Queue(TIGHT) as queue:
        accepted = [
            await queue.push(Job("running", gate)),
            await queue.push(Job("waiting", value)),
        ]
        await gate.started.wait()
        for _ in range(3):
            queue.close()
        with pytest.raises(QueueClosed, match="the queue is closed and takes no more work"):
            await queue.push(Job("new", value))
        assert queue.state("waiting") == Failed(CLOSED)
        for answer in accepted:
            assert type(answer) is Queued
            with pytest.raises(JobLost, match="the queue closed before the job ended"):
                await answer.handle
        await queue.close()
        await queue.close()
        assert queue.stats()["normal"].running == 0


async def test_what_was_known_before_closing_is_known_after() -> None:
    async with Queue() as queue:
        await queue.push_and_wait(Job("k", value, args=(1,)))
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("f", len))
    assert queue.state("k") == Completed(1)
    assert isinstance(queue.state("f"), Failed)
    assert queue.state("unknown") is None
    assert queue.stats()["normal"].completed == 1
    assert queue.cancel("k") is False


async def test_handles_tell_the_outcome_after_the_queue_is_gone() -> None:
    async with Queue() as queue:
        accepted = await queue.push(Job("k", value, args=(1,)))
    assert type(accepted) is Queued
    assert await accepted.handle == Completed(1)
    assert await accepted.handle.result() == 1


@pytest.mark.parametrize("verb", ["push", "push_and_wait", "map"])
async def test_a_caller_that_waits_for_room_is_told_that_the_queue_closed(verb: str) -> None:
    async with Queue(TIGHT) as queue:
        await queue.push(Job("running", Gate()))
        await queue.push(Job("waiting", value))
        job = Job("k", value)

        async def call() -> Any:
            if verb == "map":
                return [outcome async for outcome in queue.map([job])]
            return await getattr(queue, verb)(job)

        waiting = asyncio.create_task(call())
        await turns(3)
        queue.close()
        with pytest.raises(QueueClosed):
            await waiting
        assert queue.state("k") is None


@pytest.mark.parametrize("kind", ["loop", "thread"])
async def test_close_can_be_called_from_inside_a_job(kind: str) -> None:
    closed = threading.Event()

    async def on_loop() -> str:
        queue.close()
        closed.set()
        await asyncio.Event().wait()
        return "never"

    def in_thread() -> str:
        queue.close()
        closed.set()
        return "late"

    async with Queue() as queue:
        accepted = await queue.push(Job("k", on_loop if kind == "loop" else in_thread))
        other = await queue.push(Job("other", Gate()))
        for answer in (accepted, other):
            assert type(answer) is Queued
            with pytest.raises(JobLost):
                await answer.handle
    assert await asyncio.to_thread(closed.wait, 10)


async def test_a_job_may_await_close_without_waiting_for_itself() -> None:
    async def job() -> str:
        await queue.close()
        return "last words"

    async with Queue() as queue:
        accepted = await queue.push(Job("k", job))
        assert type(accepted) is Queued
        await queue.drain()
    assert queue.state("k") == Completed("last words")


async def test_close_can_be_called_from_another_thread() -> None:
    gate = Gate()
    async with Queue() as queue:
        accepted = await queue.push(Job("k", gate))
        assert type(accepted) is Queued
        await gate.started.wait()
        thread = threading.Thread(target=queue.close)
        thread.start()
        with pytest.raises(JobLost):
            await accepted.handle
        thread.join(10)


async def test_close_can_be_called_from_on_change() -> None:
    holder: list[Queue] = []

    def on_change(change: object) -> None:
        holder[0].close()

    queue = Queue(on_change=on_change)
    holder.append(queue)
    async with queue:
        with pytest.raises((JobLost, QueueClosed)):
            await queue.push_and_wait(Job("k", Gate()))


async def test_a_job_cannot_drain_the_queue_it_runs_in() -> None:
    async def job() -> str:
        with pytest.raises(WouldDeadlock, match="a job cannot drain its own queue"):
            await queue.drain()
        return "went on"

    async with Queue() as queue:
        assert await queue.push_and_wait(Job("k", job)) == "went on"
        assert await queue.push_and_wait(Job("next", value, args=(1,))) == 1


async def test_cancelled_jobs_may_clean_up_and_closing_waits_for_them() -> None:
    cleaned: list[str] = []

    async def job() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await turns(5)
            cleaned.append("cleaned")

    async with Queue() as queue:
        await queue.push(Job("k", job))
        await turns(2)
        await queue.close()
        assert cleaned == ["cleaned"]


async def test_a_job_that_comes_to_an_end_of_its_own_while_closing_is_recorded_as_that() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "saved"
        return "never"

    async with Queue() as queue:
        accepted = await queue.push(Job("k", stubborn))
        assert type(accepted) is Queued
        await turns(2)
        queue.close()
        assert await accepted.handle == Completed("saved")


async def test_a_job_that_does_not_end_when_cancelled_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(closing, "CLEANUP_SECONDS", 0.05)
    release = asyncio.Event()
    # It ends by itself after a while, so that this fails and does not hang when it is not given up.
    asyncio.get_running_loop().call_later(5, release.set)

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with Queue() as queue:
        accepted = await queue.push(Job("k", stubborn))
        assert type(accepted) is Queued
        await turns(2)
        await queue.close()
        with pytest.raises(JobLost, match="it was cancelled and did not end"):
            await accepted.handle
        assert queue.state("k") == Failed("lost: it was cancelled and did not end")
    assert [record.getMessage() for record in caplog.records] == [
        "closed, but 1 jobs that were cancelled have not ended: 'k'"
    ]
    release.set()
    await turns(3)
