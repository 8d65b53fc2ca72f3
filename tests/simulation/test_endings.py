"""How it all ends: the loop goes away, the block is cancelled, a job interrupts the program."""

import asyncio
import contextlib
import random as random_module
from random import Random
from typing import Any

import pytest

from agentq import (
    Completed,
    Failed,
    Job,
    JobFailed,
    JobHandle,
    JobLost,
    LaneConfig,
    Queue,
    QueueClosed,
    Queued,
)
from agentq.queue.entry import SETTLED
from agentq.testing import simulate
from simulation.bodies import Bodies, Spec, random_spec
from simulation.invariants import check_rest
from simulation.seeds import noted, run_seed, seeds, sweep
from simulation.watch import Watch


class Abandoned:
    """A queue whose program ends, somewhere, without closing it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        lanes = {"normal": LaneConfig(capacity=2, permits=random.choice((1, 2)))}
        keys = [f"k{number}" for number in range(6)]
        self.specs: dict[str, Spec] = {}
        for number, key in enumerate(keys):
            spec = random_spec(random, key, ["normal"], keys[number + 1 :])
            spec.on_thread = False  # a thread does not end with the loop
            self.specs[key] = spec
        self.watch = Watch(lanes, lambda key: self.specs[key].attempts)
        self.queue = Queue(lanes, on_change=self.watch.on_change)
        self.bodies = Bodies(self.queue, self.watch, self.specs)
        self.handles: list[JobHandle] = []
        self.answers: list[object] = []
        self.waiting = 0

    async def _caller(self) -> None:
        for key in self.random.sample(list(self.specs), 4):
            accepted = await self.queue.push(self.bodies.job(key))
            handle = getattr(accepted, "handle", None)
            if handle is not None:
                self.handles.append(handle)

    async def _stubborn_waiter(self, handle: JobHandle) -> None:
        """Waits on although it is cancelled: then it must be told."""
        self.waiting += 1
        while True:
            try:
                self.answers.append(await handle)
                return
            except asyncio.CancelledError:
                continue
            except JobLost as error:
                self.answers.append(error)
                return

    async def main(self, *, in_block: bool) -> None:
        if not in_block:
            await self.queue.__aenter__()
            await self._start()
            return
        async with self.queue:
            await self._start()
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            await asyncio.sleep(0)

    async def _start(self) -> None:
        self.watch.follow(self.queue)
        self.callers = [asyncio.create_task(self._caller()) for _ in range(3)]
        for _ in range(self.random.randint(0, 15)):
            await asyncio.sleep(self.random.choice((0, 0, 0, 1)))
        self.waiters = [
            asyncio.create_task(self._stubborn_waiter(handle)) for handle in self.handles
        ]

    def check(self) -> None:
        check_rest(self.queue)
        assert all(handle._entry.phase is SETTLED for handle in self.handles)
        assert len(self.answers) == self.waiting
        assert all(isinstance(one, Completed | Failed | JobLost) for one in self.answers)


@pytest.mark.parametrize("in_block", [False, True])
def test_every_handle_resolves_when_the_loop_goes_away(in_block: bool) -> None:
    for seed in seeds(300):
        program = Abandoned(seed)

        async def main(_: int, program: Abandoned = program) -> None:
            try:
                await program.main(in_block=in_block)
            except asyncio.CancelledError:
                assert in_block

        run_seed(main, seed)
        with noted(seed):
            program.check()


def test_an_interrupt_in_a_job_stops_the_program_and_is_recorded() -> None:
    random_module.seed(0)
    for seed in seeds(50):
        seen: list[Any] = []

        async def main(seen: list[Any] = seen) -> None:
            async def interrupted() -> None:
                await asyncio.sleep(0)
                raise KeyboardInterrupt

            async def waiter() -> None:
                with pytest.raises(JobFailed) as caught:
                    await queue.push_and_wait(Job("k", interrupted))
                seen.append(caught.value.__cause__)

            async with Queue() as queue:
                seen.append(queue)
                async with asyncio.TaskGroup() as group:
                    group.create_task(waiter())
                    group.create_task(waiter())

        with noted(seed):
            with pytest.raises(KeyboardInterrupt):
                simulate(main(), seed=seed)
            queue, *_ = seen
            assert queue.state("k") == Failed("KeyboardInterrupt")
            check_rest(queue)


async def drained_behind_a_lingering_run(seed: int) -> None:
    """A claim accepted while the key's last run still cleans up is kept, whenever draining begins.

    Its way: parked behind that run, then in line for a place, then in the lane.
    """
    random = Random(seed)
    lanes = {"normal": LaneConfig(capacity=1, permits=1)}
    watch = Watch(lanes, lambda _: 1)

    async def work(key: str) -> tuple[str, int]:
        with watch.run(key, "normal") as run:
            if key == "k" and run.number == 1:
                try:
                    await asyncio.sleep(100)
                except asyncio.CancelledError:
                    await asyncio.sleep(random.choice((1, 2)))
                    raise
            await asyncio.sleep(random.choice((0, 1)))
            return run.output()

    def job(key: str) -> Job:
        return Job(key, work, args=(key,), timeout=1.5 if key == "k" else None)

    async def push(key: str) -> None:
        with contextlib.suppress(QueueClosed):
            await queue.push(job(key))

    async with Queue(lanes, on_change=watch.on_change) as queue:
        watch.follow(queue)
        first = await queue.push(job("k"))
        others = [asyncio.create_task(push(key)) for key in ("a", "b", "c")]
        assert isinstance(first, Queued)
        assert await first.handle == Failed("timed out after 1.5 s")
        again = await queue.push(job("k"))
        assert isinstance(again, Queued)
        for _ in range(random.randint(0, 20)):
            await asyncio.sleep(random.choice((0, 0, 0, 1)))
        await queue.drain()
        assert await again.handle == Completed(("k", 2))
        await asyncio.wait(others)
    check_rest(queue)


def test_what_was_accepted_is_kept_when_draining() -> None:
    sweep(drained_behind_a_lingering_run, 150, slow=False)
