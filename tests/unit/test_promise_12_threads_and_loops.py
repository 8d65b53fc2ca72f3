"""Promise 12: the queue lives on the loop that entered it; its verbs work from anywhere.

Races of threads are in `integration/test_threads.py`; loops that stop in `test_loops.py`.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest
from gates import Gate, ThreadGate, turns, value

from agentq import (
    Cached,
    Completed,
    Failed,
    InFlight,
    Job,
    JobFailed,
    KeyConflict,
    LaneConfig,
    Queue,
    QueueClosed,
    Queued,
    Retry,
    State,
    task,
)

T = TypeVar("T")
TIGHT = {"normal": LaneConfig(capacity=1, permits=1)}


async def elsewhere(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a loop of its own, in a thread of its own, and wait for it."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(asyncio.run(work()))
        except BaseException as error:
            answer.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        return await asyncio.wrap_future(answer)
    finally:
        await asyncio.to_thread(thread.join, 10)


async def test_jobs_pushed_from_another_loop_run_on_the_home_loop() -> None:
    home = asyncio.get_running_loop()

    async def where() -> tuple[bool, bool]:
        on_home = asyncio.get_running_loop() is home
        return on_home, threading.current_thread() is threading.main_thread()

    async with Queue() as queue:

        async def work() -> Any:
            assert asyncio.get_running_loop() is not home
            return await queue.push_and_wait(Job("k", where))

        assert await elsewhere(work) == (True, True)


async def test_every_verb_works_from_another_loop() -> None:
    gate = Gate()
    async with Queue() as queue:

        async def work() -> list[Any]:
            answers: list[Any] = []
            queued = await queue.push(Job("k", value, args=(1,)))
            assert type(queued) is Queued
            answers.append(await queued.handle)
            answers.append(await queued.handle.result())
            answers.append(await queue.push(Job("k", value)))
            answers.append(await queue.push_and_wait(Job("w", value, args=(2,))))
            answers.append(queue.state("w"))
            answers.append(
                sorted([item async for item in queue.map(Job(f"m{n}", value) for n in (1, 2))])
            )
            held = await queue.push(Job("held", gate))
            joined = await queue.push(Job("held", gate))
            assert type(held) is Queued
            answers.append(type(joined))
            answers.append(queue.cancel("held"))
            answers.append(await held.handle)
            answers.append(queue.stats()["normal"].completed)
            return answers

        assert await elsewhere(work) == [
            Completed(1),
            1,
            Cached(1),
            2,
            Completed(2),
            [("m1", Completed(None)), ("m2", Completed(None))],
            InFlight,
            True,
            Failed("cancelled"),
            4,
        ]


async def test_handles_can_be_awaited_on_several_loops_at_once() -> None:
    gate = Gate()
    async with Queue() as queue:
        accepted = await queue.push(Job("k", gate, args=(7,)))
        assert type(accepted) is Queued
        handle = accepted.handle

        async def work() -> State:
            return await handle

        others = [asyncio.create_task(elsewhere(work)) for _ in range(3)]
        await gate.started.wait()
        gate.opened.set()
        assert await handle == Completed(7)
        assert await asyncio.gather(*others) == [Completed(7)] * 3


async def test_failures_and_conflicts_reach_another_loop() -> None:
    @task(name="t", key="k")
    async def fail(number: int) -> None:
        raise ValueError(number)

    @task(name="t", key="ok")
    async def work_well(number: int) -> int:
        return number

    async with Queue() as queue:

        async def work() -> str:
            await queue.push_and_wait(work_well.job(1))
            with pytest.raises(KeyConflict):
                await queue.push(work_well.job(2))
            with pytest.raises(JobFailed) as caught:
                await queue.push_and_wait(fail.job(1))
            return repr(caught.value.__cause__)

        assert await elsewhere(work) == "ValueError(1)"


async def test_a_push_from_another_loop_waits_for_room_and_is_served_in_turn() -> None:
    gate = Gate()
    order: list[str] = []

    async def note(name: str) -> None:
        order.append(name)

    async with Queue(TIGHT) as queue:
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", note, args=("waits",)))

        async def work() -> str:
            return type(await queue.push(Job("away", note, args=("away",)))).__name__

        away = asyncio.create_task(elsewhere(work))
        while queue.state("away") is None:
            await asyncio.sleep(0.002)
        home = asyncio.create_task(queue.push(Job("home", note, args=("home",))))
        await turns(3)
        assert not away.done()
        gate.opened.set()
        assert await away == "Queued"
        await home
    assert order == ["waits", "away", "home"]


async def test_a_push_cancelled_on_another_loop_leaves_nothing_behind() -> None:
    gate = Gate()
    async with Queue(TIGHT) as queue:
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", value))

        async def work() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await queue.push(Job("k", value))

        await elsewhere(work)
        assert queue.state("k") is None
        gate.opened.set()
        assert await queue.push_and_wait(Job("k", value, args=(1,))) == 1


async def test_a_waiter_given_up_on_another_loop_disturbs_nobody() -> None:
    gate = Gate()
    async with Queue() as queue:

        async def work() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await queue.push_and_wait(Job("k", gate, args=(7,)))

        await elsewhere(work)
        gate.opened.set()
        assert await queue.push_and_wait(Job("k", gate)) == 7
    assert gate.runs == 1


async def test_drain_and_close_can_be_awaited_on_another_loop() -> None:
    gate = Gate()
    async with Queue() as queue:
        await queue.push(Job("k", gate, args=(7,)))
        await gate.started.wait()
        drained = asyncio.create_task(elsewhere(queue.drain))
        refused = None
        while refused is None:
            await asyncio.sleep(0.002)
            try:
                await queue.push(Job("k", gate))
            except QueueClosed as error:
                refused = str(error)
        assert refused == "the queue is draining and takes no more work"
        gate.opened.set()
        await drained
        assert queue.state("k") == Completed(7)

        async def close() -> None:
            await queue.close()

        await elsewhere(close)


async def test_a_synchronous_job_runs_in_a_thread_that_is_no_loops() -> None:
    def where() -> tuple[bool, bool]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return True, threading.current_thread().daemon
        return False, False

    async with Queue() as queue:
        assert await queue.push_and_wait(Job("k", where)) == (True, True)


async def test_state_and_stats_can_be_read_in_any_thread_while_jobs_run() -> None:
    gate, thread = Gate(), ThreadGate()
    async with Queue() as queue:
        await queue.push(Job("k", gate))
        await queue.push(Job("t", thread))
        await gate.started.wait()
        await thread.has_started()
        states = await asyncio.to_thread(lambda: [queue.state(key) for key in ("k", "t", "x")])
        assert [type(state).__name__ for state in states] == [
            "Processing",
            "Processing",
            "NoneType",
        ]
        assert (await asyncio.to_thread(queue.stats))["normal"].running == 2
        gate.opened.set()
        thread.opened.set()


async def test_cancel_from_another_thread_ends_what_runs_and_what_waits() -> None:
    gate = Gate()
    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        handles = []
        for key in ("runs", "waits"):
            accepted = await queue.push(Job(key, gate))
            assert type(accepted) is Queued
            handles.append(accepted.handle)
        await gate.started.wait()
        assert await asyncio.to_thread(queue.cancel, "waits") is True
        assert await asyncio.to_thread(queue.cancel, "runs") is True
        assert [await handle for handle in handles] == [Failed("cancelled")] * 2
        assert await asyncio.to_thread(queue.cancel, "runs") is False
    assert gate.runs == 1


async def test_a_queue_without_a_running_loop_cannot_be_entered_by_mistake() -> None:
    def enter() -> None:
        Queue().__aenter__().send(None)

    with pytest.raises(RuntimeError, match="no running event loop"):
        await asyncio.to_thread(enter)


async def test_a_job_cancelled_in_backoff_from_another_thread_has_its_timer_stopped_at_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    async def fails() -> None:
        raise ValueError

    async with Queue() as queue:
        call_later = queue._scheduler.call_later

        def watched(*args: Any) -> Any:
            timer = call_later(*args)

            class Timer:
                def cancel(self) -> None:
                    threads.append(threading.get_ident())
                    timer.cancel()

            return Timer()

        monkeypatch.setattr(queue._scheduler, "call_later", watched)
        await queue.push(Job("k", fails, retry=Retry(attempts=2, initial=3600)))
        while not queue.stats()["normal"].retrying:
            await asyncio.sleep(0)
        assert await asyncio.to_thread(queue.cancel, "k")
        assert queue.state("k") == Failed("cancelled")
        while not threads:
            await asyncio.sleep(0)
    assert threads == [threading.get_ident()]
