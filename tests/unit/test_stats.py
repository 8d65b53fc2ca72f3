"""`stats()`: the numbers of every lane, right at each step."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from gates import Gate, turns, value

from agentq import Cached, Job, JobFailed, LaneConfig, LaneStats, Queue, Queued, Retry, Transition


def numbers(queue: Queue, lane: str = "normal") -> dict[str, int]:
    """The numbers of a lane that are not zero, without its limits."""
    stats = queue.stats()[lane]
    return {
        name: number
        for name in LaneStats.__dataclass_fields__
        if name not in ("capacity", "permits") and (number := getattr(stats, name))
    }


async def test_each_step_of_a_jobs_life_is_counted_where_it_is() -> None:
    gate, child = Gate(), Gate()
    fail = True

    async def parent() -> None:
        await gate()
        await queue.push_and_wait(Job("child", child, lane="high"))
        if fail:
            raise ValueError

    async with Queue({"normal": LaneConfig(capacity=2, permits=1)}) as queue:
        assert numbers(queue) == {}
        retry = Retry(attempts=2, initial=0.05, jitter=0)
        running = asyncio.create_task(queue.push_and_wait(Job("k", parent, retry=retry)))
        await gate.started.wait()
        assert numbers(queue) == {"running": 1}
        await queue.push(Job("w1", value))
        await queue.push(Job("w2", value))
        assert numbers(queue) == {"running": 1, "waiting": 2}
        room = asyncio.create_task(queue.push(Job("no room", value)))
        await turns(2)
        assert numbers(queue) == {"running": 1, "waiting": 2}
        await queue.push(Job("w1", value))
        assert numbers(queue) == {"running": 1, "waiting": 2, "joined": 1}
        gate.opened.set()
        await child.started.wait()
        assert numbers(queue) == {"lending": 1, "waiting": 2, "joined": 1}
        assert numbers(queue, "high") == {"running": 1}
        child.opened.set()
        await room
        while "retrying" not in numbers(queue):
            await turns(1)
        await turns(10)
        assert numbers(queue) == {"retrying": 1, "completed": 3, "joined": 1}
        fail = False
        await running
        assert numbers(queue) == {"completed": 4, "joined": 1}
        await queue.push_and_wait(Job("k", value))
        assert numbers(queue) == {"completed": 4, "joined": 1, "cached": 1}
        assert numbers(queue, "high") == {"completed": 1, "cached": 1}
        queue.cancel("k")
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("f", len))
        assert numbers(queue) == {"completed": 4, "failed": 1, "joined": 1, "cached": 1}


async def test_the_limits_are_told_as_configured() -> None:
    async with Queue({"gpu": LaneConfig(capacity=7, permits=3)}) as queue:
        stats = queue.stats()
        assert (stats["gpu"].capacity, stats["gpu"].permits) == (7, 3)
        assert list(stats) == ["high", "normal", "low", "gpu"]


async def test_joins_and_hits_are_counted_in_the_lane_of_the_job() -> None:
    gate = Gate()
    async with Queue() as queue:
        await queue.push(Job("k", gate, lane="high"))
        for _ in range(3):
            await queue.push(Job("k", gate, lane="low"))
        gate.opened.set()
        await queue.push_and_wait(Job("k", gate, lane="low"))
        assert numbers(queue, "high")["joined"] == 4
        assert "joined" not in numbers(queue, "low")


class Tally:
    """Counts, from the changes of state alone, what the numbers of each lane should be."""

    def __init__(self) -> None:
        self.state_of: dict[str, tuple[str, str]] = {}
        self.ended: Counter[tuple[str, str]] = Counter()

    def __call__(self, change: Transition) -> None:
        after = type(change.after).__name__
        self.state_of[change.key] = (change.lane, after)
        if after in ("Completed", "Failed"):
            self.ended[change.lane, after] += 1

    def now(self, lane: str, state: str) -> int:
        return list(self.state_of.values()).count((lane, state))


@pytest.mark.parametrize("seed", range(20))
async def test_the_numbers_agree_with_the_states_at_each_step(seed: int) -> None:
    chance = random.Random(seed)
    lanes = {"normal": LaneConfig(capacity=3, permits=2), "high": LaneConfig(capacity=2, permits=1)}
    lane_of = [chance.choice(list(lanes)) for _ in range(30)]
    tally = Tally()
    queued = 0

    async def work(number: int, depth: int) -> None:
        await turns(chance.randrange(4))
        if depth and chance.random() < 0.5:
            await push(30 * depth + number, depth - 1)
        if chance.random() < 0.3:
            raise ValueError

    async def push(number: int, depth: int) -> Any:
        nonlocal queued
        retry = Retry(attempts=2, initial=0) if chance.random() < 0.5 else None
        job = Job(f"k{number}", work, args=(number, depth), lane=lane_of[number % 30], retry=retry)
        answer = await queue.push(job)
        queued += type(answer) is Queued
        return None if isinstance(answer, Cached) else await answer.handle

    def agree() -> None:
        for name in lanes:
            stats = queue.stats()[name]
            assert 0 <= stats.running <= stats.permits
            assert 0 <= stats.waiting <= stats.capacity
            assert stats.running + stats.lending == tally.now(name, "Processing")
            assert 0 <= stats.waiting + stats.retrying <= tally.now(name, "Pending")
            assert stats.completed == tally.ended[name, "Completed"]
            assert stats.failed == tally.ended[name, "Failed"]

    async with Queue(lanes, on_change=tally) as queue:
        unfinished = {asyncio.create_task(push(number, 2)) for number in range(30)}
        while unfinished:
            await turns(1)
            if chance.random() < 0.2:
                queue.cancel(f"k{chance.randrange(30)}")
            agree()
            unfinished = {task for task in unfinished if not task.done()}
        await queue.drain()
        agree()
        assert sum(tally.ended.values()) == queued
        for name in lanes:
            stats = queue.stats()[name]
            at_rest = (stats.waiting, stats.running, stats.lending, stats.retrying)
            assert at_rest == (0, 0, 0, 0)
