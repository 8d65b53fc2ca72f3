"""`agentq.testing`: orders of events by seed, virtual time, and what it says when stuck."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random

import pytest

from agentq import Completed, Failed, Job, Queue, Queued
from agentq.testing import SimulatedLoop, SimulationStuck, simulate, simulate_threads

Trace = list[tuple[object, ...]]


async def program(trace: Trace, random: Random) -> None:
    """Uses what asyncio programs use, and notes what happens when."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[int] = asyncio.Queue(2)
    semaphore = asyncio.Semaphore(2)

    async def produce() -> None:
        for number in range(5):
            await queue.put(number)
            trace.append(("put", number))

    async def consume() -> None:
        for _ in range(5):
            async with semaphore:
                trace.append(("got", await queue.get()))

    async def tick(name: str) -> None:
        for number in range(4):
            await asyncio.sleep(random.choice((0, 0, 1)))
            trace.append((name, number, loop.time()))

    async def fail() -> None:
        await asyncio.sleep(2.5)
        raise ValueError

    try:
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(tick(name))
            group.create_task(produce())
            group.create_task(consume())
            group.create_task(fail())
            trace.append(("thread", await asyncio.to_thread(lambda: 5)))
            await asyncio.wait([group.create_task(tick(name)) for name in "xyz"])
    except* ValueError:
        trace.append(("failed", loop.time()))


def traced(seed: int) -> Trace:
    trace: Trace = []
    simulate(program(trace, Random(seed)), seed=seed)
    return trace


def test_one_seed_gives_one_order_and_each_seed_its_own() -> None:
    first = [traced(seed) for seed in range(300)]
    assert [traced(seed) for seed in range(300)] == first
    assert len({str(trace) for trace in first}) == 300


def test_a_seed_means_the_same_in_every_process() -> None:
    code = "import test_simulated_loop as t; print([t.traced(seed) for seed in range(20)])"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1] == f"{[traced(seed) for seed in range(20)]}\n"


async def three_callbacks() -> str:
    loop, order = asyncio.get_running_loop(), list[str]()
    for name in "abc":
        loop.call_soon(order.append, name)
    await asyncio.sleep(1)
    return "".join(order)


def test_every_order_of_ready_callbacks_comes_up() -> None:
    orders = {simulate(three_callbacks(), seed=seed) for seed in range(100)}
    assert orders == {"abc", "acb", "bac", "bca", "cab", "cba"}


async def sleepers(seconds: list[float]) -> list[tuple[float, float]]:
    loop, woken = asyncio.get_running_loop(), list[tuple[float, float]]()

    async def sleeper(duration: float) -> None:
        await asyncio.sleep(duration)
        woken.append((duration, loop.time()))

    await asyncio.gather(*(sleeper(duration) for duration in seconds))
    return woken


def test_time_jumps_from_timer_to_timer() -> None:
    for seed in range(20):
        woken = simulate(sleepers([3600, 0.1, 7, 86400 * 365]), seed=seed)
        assert woken == [(0.1, 0.1), (7, 7), (3600, 3600), (86400 * 365, 86400 * 365)]


def test_time_stands_still_while_anything_is_ready() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(0.001, lambda: None)
        for _ in range(50):
            await asyncio.sleep(0)
        return loop.time()

    assert simulate(main(), seed=1) == 0.0


def test_on_a_slow_machine_timers_are_late_but_never_early() -> None:
    async def main() -> list[str]:
        loop, order = asyncio.get_running_loop(), list[str]()

        async def busy() -> None:
            for _ in range(20):
                await asyncio.sleep(0)
            order.append("busy")

        def timer() -> None:
            assert loop.time() >= 5
            order.append("timer")

        loop.call_later(5, timer)
        await busy()
        await asyncio.sleep(10)
        return order

    orders = [simulate(main(), seed=seed, slow_chance=0.05) for seed in range(50)]
    assert ["busy", "timer"] in orders
    assert ["timer", "busy"] in orders


def test_a_cancelled_timer_neither_fires_nor_moves_time() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(1000, pytest.fail).cancel()
        loop.call_soon(pytest.fail).cancel()
        async with asyncio.timeout(500):
            await asyncio.sleep(2)
        await asyncio.sleep(1)
        return loop.time()

    assert simulate(main(), seed=1) == 3.0


def test_a_deadlock_names_the_tasks_that_are_left() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(waits_for_ever(), name="the culprit")
        await task

    with pytest.raises(SimulationStuck) as caught:
        simulate(main(), seed=3)
    message = str(caught.value)
    assert message.startswith("deadlock: nothing can ever happen. Pending tasks: ")
    assert "'the culprit' in " in message
    assert ".waits_for_ever:" in message
    assert " > Event.wait:" in message


def test_an_endless_program_is_stopped() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SimulationStuck, match=r"^no end after 500 steps\."):
        simulate(main(), seed=0, max_steps=500)


def test_on_step_sees_every_step_and_can_end_the_run() -> None:
    steps: list[asyncio.Handle] = []
    ended: list[str] = []

    async def main() -> None:
        try:
            for _ in range(10):
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    simulate(main(), seed=0, on_step=steps.append)
    assert len(steps) >= 12
    assert all(isinstance(step, asyncio.Handle) for step in steps)
    assert ended == ["cleaned up"]

    calls = 0

    def check(_: asyncio.Handle) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise AssertionError("the invariant is broken")

    with pytest.raises(AssertionError, match="the invariant is broken"):
        simulate(main(), seed=0, on_step=check)
    assert calls == 4
    assert ended == ["cleaned up", "cleaned up"]


