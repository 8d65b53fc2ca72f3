"""What is over leaves nothing behind in lanes and timers, however long the queue lives."""

import asyncio
from typing import Any

from gates import Gate, turns, value

from agentq import Job, LaneConfig, Queue

MANY = 1000
FEW = 200
"""More than a lane or a heap may keep of what is over."""


async def test_timeouts_that_were_met_do_not_pile_up() -> None:
    gate = Gate()
    async with Queue({"normal": LaneConfig(permits=10)}) as queue:
        await queue.push(Job("holds the heap", gate, timeout=3600))
        for number in range(MANY):
            await queue.push_and_wait(Job(f"k{number}", value, timeout=3600))
        assert len(queue._scheduler.deadlines._heap) < FEW
        gate.opened.set()


async def test_jobs_cancelled_while_they_wait_do_not_pile_up() -> None:
    gate = Gate()
    async with Queue({"normal": LaneConfig(capacity=5, permits=1)}) as queue:
        lane = queue._scheduler.lanes["normal"]
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", value))
        for number in range(MANY):
            await queue.push(Job(f"k{number}", value))
            assert queue.cancel(f"k{number}")
        assert len(lane._places) < FEW
        assert lane.waiting == 1
        gate.opened.set()


async def test_pushes_cancelled_while_they_wait_for_room_do_not_pile_up() -> None:
    gate = Gate()
    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}) as queue:
        lane = queue._scheduler.lanes["normal"]
        await queue.push(Job("runs", gate))
        await queue.push(Job("waits", value))
        stays = asyncio.create_task(queue.push(Job("stays", value)))
        await turns(1)
        for number in range(MANY):
            pushing = asyncio.create_task(queue.push(Job(f"k{number}", value)))
            await turns(1)
            pushing.cancel()
            await turns(2)
        assert len(lane._line) < FEW
        assert lane.admitting == 1
        gate.opened.set()
        await stays


async def test_jobs_that_jobs_wait_for_do_not_pile_up() -> None:
    """In a lane whose jobs do not wait themselves, nobody takes from the list of the wanted."""
    gate = Gate()
    lanes = {"parents": LaneConfig(permits=50), "children": LaneConfig(permits=1)}
    async with Queue(lanes) as queue:
        lane = queue._scheduler.lanes["children"]
        await queue.push(Job("blocks", gate, lane="children"))
        await queue.push(Job("stays", value, lane="children"))

        async def parent(number: int) -> Any:
            waiting = asyncio.create_task(
                queue.push_and_wait(Job(f"child {number}", value, lane="children"))
            )
            await turns(3)
            queue.cancel(f"child {number}")
            await asyncio.wait((waiting,))
            return waiting.exception() is not None

        for number in range(MANY):
            assert await queue.push_and_wait(
                Job(f"{number}", parent, args=(number,), lane="parents")
            )
        assert len(lane._demanded) < FEW
        assert lane.waiting == 1
        gate.opened.set()
