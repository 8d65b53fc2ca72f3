"""Promise 5: at most `capacity` jobs wait in a lane; then `push` waits, first come first served."""

import asyncio

import pytest
from gates import Gate, turns, value

from agentq import Job, LaneConfig, Pending, Queue, Queued


@pytest.mark.parametrize(("capacity", "permits"), [(1, 1), (3, 1), (2, 4)])
async def test_capacity_jobs_wait_and_the_next_push_does(capacity: int, permits: int) -> None:
    gate = Gate()
    async with Queue({"normal": LaneConfig(capacity=capacity, permits=permits)}) as queue:
        for number in range(permits + capacity):
            assert type(await queue.push(Job(f"k{number}", gate))) is Queued
        stats = queue.stats()["normal"]
        assert (stats.running, stats.waiting) == (permits, capacity)
        push = asyncio.create_task(queue.push(Job("one more", gate)))
        await turns(10)
        assert not push.done()
        assert queue.state("one more") == Pending()
        stats = queue.stats()["normal"]
        assert (stats.running, stats.waiting) == (permits, capacity)
        gate.opened.set()
        assert type(await push) is Queued


async def test_one_freed_place_lets_one_push_through() -> None:
    gates = [Gate() for _ in range(6)]
    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}) as queue:
        pushes = []
        for number, gate in enumerate(gates):
            pushes.append(asyncio.create_task(queue.push(Job(f"k{number}", gate))))
            await turns(1)
        await turns(5)
        for number, gate in enumerate(gates):
            done = [push.done() for push in pushes]
            assert done == [True] * min(number + 2, 6) + [False] * max(4 - number, 0)
            await gate.started.wait()
            gate.opened.set()
            await turns(5)


async def test_pushes_are_let_through_in_the_order_they_came() -> None:
    gate = Gate()
    order: list[int] = []
    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}) as queue:
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", value))

        async def push(number: int) -> None:
            await queue.push(Job(f"k{number}", value))
            order.append(number)

        pushes = [asyncio.create_task(push(number)) for number in range(20)]
        await turns(3)
        gate.opened.set()
        await asyncio.gather(*pushes)
    assert order == list(range(20))


async def test_a_new_push_does_not_overtake_one_that_waits_for_room() -> None:
    order: list[str] = []

    async def note(name: str) -> None:
        order.append(name)

    gate = Gate()
    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}) as queue:
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", note, args=("waits",)))
        early = asyncio.create_task(queue.push(Job("early", note, args=("early",))))
        await turns(2)
        gate.opened.set()
        # The place becomes free some turns from now; a new push is tried in every one of them.
        late = []
        for number in range(6):
            name = f"late {number}"
            late.append(asyncio.create_task(queue.push(Job(name, note, args=(name,)))))
            await turns(1)
        await asyncio.gather(early, *late)
    assert order == ["waits", "early", *(f"late {number}" for number in range(6))]


async def test_jobs_of_a_lane_with_one_permit_run_in_the_order_they_were_pushed() -> None:
    order: list[int] = []

    async def note(number: int) -> None:
        await turns(number % 3)
        order.append(number)

    async with Queue({"normal": LaneConfig(capacity=5, permits=1)}) as queue:
        for number in range(50):
            await queue.push(Job(f"k{number}", note, args=(number,)))
    assert order == list(range(50))


async def test_the_line_keeps_its_order_when_most_of_it_gives_up() -> None:
    gate = Gate()
    order: list[int] = []

    async def note(number: int) -> None:
        order.append(number)

    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}) as queue:
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", value))
        pushes = [
            asyncio.create_task(queue.push(Job(f"k{number}", note, args=(number,))))
            for number in range(300)
        ]
        await turns(2)
        for number, push in enumerate(pushes):
            if number % 7:
                push.cancel()
        await asyncio.wait(pushes, return_when=asyncio.FIRST_COMPLETED)
        await turns(2)
        assert [number for number in range(300) if queue.state(f"k{number}") is not None] == list(
            range(0, 300, 7)
        )
        gate.opened.set()
        await asyncio.gather(*pushes, return_exceptions=True)
    assert order == list(range(0, 300, 7))


async def test_a_lane_keeps_its_order_when_most_of_what_waits_is_cancelled() -> None:
    gate = Gate()
    order: list[int] = []

    async def note(number: int) -> None:
        order.append(number)

    async with Queue({"normal": LaneConfig(capacity=300, permits=1)}) as queue:
        await queue.push(Job("runs", gate))
        for number in range(300):
            await queue.push(Job(f"k{number}", note, args=(number,)))
        for number in range(300):
            if number % 7:
                assert queue.cancel(f"k{number}") is True
        assert queue.stats()["normal"].waiting == 43
        gate.opened.set()
    assert order == list(range(0, 300, 7))


async def test_a_joiner_is_never_made_to_wait_for_room() -> None:
    gate = Gate()
    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}) as queue:
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", value, args=(1,)))
        blocked = asyncio.create_task(queue.push(Job("blocked", value, args=(2,))))
        await turns(2)
        for key in ("runs", "waits", "blocked"):
            push = asyncio.create_task(queue.push(Job(key, value)))
            await turns(1)
            assert push.done()
        assert not blocked.done()
        gate.opened.set()


async def test_a_cached_answer_is_never_made_to_wait_for_room() -> None:
    gate = Gate()
    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}) as queue:
        await queue.push_and_wait(Job("done", value, args=(1,)))
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", value))
        push = asyncio.create_task(queue.push_and_wait(Job("done", value)))
        await turns(1)
        assert push.done()
        assert push.result() == 1
        gate.opened.set()


async def test_a_saturated_lane_never_delays_another() -> None:
    gate = Gate()
    lanes = {name: LaneConfig(capacity=1, permits=1) for name in ("stuck", "free")}
    async with Queue(lanes) as queue:
        pushes = [
            asyncio.create_task(queue.push(Job(f"stuck {number}", gate, lane="stuck")))
            for number in range(100)
        ]
        await turns(3)
        for number in range(20):
            job = Job(f"free {number}", value, args=(number,), lane="free")
            assert await queue.push_and_wait(job) == number
        assert queue.stats()["stuck"].completed == 0
        gate.opened.set()
        await asyncio.gather(*pushes)


async def test_the_default_lanes_are_independent_too() -> None:
    gate = Gate()
    lanes = {"high": LaneConfig(capacity=1, permits=1)}
    async with Queue(lanes) as queue:
        for number in range(2):
            await queue.push(Job(f"high {number}", gate, lane="high"))
        for lane in ("normal", "low"):
            assert await queue.push_and_wait(Job(lane, value, args=(lane,), lane=lane)) == lane
        gate.opened.set()
