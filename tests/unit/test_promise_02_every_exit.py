"""Promise 2: every job reaches a terminal state and every waiter is told, on every exit path."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from gates import Gate, ThreadGate, handle_of, turns, value

from agentq import (
    Completed,
    Failed,
    Job,
    JobFailed,
    JobHandle,
    JobLost,
    LaneConfig,
    Pending,
    Processing,
    Queue,
    Queued,
    Retry,
    State,
    Transition,
)


class OddError(BaseException):
    pass


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


EXITS: list[tuple[Callable[[], BaseException], str]] = [
    (lambda: ValueError("no"), "ValueError: no"),
    (lambda: asyncio.CancelledError(), "CancelledError"),
    (lambda: asyncio.CancelledError("mine"), "CancelledError: mine"),
    (lambda: SystemExit(0), "SystemExit: 0"),
    (lambda: SystemExit("text"), "SystemExit: text"),
    (lambda: GeneratorExit(), "GeneratorExit"),
    (lambda: OddError("odd"), "OddError: odd"),
    (lambda: UnprintableError(), "UnprintableError: <no message: its __str__ raised RuntimeError>"),
    (lambda: StopIteration(7), "StopIteration: 7"),
    (lambda: StopAsyncIteration(7), "StopAsyncIteration: 7"),
    (lambda: TimeoutError(), "TimeoutError"),
    (lambda: BaseExceptionGroup("g", [OddError("odd")]), None),  # type: ignore[list-item]
]
REASON_OF_GROUP = "BaseExceptionGroup: g (1 sub-exception): OddError: odd"
ONE_PERMIT = {"normal": LaneConfig(permits=1)}


def failing(make: Callable[[], BaseException], kind: str) -> Callable[[], Any]:
    """A job of this kind that takes a moment and then raises."""

    async def on_loop() -> None:
        await turns(2)
        raise make()

    def in_thread() -> None:
        raise make()

    def awaited_from_thread() -> Any:
        return on_loop()

    return {"loop": on_loop, "thread": in_thread, "awaitable": awaited_from_thread}[kind]


@pytest.mark.parametrize("kind", ["loop", "thread", "awaitable"])
@pytest.mark.parametrize(("make", "reason"), EXITS, ids=lambda value: str(value)[:24])
async def test_whatever_a_job_raises_is_recorded_and_told_to_every_waiter(
    make: Callable[[], BaseException], reason: str | None, kind: str
) -> None:
    reason = reason or REASON_OF_GROUP
    if isinstance(make(), StopIteration) and kind != "thread":
        reason = "RuntimeError: coroutine raised StopIteration"  # Python makes it so, by PEP 479
    async with Queue(ONE_PERMIT) as queue:
        job = Job("k", failing(make, kind))
        handles: list[JobHandle] = []
        for _ in range(3):
            accepted = await queue.push(job)
            handles.append(accepted.handle)  # type: ignore[union-attr]
        told = asyncio.gather(*(handle.result() for handle in handles), return_exceptions=True)
        for handle in handles:
            assert await handle == Failed(reason)
        for error in await told:
            assert isinstance(error, JobFailed)
            assert (error.key, error.reason) == ("k", reason)
        assert queue.state("k") == Failed(reason)
        assert await queue.push_and_wait(Job("next", value, args=(1,))) == 1
        stats = queue.stats()["normal"]
        assert (stats.running, stats.waiting, stats.failed, stats.completed) == (0, 0, 1, 1)


@pytest.mark.parametrize("kind", ["loop", "thread"])
async def test_a_return_is_completed(kind: str) -> None:
    async def on_loop() -> str:
        return "done"

    def in_thread() -> str:
        return "done"

    async with Queue() as queue:
        accepted = await queue.push(Job("k", on_loop if kind == "loop" else in_thread))
        assert type(accepted) is Queued
        assert await accepted.handle == Completed("done")
        assert await accepted.handle.result() == "done"
        assert queue.state("k") == Completed("done")


async def test_a_job_cancelled_before_its_first_step_is_recorded_and_never_runs() -> None:
    gate = Gate()
    async with Queue(ONE_PERMIT) as queue:
        accepted = await queue.push(Job("k", gate))
        assert type(accepted) is Queued
        assert queue.state("k") == Processing()
        assert queue.cancel("k") is True
        assert await accepted.handle == Failed("cancelled")
        assert gate.runs == 0
        assert await queue.push_and_wait(Job("next", value, args=(1,))) == 1


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_a_task_cancelled_by_somebody_else_is_recorded(steps: int) -> None:
    gate = Gate()
    async with Queue(ONE_PERMIT) as queue:
        accepted = await queue.push(Job("k", gate))
        assert type(accepted) is Queued
        await turns(steps)
        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "k"]
        task.cancel()
        assert await accepted.handle == Failed("CancelledError")
        assert gate.runs == (1 if steps else 0)
        assert await queue.push_and_wait(Job("next", value, args=(1,))) == 1


async def test_a_job_that_cancels_itself_is_recorded() -> None:
    async def suicidal() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async with Queue(ONE_PERMIT) as queue:
        with pytest.raises(JobFailed, match=r"failed: CancelledError$"):
            await queue.push_and_wait(Job("k", suicidal))
        assert await queue.push_and_wait(Job("next", value, args=(1,))) == 1


async def test_a_job_that_answers_a_cancellation_with_an_output_is_completed() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "saved"
        return "never"

    async with Queue(ONE_PERMIT) as queue:
        accepted = await queue.push(Job("k", stubborn))
        assert type(accepted) is Queued
        await turns(2)
        queue.cancel("k")
        assert await accepted.handle == Completed("saved")


async def test_a_job_that_answers_a_cancellation_with_an_error_fails_with_that_error() -> None:
    async def angry() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("while cleaning up")

    async with Queue(ONE_PERMIT) as queue:
        accepted = await queue.push(Job("k", angry))
        assert type(accepted) is Queued
        await turns(2)
        queue.cancel("k")
        assert await accepted.handle == Failed("ValueError: while cleaning up")


async def test_an_awaitable_that_raises_when_it_is_asked_for_its_iterator_is_recorded() -> None:
    class Broken:
        def __await__(self) -> Any:
            raise ValueError("no iterator")

    async with Queue(ONE_PERMIT) as queue:
        with pytest.raises(JobFailed, match="ValueError: no iterator"):
            await queue.push_and_wait(Job("k", lambda: Broken()))


async def test_arguments_that_do_not_fit_fail_the_job_not_the_queue() -> None:
    async with Queue(ONE_PERMIT) as queue:
        with pytest.raises(JobFailed, match=r"TypeError: value\(\) takes from 0 to 1 positional"):
            await queue.push_and_wait(Job("k", value, args=(1, 2)))
        with pytest.raises(JobFailed, match="TypeError: "):
            await queue.push_and_wait(Job("t", len, args=(1, 2)))
        assert await queue.push_and_wait(Job("next", value, args=(1,))) == 1


async def test_a_system_without_threads_fails_the_job_and_gives_the_permit_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Queue(ONE_PERMIT) as queue:
        with monkeypatch.context() as patch:

            def refuse(thread: threading.Thread) -> None:
                raise RuntimeError("can't start new thread")

            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(JobFailed, match="RuntimeError: can't start new thread"):
                await queue.push_and_wait(Job("k", len, args=("abc",)))
        assert queue.stats()["normal"].running == 0
        assert await queue.push_and_wait(Job("k", len, args=("abc",))) == 3


@pytest.mark.parametrize("kind", ["loop", "thread"])
def test_a_keyboard_interrupt_is_recorded_and_then_passed_on(kind: str) -> None:
    changes: list[Transition] = []
    told: list[State] = []

    async def on_loop() -> None:
        await turns(2)
        raise KeyboardInterrupt

    def in_thread() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        async with Queue(on_change=changes.append) as queue:
            accepted = await queue.push(Job("k", on_loop if kind == "loop" else in_thread))
            assert type(accepted) is Queued
            try:
                await asyncio.Event().wait()
            finally:
                told.append(await accepted.handle)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert [(change.before, change.after) for change in changes] == [
        (None, Pending()),
        (Pending(), Processing()),
        (Processing(), Failed("KeyboardInterrupt")),
    ]
    assert told == [Failed("KeyboardInterrupt")]


def test_jobs_in_flight_when_the_loop_shuts_down_are_lost_and_said_to_be() -> None:
    thread = ThreadGate()

    async def main() -> Queue:
        gate = Gate()
        queue = Queue({"normal": LaneConfig(capacity=1, permits=1)})
        await queue.__aenter__()
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", value))
        await queue.push(Job("thread", thread, lane="high"))
        await queue.push(Job("unstarted", value, lane="low"))
        await gate.started.wait()
        await thread.has_started()
        queue.cancel("unstarted")
        await queue.push(Job("unstarted", value, lane="low"))
        return queue

    queue = asyncio.run(main())
    thread.opened.set()
    lost = Failed("lost: its event loop is shutting down")
    assert [queue.state(key) for key in ("runs", "waits", "thread")] == [lost] * 3
    stats = queue.stats()
    assert (stats["normal"].failed, stats["normal"].waiting) == (2, 0)
    assert stats["high"].failed == 1


def test_a_job_between_two_tries_when_the_loop_shuts_down_is_lost_as_well() -> None:
    handles: list[JobHandle] = []

    async def main() -> Queue:
        queue = Queue()
        await queue.__aenter__()
        handles.append(await handle_of(queue, Job("k", len, retry=Retry(initial=3600, jitter=0))))
        while not queue.stats()["normal"].retrying:
            await asyncio.sleep(0.001)
        return queue

    async def late() -> None:
        with pytest.raises(JobLost, match="its event loop is shutting down"):
            await handles[0]

    queue = asyncio.run(main())
    assert queue.state("k") == Failed("lost: its event loop is shutting down")
    assert queue.stats()["normal"].retrying == 0
    asyncio.run(late())


@pytest.mark.parametrize("first", ["k", "agentq keeper"])
@pytest.mark.parametrize("ends", ["cancelled", "well"])
async def test_no_job_is_started_while_the_loop_shuts_down(first: str, ends: str) -> None:
    gate, waits = Gate(), Gate()

    async def running() -> None:
        try:
            await gate()
        except asyncio.CancelledError:
            if ends == "cancelled":
                raise

    changes: list[Transition] = []
    queue = Queue(ONE_PERMIT, on_change=changes.append)
    await queue.__aenter__()
    await queue.push(Job("k", running))
    handle = await handle_of(queue, Job("waits", waits))
    await gate.started.wait()
    tasks = {task.get_name(): task for task in asyncio.all_tasks()}
    for name in sorted(("k", "agentq keeper"), key=lambda name: name != first):
        tasks[name].cancel()
    with pytest.raises(JobLost, match="its event loop is shutting down"):
        await handle
    await turns(5)
    assert waits.runs == 0
    lost = Failed("lost: its event loop is shutting down")
    assert [change.after for change in changes if change.key == "waits"] == [Pending(), lost]


@pytest.mark.parametrize("first", ["k", "agentq keeper"])
@pytest.mark.parametrize("kind", ["loop", "thread"])
async def test_a_loop_that_shuts_down_settles_a_job_once_in_whatever_order_it_cancels(
    first: str, kind: str
) -> None:
    gate, thread = Gate(), ThreadGate()
    queue = Queue()
    await queue.__aenter__()
    accepted = await queue.push(Job("k", gate if kind == "loop" else thread))
    assert type(accepted) is Queued
    await (gate.started.wait() if kind == "loop" else thread.has_started())
    tasks = {task.get_name(): task for task in asyncio.all_tasks()}
    for name in sorted(("k", "agentq keeper"), key=lambda name: name != first):
        tasks[name].cancel()  # as a loop does with all its tasks, in no particular order
    with pytest.raises(JobLost, match="its event loop is shutting down"):
        await accepted.handle
    thread.opened.set()
    await asyncio.wait((tasks["k"], tasks["agentq keeper"]))
    assert queue.stats()["normal"].failed == 1
    while queue.stats()["normal"].running:
        await asyncio.sleep(0.005)
    assert queue.state("k") == Failed("lost: its event loop is shutting down")
