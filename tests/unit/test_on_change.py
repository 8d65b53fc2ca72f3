"""`on_change` sees every change of state, in order, after it happened, and can harm nothing."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest
from gates import Gate, ThreadGate, turns, value

from agentq import (
    Completed,
    Failed,
    Job,
    JobFailed,
    LaneConfig,
    Pending,
    Processing,
    Queue,
    QueueClosed,
    Queued,
    Retry,
    State,
    Transition,
)
from agentq.core.lifecycle import TRANSITIONS


class Seen:
    """Notes every change."""

    def __init__(self) -> None:
        self.changes: list[Transition] = []

    def __call__(self, change: Transition) -> None:
        self.changes.append(change)

    def of(self, key: str) -> list[tuple[State | None, State | None]]:
        return [(change.before, change.after) for change in self.changes if change.key == key]


START = [(None, Pending()), (Pending(), Processing())]


@pytest.mark.parametrize("func", [value, len])
async def test_a_completed_job_is_told_in_three_steps(func: Any) -> None:
    seen = Seen()
    async with Queue(on_change=seen) as queue:
        output = await queue.push_and_wait(Job("k", func, args=("abc",), lane="high"))
    assert seen.changes == [
        Transition("k", "high", None, Pending()),
        Transition("k", "high", Pending(), Processing()),
        Transition("k", "high", Processing(), Completed(output)),
    ]


async def test_a_failed_job_and_its_next_claim_are_told() -> None:
    seen = Seen()

    async def fail() -> None:
        raise ValueError("no")

    failed = Failed("ValueError: no")
    async with Queue(on_change=seen) as queue:
        for _ in range(2):
            with pytest.raises(JobFailed):
                await queue.push_and_wait(Job("k", fail))
    assert seen.of("k") == [
        *START,
        (Processing(), failed),
        (failed, Pending()),
        (Pending(), Processing()),
        (Processing(), failed),
    ]


async def test_tries_cancellations_withdrawals_and_losses_are_told() -> None:
    seen, gate = Seen(), Gate()
    runs: list[int] = []

    async def flaky() -> int:
        runs.append(1)
        if len(runs) == 1:
            raise ValueError
        return 2

    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}, on_change=seen) as queue:
        retry = Retry(attempts=2, initial=0, jitter=0)
        await queue.push_and_wait(Job("retried", flaky, retry=retry))
        await queue.push(Job("lost", gate))
        await queue.push(Job("cancelled", value))
        push = asyncio.create_task(queue.push(Job("withdrawn", value)))
        await turns(2)
        push.cancel()
        await turns(2)
        queue.cancel("cancelled")
        await queue.close()
    assert seen.of("retried") == [
        *START,
        (Processing(), Pending()),
        (Pending(), Processing()),
        (Processing(), Completed(2)),
    ]
    assert seen.of("cancelled") == [(None, Pending()), (Pending(), Failed("cancelled"))]
    assert seen.of("withdrawn") == [(None, Pending()), (Pending(), None)]
    closed = Failed("lost: the queue closed before the job ended")
    assert seen.of("lost") == [*START, (Processing(), closed)]


async def test_joined_and_cached_pushes_change_nothing() -> None:
    seen, gate = Seen(), Gate()
    async with Queue(on_change=seen) as queue:
        await queue.push(Job("k", gate))
        await queue.push(Job("k", gate))
        gate.opened.set()
        await queue.push_and_wait(Job("k", gate))
        await queue.push(Job("k", gate))
    assert len(seen.changes) == 3


async def test_the_changes_of_a_key_form_a_chain_of_allowed_steps() -> None:
    seen = Seen()

    async def work(number: int) -> int:
        await turns(number % 4)
        if number % 5 == 0:
            raise ValueError
        return number

    async with Queue({"normal": LaneConfig(capacity=2, permits=2)}, on_change=seen) as queue:
        pushes = [
            asyncio.create_task(
                queue.push_and_wait(
                    Job(f"k{number % 20}", work, args=(number,), retry=Retry(2, initial=0))
                )
            )
            for number in range(80)
        ]
        for number, push in enumerate(pushes):
            await turns(1)
            if number % 7 == 0:
                push.cancel()
            if number % 11 == 0:
                queue.cancel(f"k{number % 20}")
        await asyncio.gather(*pushes, return_exceptions=True)
        await queue.drain()
        for number in range(20):
            steps = seen.of(f"k{number}")
            state: State | None = None
            for before, after in steps:
                assert before == state
                assert (type(before), type(after)) in TRANSITIONS
                state = after
            assert state == queue.state(f"k{number}")


async def test_the_new_state_is_there_when_it_is_told() -> None:
    agreed: list[bool] = []

    def on_change(change: Transition) -> None:
        agreed.append(queue.state(change.key) == change.after)

    async with Queue(on_change=on_change) as queue:
        gate = Gate()
        await queue.push(Job("k", gate))
        await gate.started.wait()
        gate.opened.set()
    # The first two steps of a job that finds a permit happen in one moment, and are told after it.
    assert agreed == [False, True, True]


async def test_it_is_told_before_those_who_wait_go_on() -> None:
    seen = Seen()
    async with Queue(on_change=seen) as queue:
        await queue.push_and_wait(Job("k", value, args=(1,)))
        assert seen.of("k")[-1] == (Processing(), Completed(1))


async def test_what_is_cancelled_withdrawn_or_dropped_is_told_at_once() -> None:
    seen = Seen()
    lost = Failed("lost: the queue closed before the job ended")
    async with Queue({"normal": LaneConfig(capacity=2, permits=1)}, on_change=seen) as queue:
        await queue.push(Job("runs", Gate()))
        await queue.push(Job("cancelled", value))
        await queue.push(Job("dropped", value))
        push = asyncio.create_task(queue.push(Job("withdrawn", value)))
        await turns(2)
        push.cancel()
        await asyncio.wait((push,))
        assert seen.changes[-1] == Transition("withdrawn", "normal", Pending(), None)
        queue.cancel("cancelled")
        assert seen.changes[-1] == Transition("cancelled", "normal", Pending(), Failed("cancelled"))
        queue.close()
        assert seen.changes[-1] == Transition("dropped", "normal", Pending(), lost)


async def test_a_push_that_a_draining_queue_turns_away_is_told_at_once() -> None:
    seen, gate = Seen(), Gate()
    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}, on_change=seen) as queue:
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", value))
        push = asyncio.create_task(queue.push(Job("turned away", value)))
        await turns(2)
        drained = asyncio.create_task(queue.drain())
        with pytest.raises(QueueClosed):
            await push
        assert seen.changes[-1] == Transition("turned away", "normal", Pending(), None)
        gate.opened.set()
        await drained


async def raises() -> None:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("job", "outcome"),
    [
        (Job("k", raises), Failed("ValueError: no")),
        (Job("k", raises, retry=Retry(attempts=2, initial=0)), Failed("ValueError: no")),
        (Job("k", int, args=("x",)), Failed("ValueError: invalid literal for int() with base 1")),
        (Job("k", asyncio.Event().wait, timeout=0.01), Failed("timed out after 0.01 s")),
    ],
)
async def test_a_failure_is_told_before_those_who_wait_go_on(job: Job, outcome: Failed) -> None:
    seen = Seen()
    async with Queue(on_change=seen) as queue:
        with pytest.raises(JobFailed):
            await queue.push_and_wait(job)
        before, after = seen.of("k")[-1]
        assert before == Processing()
        assert isinstance(after, Failed)
        assert after.reason.startswith(outcome.reason)


async def ends_well(queue: Queue) -> None:
    gate = Gate()
    await queue.push(Job("first", gate))
    gate.opened.set()


async def ends_badly(queue: Queue) -> None:
    await queue.push(Job("first", raises))


async def is_timed_out(queue: Queue) -> None:
    await queue.push(Job("first", asyncio.Event().wait, timeout=0.01))


async def is_cancelled(queue: Queue) -> None:
    await queue.push(Job("first", asyncio.Event().wait))
    asyncio.get_running_loop().call_later(0.01, queue.cancel, "first")


async def is_a_thread_that_was_given_up(queue: Queue) -> None:
    thread = ThreadGate()
    await queue.push(Job("first", thread))
    await thread.has_started()
    asyncio.get_running_loop().call_later(0.01, queue.cancel, "first")
    asyncio.get_running_loop().call_later(0.03, thread.opened.set)


async def lends_its_permit(queue: Queue) -> None:
    async def parent() -> None:
        await asyncio.sleep(0.01)
        await queue.push_and_wait(Job("k", raises))

    await queue.push(Job("first", parent))


async def is_not_there(queue: Queue) -> None:
    return


@pytest.mark.parametrize(
    "the_job_before",
    [
        is_not_there,
        ends_well,
        ends_badly,
        is_timed_out,
        is_cancelled,
        is_a_thread_that_was_given_up,
        lends_its_permit,
    ],
)
@pytest.mark.parametrize("pushed", ["here", "elsewhere"])
async def test_a_job_is_told_to_run_before_its_code_does(
    the_job_before: Callable[[Queue], Awaitable[None]], pushed: str
) -> None:
    seen = Seen()
    told: list[Any] = []

    async def look() -> None:
        told.extend(seen.of("k"))

    async with Queue({"normal": LaneConfig(permits=1)}, on_change=seen) as queue:
        await the_job_before(queue)
        if pushed == "here":
            await queue.push(Job("k", look))
        else:
            await asyncio.to_thread(asyncio.run, queue.push(Job("k", look)))
    assert told == START


async def test_a_try_again_is_told_to_run_before_its_code_does() -> None:
    seen = Seen()
    told: list[Any] = []

    async def look() -> None:
        told.append(seen.of("k")[-1])
        raise ValueError

    async with Queue(on_change=seen) as queue:
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("k", look, retry=Retry(attempts=3, initial=0.005)))
    assert told == [(Pending(), Processing())] * 3


async def test_it_may_push_and_cancel_and_close_and_is_told_in_order() -> None:
    seen = Seen()
    pushes: list[Any] = []

    def on_change(change: Transition) -> None:
        seen(change)
        if change == Transition("first", "normal", Processing(), Completed(1)):
            pushes.append(asyncio.ensure_future(queue.push(Job("second", value, args=(2,)))))
        if change.key == "second" and change.after == Pending():
            queue.cancel("second")

    async with Queue(on_change=on_change) as queue:
        await queue.push_and_wait(Job("first", value, args=(1,)))
        accepted = await pushes[0]
        assert type(accepted) is Queued
        assert await accepted.handle == Failed("cancelled")
    assert [type(after).__name__ for _, after in seen.of("second")] == [
        "Pending",
        "Processing",
        "Failed",
    ]
    assert seen.of("second")[-1] == (Processing(), Failed("cancelled"))


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), asyncio.CancelledError()])
async def test_an_exception_in_it_is_logged_and_harms_nothing(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Transition] = []

    def on_change(change: Transition) -> None:
        told.append(change)
        raise error

    async with Queue({"normal": LaneConfig(permits=1)}, on_change=on_change) as queue:
        for number in range(3):
            assert await queue.push_and_wait(Job(f"k{number}", value, args=(number,))) == number
        assert await queue.push_and_wait(Job("t", len, args=("ab",))) == 2
    assert len(told) == 12
    records = [record for record in caplog.records if record.name == "agentq"]
    assert len(records) == 12
    first = records[0]
    assert (first.levelname, first.getMessage()) == (
        "ERROR",
        f"on_change failed for {told[0]!r}; the job is not affected",
    )
    assert first.exc_info is not None
    assert first.exc_info[1] is error


async def test_it_is_called_on_the_home_loop_also_for_changes_made_elsewhere() -> None:
    threads: set[threading.Thread] = set()
    seen = Seen()

    def on_change(change: Transition) -> None:
        threads.add(threading.current_thread())
        seen(change)

    async with Queue({"normal": LaneConfig(permits=1)}, on_change=on_change) as queue:
        thread = ThreadGate()
        await queue.push(Job("t", thread))
        await thread.has_started()
        await queue.push(Job("waits", value))
        await asyncio.to_thread(queue.cancel, "waits")
        await asyncio.to_thread(asyncio.run, queue.push(Job("away", value)))
        thread.opened.set()
    assert threads == {threading.current_thread()}
    assert seen.of("waits") == [(None, Pending()), (Pending(), Failed("cancelled"))]
    assert seen.of("away") == [*START, (Processing(), Completed(None))]


async def test_it_does_not_see_the_context_of_whoever_made_the_change() -> None:
    user: ContextVar[str] = ContextVar("user", default="nobody")
    seen: list[str] = []

    async with Queue(on_change=lambda _: seen.append(user.get())) as queue:
        user.set("somebody")
        await queue.push_and_wait(Job("k", value))
    assert seen == ["nobody"] * 3
