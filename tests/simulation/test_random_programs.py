"""Random programs over a real queue, in thousands of orders of events."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from random import Random
from typing import Any

from agentq import (
    Cached,
    Completed,
    Job,
    JobHandle,
    JobLost,
    LaneConfig,
    Queue,
    QueueClosed,
    Retention,
    Transition,
)
from agentq.queue.entry import SETTLED
from simulation.bodies import EXPECTED, Bodies, failures, known_reason, random_spec
from simulation.invariants import check_rest
from simulation.seeds import sweep
from simulation.watch import Watch, until


class Program:
    """Several callers that push, wait, map, cancel and give up, and one queue."""

    def __init__(self, seed: int, *, cyclic: bool, closes: bool) -> None:
        self.random = random = Random(seed)
        self.closes = closes
        self.cyclic = cyclic
        names = ["high", "normal", "low"][: random.choice((1, 2, 3))]
        self.lanes = {
            name: LaneConfig(
                capacity=random.choice((1, 1, 2, 3)), permits=random.choice((1, 1, 2, 3))
            )
            for name in names
        }
        keys = [f"k{number}" for number in range(random.randint(3, 10))]
        self.specs = {
            key: random_spec(random, key, names, keys if cyclic else keys[number + 1 :])
            for number, key in enumerate(keys)
        }
        self.keys = keys
        retention = random.choice(
            (None, None, None, None, Retention(max_keys=2), Retention(ttl=2), Retention(max_keys=0))
        )
        self.watch = Watch(self.lanes, self._attempts, forgets=retention is not None)
        self.queue = Queue(self.lanes, retention=retention, on_change=self._on_change)
        self.bodies = Bodies(self.queue, self.watch, self.specs)
        self.forgets = retention is not None
        self.meddles = random.random() < 0.4
        self.callers: list[asyncio.Task[None]] = []
        self.handles: list[JobHandle] = []
        self.closed = False
        self.cut_short = False

    def _attempts(self, key: str) -> int:
        return self.specs[key].attempts if key in self.specs else 1

    def _on_change(self, transition: Transition) -> None:
        self.watch.on_change(transition)
        if not self.meddles:
            return
        # In the very step in which a place, a permit or an outcome changes hands.
        chance = self.random.random()
        if chance < 0.06 and self.callers:
            self.random.choice(self.callers).cancel()
        elif chance < 0.09:
            self.queue.cancel(self.random.choice(self.keys))
        elif chance < 0.10:
            raise ValueError("on_change fails")
        elif chance < 0.105 and self.closes:
            self.closed = self.cut_short = True
            self.queue.close()

    async def caller(self) -> None:
        """One caller outside of jobs."""
        for _ in range(self.random.randint(1, 6)):
            key = self.random.choice(self.keys)
            verb = self.random.choice(
                (self.push, self.push, self.push_and_wait, self.give_up, self.map, self.cancel)
            )
            with suppress(*EXPECTED):
                await verb(key)
            if self.random.random() < 0.3:
                await asyncio.sleep(self.random.choice((0, 0, 1)))

    async def push(self, key: str) -> None:
        accepted = await self.queue.push(self.bodies.job(key))
        if isinstance(accepted, Cached):
            assert accepted.output[0] == key
            return
        self.handles.append(accepted.handle)
        assert accepted.handle.key == key
        if self.random.random() < 0.5:
            await accepted.handle

    async def push_and_wait(self, key: str) -> None:
        output = await self.queue.push_and_wait(self.bodies.job(key))
        assert output[0] == key

    async def give_up(self, key: str) -> None:
        try:
            async with asyncio.timeout(self.random.choice((0, 1, 2))):
                await self.push_and_wait(key)
        except TimeoutError:
            pass

    async def map(self, key: str) -> None:
        keys = [key, *self.random.choices(self.keys, k=self.random.randint(0, 5))]
        jobs = [self.bodies.job(other) for other in keys]
        leave_after = self.random.randint(1, 2 * len(keys))
        answered = []
        given, closed = self._source(jobs)
        outcomes: Any = self.queue.map(given)
        async with aclosing(outcomes):
            async for done, outcome in outcomes:
                answered.append(done)
                if isinstance(outcome, Completed):
                    assert outcome.output[0] == done
                if len(answered) == leave_after:
                    break
        assert closed()
        if len(answered) < leave_after:
            assert sorted(answered) == sorted(keys)

    def _source(self, jobs: list[Job]) -> tuple[Any, Callable[[], bool]]:
        """The jobs as one of the kinds of iterable, and whether it has been closed."""
        ended = []

        def at_once() -> Any:
            try:
                yield from jobs
            finally:
                ended.append(True)

        async def slowly() -> Any:
            try:
                for job in jobs:
                    await asyncio.sleep(self.random.choice((0, 0, 1)))
                    yield job
            finally:
                ended.append(True)
                await asyncio.sleep(0)

        match self.random.choice(("list", "generator", "async generator")):
            case "list":
                return jobs, lambda: True
            case "generator":
                return at_once(), lambda: bool(ended)
        return slowly(), lambda: bool(ended)

    async def cancel(self, key: str) -> None:
        in_flight = key in self.queue._scheduler.ledger.live
        assert self.queue.cancel(key) == in_flight

    async def main(self) -> None:
        queue, random = self.queue, self.random
        async with queue:
            self.watch.follow(queue)
            self.watch.simulate_threads(queue, lambda: random.choice((0, 0, 1, 2)))
            self.callers = [
                asyncio.create_task(self.caller(), name=f"caller {number}")
                for number in range(random.randint(2, 7))
            ]
            for _ in range(random.choice((0, 1, 3))):
                await self._some_ticks()
                random.choice(self.callers).cancel()
            if self.closes:
                await self._close()
            await _ended(self.callers)
            if not self.closed:
                await self._come_to_rest()
                self._check_room()
        await self._check_end()

    async def _some_ticks(self) -> None:
        for _ in range(self.random.randint(0, 12)):
            await asyncio.sleep(0)
        if self.random.random() < 0.3:
            await asyncio.sleep(1)

    async def _close(self) -> None:
        await self._some_ticks()
        self.closed = True
        how = self.random.choice(
            ("close", "close and wait", "drain", "drain twice", "drain for a while", "give up")
        )
        self.cut_short = self.cut_short or not how.startswith("drain") or how.endswith("while")
        match how:
            case "close":
                self.queue.close()
            case "close and wait":
                await self.queue.close()
            case "drain":
                await self.queue.drain()
            case "drain twice":
                await asyncio.gather(self.queue.drain(), self.queue.drain())
            case "drain for a while":
                await self.queue.drain(self.random.choice((0, 1, 2)))
            case "give up":
                draining = asyncio.create_task(self.queue.drain())
                await self._some_ticks()
                draining.cancel()
                await asyncio.wait([draining])

    async def _come_to_rest(self) -> None:
        scheduler = self.queue._scheduler
        await until(lambda: not scheduler.ledger.live and not scheduler.lingering)
        await until(lambda: len(asyncio.all_tasks()) == 2)  # this one and the keeper
        check_rest(self.queue)
        if not self.forgets:
            self.watch.check_states(self.queue)

    def _check_room(self) -> None:
        """As many pushes as have room go in without waiting: no place and no permit is lost."""
        self.meddles = False
        for name, config in self.lanes.items():
            for number in range(config.permits + config.capacity):
                key = f"probe {name} {number}"
                job = Job(key, self._probe, args=(key, name), lane=name)
                _at_once(self.queue.push(job))
            stats = self.queue.stats()[name]
            assert (stats.running, stats.waiting) == (config.permits, config.capacity)

    async def _probe(self, key: str, lane: str) -> Any:
        with self.watch.run(key, lane) as run:
            return run.output()

    async def _check_end(self) -> None:
        scheduler = self.queue._scheduler
        await until(lambda: not scheduler.lingering and len(asyncio.all_tasks()) == 1)
        check_rest(self.queue)
        for handle in self.handles:
            assert handle._entry.phase is SETTLED
            try:
                await handle
            except JobLost:
                assert self.closed
        for failure in failures(self.watch):
            assert known_reason(failure.reason), failure
            assert self.cut_short or not failure.reason.startswith("lost")
        assert self.cyclic or not self.bodies.refused
        try:
            await self.queue.push(Job("late", _nothing, lane="high"))
        except QueueClosed:
            pass
        else:
            raise AssertionError("a closed queue took a job")


async def _nothing() -> None:
    pass


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


def _at_once(answer: Awaitable[Any]) -> None:
    coroutine: Any = answer
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise AssertionError("a push waited although there was room")


def test_open_queue() -> None:
    sweep(lambda seed: Program(seed, cyclic=False, closes=False).main(), 400)


def test_closing_queue() -> None:
    sweep(lambda seed: Program(seed, cyclic=False, closes=True).main(), 400)


def test_jobs_that_wait_in_circles() -> None:
    sweep(lambda seed: Program(seed, cyclic=True, closes=False).main(), 300)


def test_jobs_that_wait_in_circles_while_closing() -> None:
    sweep(lambda seed: Program(seed, cyclic=True, closes=True).main(), 300)
