"""C22: order inside a lane, and fairness across lanes."""

import asyncio
import math
from enum import Enum, StrEnum
from typing import Any

import pytest
from gates import Gate, turns, value

from agentq import Job, LaneConfig, Queue, UnknownLane


async def test_a_hundred_payloads_that_cannot_be_compared_run_first_in_first_out() -> None:
    order: list[int] = []

    async def note(payload: dict[str, Any]) -> None:
        order.append(payload["number"])

    async with Queue({"normal": LaneConfig(capacity=200, permits=1)}) as queue:
        for number in range(100):
            payload = {"number": number, "anything": object(), "nan": math.nan}
            await queue.push(Job(f"k{number}", note, args=(payload,)))
    assert order == list(range(100))


class Colour(Enum):
    RED = 1


class Other(StrEnum):
    NAME = "other"


@pytest.mark.parametrize("lane", [None, math.nan, Colour.RED, True, 1])
async def test_a_lane_that_is_no_name_is_refused_and_the_queue_still_works(lane: Any) -> None:
    async with Queue() as queue:
        with pytest.raises(TypeError, match=r"Job\.lane must be a lane's name or a Priority"):
            await queue.push(Job("k", value, lane=lane))
        assert queue.state("k") is None
        assert await queue.push_and_wait(Job("k", value, args=(1,))) == 1


@pytest.mark.parametrize("lane", [Other.NAME, "None", "nan"])
async def test_a_lane_the_queue_does_not_have_is_refused_and_the_queue_still_works(
    lane: str,
) -> None:
    async with Queue() as queue:
        with pytest.raises(UnknownLane):
            await queue.push(Job("k", value, lane=lane))
        assert queue.state("k") is None
        assert await queue.push_and_wait(Job("k", value, args=(1,))) == 1


async def test_a_lane_without_permits_and_five_thousand_ahead_blocks_no_other() -> None:
    gate, first = Gate(), Gate()
    lanes = {"x": LaneConfig(capacity=5000, permits=1), "y": LaneConfig(permits=1)}
    async with Queue(lanes) as queue:
        for number in range(5001):
            await queue.push(Job(f"x{number}", gate, lane="x"))
        await queue.push(Job("y", first, lane="y"))
        await asyncio.wait_for(first.started.wait(), 1)
        assert queue.stats()["x"].waiting == 5000
        first.opened.set()
        gate.opened.set()


async def test_low_work_starts_at_once_under_constant_high_load() -> None:
    # The rule: lanes are independent, so no load of one lane delays another.
    stop = asyncio.Event()
    started = Gate()

    async def load(number: int) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            await queue.push_and_wait(Job(f"high {number} {count}", turns, args=(1,), lane="high"))

    lanes = {name: LaneConfig(capacity=2, permits=1) for name in ("high", "low")}
    async with Queue(lanes) as queue:
        loads = [asyncio.create_task(load(number)) for number in range(10)]
        await turns(20)
        await queue.push(Job("low", started, lane="low"))
        await turns(3)
        assert started.runs == 1
        started.opened.set()
        stop.set()
        await asyncio.gather(*loads)
