"""Promise 11 and 12: loops that stop, close and shut down; other kinds of loops."""

import asyncio
import importlib.util
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from gates import Gate, ThreadGate, turns, value

from agentq import (
    BlockingQueue,
    Completed,
    Failed,
    Job,
    JobLost,
    LaneConfig,
    Queue,
    QueueClosed,
    Queued,
)
from agentq.queue import waiters

T = TypeVar("T")
pytestmark = pytest.mark.timeout(20)
STOPPED = "the event loop that this queue lives on has stopped"
SHUT_DOWN = "its event loop is shutting down"


class Home:
    """A loop in a thread that a test stops, goes on with and closes as it likes."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)

    def go_on(self) -> None:
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def close(self) -> None:
        if self.loop.is_running():
            self.stop()
        if not self.loop.is_closed():
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(turns(5))
            self.loop.close()


@pytest.fixture
def home() -> Iterator[Home]:
    home = Home()
    yield home
    home.close()


async def opened(lanes: dict[str, LaneConfig] | None = None) -> Queue:
    return await Queue(lanes).__aenter__()


async def queued(queue: Queue, job: Job) -> Any:
    accepted = await queue.push(job)
    assert type(accepted) is Queued
    return accepted.handle


async def forever() -> None:
    await asyncio.Event().wait()


def test_a_handle_awaited_elsewhere_is_lost_when_the_home_loop_stops(home: Home) -> None:
    queue = home.run(opened())
    handle = home.run(queued(queue, Job("k", forever)))

    async def elsewhere() -> None:
        for wait in (handle, handle.result(), queue.push_and_wait(Job("k", forever))):
            waiting = asyncio.ensure_future(wait)
            await turns(3)
            if home.loop.is_running():
                home.stop()
            with pytest.raises(JobLost, match=STOPPED):
                await asyncio.wait_for(waiting, 5)

    asyncio.run(elsewhere())
    home.go_on()  # nothing was lost for those who come when the loop runs again
    assert home.run(asyncio.wait_for(queue.push_and_wait(Job("next", value, args=(1,))), 5)) == 1
    queue.cancel("k")

    async def outcome() -> Any:
        return await handle

    assert home.run(outcome()) == Failed("cancelled")
    home.run(queue.drain())


def test_a_push_that_waits_for_room_elsewhere_is_told_when_the_home_loop_stops(home: Home) -> None:
    queue = home.run(opened({"normal": LaneConfig(capacity=1, permits=1)}))
    home.run(queued(queue, Job("runs", forever)))
    home.run(queued(queue, Job("waits", forever)))

    async def elsewhere() -> None:
        push = asyncio.create_task(queue.push(Job("k", value)))
        await turns(3)
        home.stop()
        with pytest.raises(QueueClosed, match=STOPPED):
            await asyncio.wait_for(push, 5)
        assert queue.state("k") is None
        outcomes = queue.map([Job("m", value)])
        with pytest.raises((QueueClosed, JobLost), match=STOPPED):
            await asyncio.wait_for(anext(outcomes), 5)

    asyncio.run(elsewhere())


def test_a_drain_elsewhere_is_told_when_the_home_loop_stops(home: Home) -> None:
    queue = home.run(opened())
    home.run(queued(queue, Job("k", forever)))

    async def elsewhere() -> None:
        drain = asyncio.create_task(queue.drain())
        await turns(3)
        home.stop()
        with pytest.raises(QueueClosed, match=STOPPED):
            await asyncio.wait_for(drain, 5)

    asyncio.run(elsewhere())


def test_a_home_loop_that_was_closed_is_a_clear_error_and_loses_what_was_in_flight() -> None:
    home = Home()
    queue = home.run(opened())
    handle = home.run(queued(queue, Job("k", forever)))
    done = home.run(queued(queue, Job("done", value, args=(1,))))
    home.run(turns(5))
    tasks = asyncio.all_tasks(home.loop)
    home.stop()
    home.loop.close()  # without a shutdown: its tasks are simply never run again

    async def elsewhere() -> None:
        with pytest.raises(QueueClosed, match="the queue is closed and takes no more work"):
            await queue.push(Job("new", value))
        with pytest.raises(JobLost, match="its event loop is closed"):
            await handle
        assert await done == Completed(1)

    assert queue.state("k") == Failed("lost: its event loop is closed")
    assert queue.state("done") == Completed(1)
    asyncio.run(elsewhere())
    assert queue.cancel("k") is False
    queue.close()
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_second_run_of_the_loop_cannot_use_the_queue_of_the_first() -> None:
    queue = Queue()

    async def first() -> Any:
        await queue.__aenter__()
        return await queued(queue, Job("k", forever))

    handle = asyncio.run(first())

    async def second() -> None:
        for verb in (queue.push, queue.push_and_wait):
            with pytest.raises(QueueClosed, match="the queue is closed and takes no more work"):
                await verb(Job("new", value))
        with pytest.raises(QueueClosed, match="was entered before; a queue is used once"):
            await queue.__aenter__()
        with pytest.raises(JobLost, match=SHUT_DOWN):
            await handle
        await queue.drain()
        await queue.close()

    asyncio.run(second())


def test_when_the_loop_shuts_down_every_handle_in_other_threads_resolves() -> None:
    queue = Queue({"normal": LaneConfig(capacity=1, permits=1)})
    thread_job = ThreadGate()
    handles: list[Any] = []
    outcomes: list[Any] = []
    ready = threading.Barrier(4)

    def waiter(number: int) -> None:
        async def wait() -> None:
            ready.wait(10)
            try:
                outcomes.append(await asyncio.wait_for(handles[number], 10))
            except JobLost as error:
                outcomes.append(error.reason)

        asyncio.run(wait())

    async def main() -> None:
        await queue.__aenter__()
        handles.append(await queued(queue, Job("runs", forever)))
        handles.append(await queued(queue, Job("waits", forever)))
        handles.append(await queued(queue, Job("thread", thread_job, lane="high")))
        for thread in threads:
            thread.start()
        await thread_job.has_started()
        await asyncio.to_thread(ready.wait, 10)
        # The block is left without leaving the queue: asyncio.run cancels what is left.

    threads = [threading.Thread(target=waiter, args=(number,)) for number in range(3)]
    asyncio.run(main())
    for thread in threads:
        thread.join(15)
    thread_job.opened.set()
    assert outcomes == [SHUT_DOWN] * 3
    assert queue.stats()["normal"].running == 0


def test_a_thread_that_outlives_its_loop_is_told_nothing_and_harms_nothing() -> None:
    thread_job = ThreadGate()
    queue = Queue()

    async def main() -> None:
        await queue.__aenter__()
        await queue.push(Job("k", thread_job))
        await thread_job.has_started()

    asyncio.run(main())
    thread_job.opened.set()
    assert queue.state("k") == Failed(f"lost: {SHUT_DOWN}")


def test_two_queues_on_two_loops_can_use_each_other() -> None:
    async def relay(other: Queue, key: str, hops: int) -> int:
        if hops == 0:
            return 0
        job = Job(f"{key}{hops}", relay, args=(other_of[other], key, hops - 1))
        return 1 + int(await other.push_and_wait(job))

    homes = [Home(), Home()]
    try:
        queues = [home.run(opened()) for home in homes]
        other_of = {queues[0]: queues[1], queues[1]: queues[0]}
        job = Job("start", relay, args=(queues[1], "k", 6))
        assert homes[0].run(queues[0].push_and_wait(job)) == 6
        for home, queue in zip(homes, queues, strict=True):
            home.run(queue.drain())
    finally:
        for home in homes:
            home.close()


async def a_bit_of_everything() -> None:
    """One test for every kind of loop: the design must not depend on its settings."""
    order: list[str] = []

    async def note(name: str) -> str:
        order.append(name)
        await asyncio.sleep(0)
        return name

    async def parent() -> list[Any]:
        jobs = [Job(f"child {number}", note, args=(f"child {number}",)) for number in range(4)]
        return list(await asyncio.gather(*(queue.push_and_wait(job) for job in jobs)))

    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}) as queue:
        accepted = await queue.push(Job("k", note, args=("k",)))
        order.append("pushed")
        assert type(accepted) is Queued
        assert await accepted.handle == Completed("k")
        assert order == ["pushed", "k"]  # a job never runs inside the push that made it
        assert len(await queue.push_and_wait(Job("parent", parent))) == 4
        assert await queue.push_and_wait(Job("thread", len, args=("abc",))) == 3
        timed = await queue.push(Job("timed", forever, timeout=0.01))
        assert type(timed) is Queued
        assert await timed.handle == Failed("timed out after 0.01 s")
        outcomes = [
            key async for key, _ in queue.map(Job(f"m{n}", note, args=("m",)) for n in "ab")
        ]
        assert sorted(outcomes) == ["ma", "mb"]
        stuck = asyncio.create_task(queue.push_and_wait(Job("stuck", forever)))
        await turns(3)
        queue.cancel("stuck")
        await asyncio.wait((stuck,))
        assert queue.state("stuck") == Failed("cancelled")


def eager_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009
    return loop


def debug_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    return loop


def uvloop_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


@pytest.mark.parametrize(
    "factory",
    [
        asyncio.new_event_loop,
        debug_loop,
        pytest.param(
            eager_loop,
            marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12"),
        ),
        pytest.param(
            uvloop_loop,
            marks=pytest.mark.skipif(
                importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed"
            ),
        ),
    ],
)
def test_every_kind_of_loop_will_do(factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(a_bit_of_everything(), 10))


def test_a_blocking_queue_can_be_used_inside_a_running_loop_from_a_thread() -> None:
    with BlockingQueue() as queue:

        async def main() -> Any:
            return await asyncio.to_thread(queue.push_and_wait, Job("k", value, args=(1,)))

        assert asyncio.run(main()) == 1


@pytest.mark.parametrize("verb", ["push_and_wait", "handle", "room"])
def test_those_who_wait_elsewhere_are_woken_and_do_not_find_out_by_looking(
    home: Home, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiters, "LOOP_CHECK_SECONDS", 3600.0)
    gate = Gate()
    queue = home.run(opened({"normal": LaneConfig(capacity=1, permits=1)}))
    runs = home.run(queued(queue, Job("runs", gate, args=(1,))))
    home.run(queued(queue, Job("waits", value, args=(2,))))

    async def elsewhere() -> Any:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)  # then asyncio itself objects to calls from the wrong thread
        wait: Any = {
            "push_and_wait": lambda: queue.push_and_wait(Job("runs", gate)),
            "handle": runs.result,
            "room": lambda: queue.push(Job("third", value, args=(3,))),
        }[verb]
        waiting = asyncio.ensure_future(wait())
        await turns(3)
        home.loop.call_soon_threadsafe(gate.opened.set)
        answer = await asyncio.wait_for(waiting, 10)
        return answer if verb != "room" else await answer.handle.result()

    assert asyncio.run(elsewhere()) == (3 if verb == "room" else 1)
    home.run(queue.drain())