def test_a_callback_from_a_thread_that_is_joined_is_run() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        thread = threading.Thread(
            target=loop.call_soon_threadsafe, args=(future.set_result, "from outside")
        )
        thread.start()
        thread.join()
        return await future

    assert simulate(main(), seed=0) == "from outside"


def test_calls_in_threads_run_outside_of_the_loop_in_a_step_of_their_own() -> None:
    def call() -> int:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return threading.get_ident()

    def fail() -> None:
        raise OSError("no such thing")

    async def main() -> None:
        assert await asyncio.to_thread(call) == threading.get_ident()
        assert asyncio.get_running_loop() is not None
        with pytest.raises(OSError, match="no such thing"):
            await asyncio.get_running_loop().run_in_executor(None, fail)
        cancelled = asyncio.ensure_future(asyncio.to_thread(call))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])

    for seed in range(10):
        simulate(main(), seed=seed)


def test_an_error_is_not_hidden_by_what_comes_after_it() -> None:
    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
        await asyncio.Event().wait()

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # it is left for good
        asyncio.get_running_loop().kept = asyncio.create_task(stubborn())  # type: ignore[attr-defined]
        await asyncio.sleep(1)
        raise ValueError("the reason")

    with pytest.raises(ValueError, match="the reason") as caught:
        simulate(main(), seed=0)
    (note,) = caught.value.__notes__
    assert note.startswith("Then, while ending what was left: deadlock: nothing can ever happen.")


def test_synchronous_jobs_take_virtual_time() -> None:
    async def main() -> list[object]:
        async with Queue() as queue:
            simulate_threads(queue, lambda: 5)
            quick = await queue.push(Job("quick", lambda: "done", timeout=6))
            slow = await queue.push(Job("slow", lambda: "too late", timeout=4))
            assert isinstance(quick, Queued)
            assert isinstance(slow, Queued)
            outcomes = [await quick.handle, await slow.handle]
            return [*outcomes, asyncio.get_running_loop().time()]

    for seed in range(20):
        assert simulate(main(), seed=seed) == [
            Completed("done"),
            Failed("timed out after 4 s"),
            5,
        ]

    async def elsewhere() -> None:
        with pytest.raises(TypeError, match="SimulatedLoop"):
            simulate_threads(Queue())

    asyncio.run(elsewhere())


def test_simulate_ends_everything_that_is_left() -> None:
    seen: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def left() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
            seen.append("task cancelled")
            raise

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            seen.append("generator closed")

    async def main() -> str:
        loops.append(asyncio.get_running_loop())
        task = asyncio.create_task(left())
        generator = numbers()
        loops[0].generator = generator  # type: ignore[attr-defined]  # keep it alive
        assert await anext(generator) == 1
        await asyncio.sleep(1)
        assert not task.done()
        return "result"

    assert simulate(main(), seed=0) == "result"
    assert seen == ["task cancelled", "generator closed"]
    assert loops[0].is_closed()


def test_what_a_left_task_raises_goes_to_the_exception_handler() -> None:
    contexts: list[dict[str, object]] = []

    async def left() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            raise OSError("while ending") from None

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: contexts.append(about))
        task = asyncio.create_task(left())
        await asyncio.sleep(1)
        assert not task.done()

    simulate(main(), seed=0)
    assert [str(about["exception"]) for about in contexts] == ["while ending"]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_the_program_raises_is_raised(kind: type[BaseException]) -> None:
    async def main() -> None:
        await asyncio.sleep(1)
        raise kind("out of here")

    with pytest.raises(kind, match="out of here"):
        simulate(main(), seed=0)


def test_the_loop_can_be_used_by_hand() -> None:
    loop = SimulatedLoop(seed=5)
    assert loop.run_until_complete(asyncio.sleep(2, "first")) == "first"
    loop.call_later(3, loop.stop)
    loop.run_forever()
    loop.stop()
    loop.run_forever()  # stopped before anything could happen
    assert loop.run_until_complete(asyncio.sleep(1, "second")) == "second"
    assert loop.time() == 6
    assert loop.steps > 0
    loop.close()


def test_a_task_factory_of_ones_own_is_used() -> None:
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coro: object, **options: object) -> object:
        made.append("task")
        return asyncio.Task(coro, loop=loop, **options)  # type: ignore[arg-type]

    eager = getattr(asyncio, "eager_task_factory", None)  # new in Python 3.12

    async def child() -> str:
        await asyncio.sleep(0)
        return "done"

    async def main(factory: Callable[..., object]) -> str:
        asyncio.get_running_loop().set_task_factory(factory)  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as group:
            task = group.create_task(child())
        assert len(made) == (factory is not eager)
        return task.result()

    assert simulate(main(factory), seed=0) == "done"
    made.clear()
    assert simulate(main(eager or factory), seed=0) == "done"


def test_futures_and_tasks_in_a_set_keep_one_order() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(50)]
        return [futures.index(future) for future in set(futures)]

    assert simulate(main(), seed=0) == simulate(main(), seed=0)
