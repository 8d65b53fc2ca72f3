"""`map` over endless sources: bounded, every job answered once, the source closed in the end."""

import asyncio
from collections import Counter
from contextlib import aclosing
from random import Random
from typing import Any

from agentq import Completed, Failed, Job, LaneConfig, Queue
from simulation.invariants import check_rest
from simulation.seeds import sweep
from simulation.watch import Watch, until

LANES = {
    "high": LaneConfig(capacity=1, permits=1),
    "normal": LaneConfig(capacity=2, permits=2),
    "low": LaneConfig(capacity=1, permits=1),
}
WINDOW = sum(config.capacity + config.permits for config in LANES.values())


class Batch:
    """Maps over a source without an end until it has enough."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.watch = Watch(LANES, lambda _: 1)
        self.queue = Queue(LANES, on_change=self.watch.on_change)
        self.taken: list[str] = []
        self.closed = False

    async def _work(self, key: str, lane: str) -> tuple[str, int]:
        with self.watch.run(key, lane) as run:
            await asyncio.sleep(self.random.choice((0, 0, 1, 3)))
            if key.endswith("3"):
                raise ValueError(key)
            return run.output()

    def _next(self) -> Job:
        # Every key comes up again and again: while in flight, when completed, when failed.
        key = f"k{self.random.randrange(30)}"
        self.taken.append(key)
        lane = list(LANES)[int(key[1:]) % len(LANES)]
        return Job(key, self._work, args=(key, lane), lane=lane)

    def _at_once(self) -> Any:
        try:
            while True:
                yield self._next()
        finally:
            self.closed = True

    async def _slowly(self) -> Any:
        try:
            while True:
                await asyncio.sleep(self.random.choice((0, 0, 1)))
                yield self._next()
        finally:
            self.closed = True

    async def main(self) -> None:
        queue, random = self.queue, self.random
        async with queue:
            self.watch.follow(queue)
            answered: Counter[str] = Counter()
            enough = random.randint(1, 60)
            source = self._slowly() if random.random() < 0.5 else self._at_once()
            outcomes: Any = queue.map(source)
            async with aclosing(outcomes):
                async for key, outcome in outcomes:
                    answered[key] += 1
                    if key.endswith("3"):
                        assert outcome == Failed(f"ValueError: {key}")
                    else:
                        assert outcome == Completed((key, 1))
                    assert len(self.taken) <= answered.total() + WINDOW
                    assert answered <= Counter(self.taken)
                    if answered.total() == enough:
                        break
                    if random.random() < 0.1:
                        await asyncio.sleep(random.choice((0, 5)))
            assert self.closed
            # Jobs already pushed run on; the one that waited for room is withdrawn.
            assert not [lane for lane in queue._scheduler.lanes.values() if lane.admitting]
            await until(lambda: not queue._scheduler.ledger.live)
            check_rest(queue)
            assert len(set(self.taken) - set(self.watch.runs)) <= 1


def test_endless_sources() -> None:
    sweep(lambda seed: Batch(seed).main(), 150)
