"""Pushes that wait for room: cancelled while the lane is full, or in the step it gets room."""

import asyncio
from collections import Counter
from random import Random

from agentq import Completed, Job, LaneConfig, Pending, Queue, Transition
from simulation.invariants import check_rest
from simulation.seeds import sweep
from simulation.watch import Watch, until

LANE = {"normal": LaneConfig(capacity=2, permits=1)}


class Pushers:
    """One blocked job, two places, and several pushers more than there is room for."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.watch = Watch(LANE, lambda _: 1)
        self.queue = Queue(LANE, on_change=self._on_change)
        self.gate = asyncio.Event()
        self.accepted: set[str] = set()
        self.doomed: list[asyncio.Task[None]] = []
        self.same_step = self.random.random() < 0.5

    def _on_change(self, transition: Transition) -> None:
        self.watch.on_change(transition)
        # A place has just become free, and whoever gets it has not run yet.
        if transition.key == "blocker" and isinstance(transition.after, Completed):
            self._cancel_doomed()

    def _cancel_doomed(self) -> None:
        for task in self.doomed:
            task.cancel()
        self.doomed.clear()

    def job(self, key: str) -> Job:
        return Job(key, self._work, args=(key,))

    async def _work(self, key: str) -> tuple[str, int]:
        with self.watch.run(key, "normal") as run:
            if key == "blocker":
                await self.gate.wait()
            return run.output()

    async def _push(self, key: str) -> None:
        try:
            await self.queue.push(self.job(key))
        except asyncio.CancelledError:
            # Nothing of it is left, unless it has just started.
            assert not isinstance(self.queue.state(key), Pending)
            raise
        self.accepted.add(key)

    async def main(self) -> None:
        queue, random = self.queue, self.random
        async with queue:
            self.watch.follow(queue)
            await self._push("blocker")
            pushers = {
                key: asyncio.create_task(self._push(key), name=f"push {key}")
                for key in [f"k{number}" for number in range(random.randint(4, 7))]
            }
            await until(lambda: queue._scheduler.lanes["normal"].admitting == len(pushers) - 2)
            waiting = [key for key, task in pushers.items() if not task.done()]
            assert len(waiting) == len(pushers) - 2
            doomed = random.sample(waiting, random.randint(1, len(waiting)))
            self.doomed = [pushers[key] for key in doomed]
            if not self.same_step:
                self._cancel_doomed()
                await asyncio.sleep(random.choice((0, 1)))
            self.gate.set()
            await asyncio.wait(pushers.values())
            assert all(task.cancelled() or task.exception() is None for task in pushers.values())
            await until(lambda: not queue._scheduler.ledger.live)
            self.accepted.update(key for key in doomed if queue.state(key) is not None)
            assert set(self.watch.runs) == self.accepted
            check_rest(queue)
            await self._check_refused_can_run(set(doomed) - self.accepted)

    async def _check_refused_can_run(self, keys: set[str]) -> None:
        for key in keys:
            assert self.queue.state(key) is None
            assert await self.queue.push_and_wait(self.job(key)) == (key, 1)
        assert set(self.watch.runs.values()) == {1}


def test_cancelled_pushers_are_in_or_out() -> None:
    sweep(lambda seed: Pushers(seed).main(), 500)


async def first_come_first_served(seed: int) -> None:
    """With one permit, jobs start in the order of their claims, whoever gives up in between."""
    random = Random(seed)
    started: list[str] = []
    claimed: list[str] = []
    withdrawn: Counter[str] = Counter()

    def on_change(transition: Transition) -> None:
        if transition.before is None:
            claimed.append(transition.key)
        if transition.after is None:
            withdrawn[transition.key] += 1

    async def work(key: str) -> None:
        started.append(key)
        await asyncio.sleep(random.choice((0, 1)))

    async def push(key: str) -> None:
        await asyncio.sleep(random.choice((0, 0, 1, 2)))
        await queue.push(Job(key, work, args=(key,)))

    async with Queue(LANE, on_change=on_change) as queue:
        keys = [f"k{number}" for number in range(9)]
        pushers = [asyncio.create_task(push(key)) for key in keys]
        for _ in range(3):
            await asyncio.sleep(random.choice((0, 1)))
            random.choice(pushers).cancel()
        await asyncio.wait(pushers)
    assert started == [key for key in claimed if not withdrawn[key]]


def test_first_come_first_served() -> None:
    sweep(first_come_first_served, 200)
