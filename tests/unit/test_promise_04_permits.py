"""Promise 4: jobs running in a lane never exceed its permits; a permit is never lost or doubled.

The seeded rounds of cancellations at the hand-over are in `integration/test_case_10.py`.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from gates import Gate, Meter, ThreadGate, turns, value

from agentq import Failed, Job, JobFailed, LaneConfig, Queue, Queued, Retry


async def all_permits_are_there(queue: Queue, lane: str = "normal") -> None:
    """Prove it from outside: as many jobs as there are permits run at once, and one more waits."""
    permits = queue.stats()[lane].permits
    gates = [Gate() for _ in range(permits + 1)]
    for number, gate in enumerate(gates):
        await queue.push(Job(f"permit {number}", gate, lane=lane))
    for gate in gates[:-1]:
        await gate.started.wait()
    await turns(5)
    assert gates[-1].runs == 0
    assert (queue.stats()[lane].running, queue.stats()[lane].waiting) == (permits, 1)
    for gate in gates:
        gate.opened.set()
    await gates[-1].started.wait()


@pytest.mark.parametrize("yields", [0, 1, 3])
@pytest.mark.parametrize("permits", [1, 2, 5])
async def test_no_more_run_at_once_than_there_are_permits(permits: int, yields: int) -> None:
    meter = Meter()
    async with Queue({"normal": LaneConfig(capacity=40, permits=permits)}) as queue:
        await asyncio.gather(
            *(queue.push_and_wait(Job(f"k{n}", meter, args=(yields,))) for n in range(60))
        )
        assert (meter.runs, meter.most) == (60, permits if yields else 1)
        await all_permits_are_there(queue)


async def test_no_more_threads_run_at_once_than_there_are_permits() -> None:
    lock = threading.Lock()
    now = most = runs = 0

    def work() -> None:
        nonlocal now, most, runs
        with lock:
            now += 1
            runs += 1
            most = max(most, now)
        threading.Event().wait(0.002)
        with lock:
            now -= 1

    async with Queue({"normal": LaneConfig(capacity=40, permits=3)}) as queue:
        await asyncio.gather(*(queue.push_and_wait(Job(f"k{n}", work)) for n in range(30)))
        assert (runs, most) == (30, 3)
        await all_permits_are_there(queue)


async def test_every_permit_is_used() -> None:
    gates = [Gate() for _ in range(3)]
    async with Queue({"normal": LaneConfig(permits=3)}) as queue:
        for number, gate in enumerate(gates):
            await queue.push(Job(f"k{number}", gate))
        for gate in gates:
            await gate.started.wait()
        for gate in gates:
            gate.opened.set()


@pytest.mark.parametrize("tick", range(8))
@pytest.mark.parametrize("victim", ["a", "b", "c"])
async def test_a_job_cancelled_in_whichever_tick_gives_back_exactly_one_permit(
    victim: str, tick: int
) -> None:
    meter = Meter()
    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        for key in ("a", "b", "c"):
            await queue.push(Job(key, meter, args=(2,)))
        await turns(tick)
        queue.cancel(victim)
        await all_permits_are_there(queue)
        assert meter.most == 1


@pytest.mark.parametrize("tick", range(8))
async def test_a_pusher_cancelled_in_whichever_tick_gives_back_exactly_what_it_held(
    tick: int,
) -> None:
    meter = Meter()
    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}) as queue:
        pushers = [
            asyncio.create_task(queue.push_and_wait(Job(f"k{n}", meter, args=(1,))))
            for n in range(6)
        ]
        await turns(tick)
        for pusher in pushers[1::2]:
            pusher.cancel()
        await asyncio.gather(*pushers, return_exceptions=True)
        await queue.push_and_wait(Job("last", value))
        assert meter.most == 1
        await all_permits_are_there(queue)


def ends_with(error: BaseException | None) -> Callable[[], Any]:
    async def job() -> None:
        await turns(1)
        if error is not None:
            raise error

    return job


@pytest.mark.parametrize(
    "error", [None, ValueError(), SystemExit(), GeneratorExit(), asyncio.CancelledError()], ids=repr
)
async def test_every_kind_of_end_gives_the_permit_back(error: BaseException | None) -> None:
    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        accepted = await queue.push(Job("k", ends_with(error)))
        assert type(accepted) is Queued
        await accepted.handle
        await all_permits_are_there(queue)


async def test_a_synchronous_job_keeps_its_permit_until_its_thread_really_ends() -> None:
    thread, gate = ThreadGate(), Gate()
    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        accepted = await queue.push(Job("thread", thread))
        assert type(accepted) is Queued
        await thread.has_started()
        await queue.push(Job("next", gate))
        assert queue.cancel("thread") is True
        assert await accepted.handle == Failed("cancelled")
        await turns(10)
        assert gate.runs == 0
        assert (queue.stats()["normal"].running, queue.stats()["normal"].waiting) == (1, 1)
        thread.opened.set()
        await gate.started.wait()
        gate.opened.set()
        await queue.push_and_wait(Job("last", value))
        await all_permits_are_there(queue)


async def test_a_coroutine_that_will_not_be_cancelled_keeps_its_permit_until_it_ends() -> None:
    gate, go = Gate(), asyncio.Event()

    async def stubborn() -> None:
        try:
            await go.wait()
        except asyncio.CancelledError:
            await go.wait()

    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        accepted = await queue.push(Job("stubborn", stubborn, timeout=0.02))
        assert type(accepted) is Queued
        await queue.push(Job("next", gate))
        assert await accepted.handle == Failed("timed out after 0.02 s")
        await turns(10)
        assert gate.runs == 0
        go.set()
        await gate.started.wait()
        gate.opened.set()
        await queue.push_and_wait(Job("last", value))
        await all_permits_are_there(queue)


async def test_a_retried_job_gives_its_permit_back_between_tries() -> None:
    runs = 0

    async def flaky() -> int:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise ValueError
        return runs

    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        job = Job("k", flaky, retry=Retry(attempts=3, initial=0, jitter=0))
        assert await queue.push_and_wait(job) == 3
        await all_permits_are_there(queue)


async def test_a_job_that_is_cancelled_repeatedly_gives_back_one_permit() -> None:
    async with Queue({"normal": LaneConfig(permits=2)}) as queue:
        accepted = await queue.push(Job("k", asyncio.Event().wait))
        assert type(accepted) is Queued
        await turns(1)
        assert [queue.cancel("k") for _ in range(3)] == [True] * 3
        with pytest.raises(JobFailed, match="cancelled"):
            await accepted.handle.result()
        assert queue.cancel("k") is False
        await all_permits_are_there(queue)


async def test_the_permits_of_one_lane_are_not_those_of_another() -> None:
    lanes = {"one": LaneConfig(permits=1), "two": LaneConfig(permits=2)}
    async with Queue(lanes) as queue:
        await all_permits_are_there(queue, "one")
        gates = [Gate(), Gate(), Gate()]
        for gate, lane in zip(gates, ("one", "two", "two"), strict=True):
            await queue.push(Job(f"{lane} {id(gate)}", gate, lane=lane))
        for gate in gates:
            await gate.started.wait()
        for gate in gates:
            gate.opened.set()
