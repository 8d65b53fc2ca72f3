"""C10: a permit neither vanishes nor doubles when a waiter is cancelled at the hand-over."""

import asyncio
import random

import pytest
from gates import Gate, turns

from agentq import Failed, Job, JobFailed, LaneConfig, Queue, Queued, Retry


@pytest.mark.parametrize("order", ["release first", "cancel first"])
@pytest.mark.parametrize("by", ["pusher", "job", "timeout"])
async def test_the_one_behind_the_cancelled_one_runs_at_once(order: str, by: str) -> None:
    a, b, c = Gate(), Gate(), Gate()
    async with Queue({"normal": LaneConfig(capacity=5, permits=1)}) as queue:
        await queue.push(Job("a", a))
        pusher = asyncio.create_task(queue.push_and_wait(Job("b", b)))
        await a.started.wait()
        await turns(1)
        await queue.push(Job("c", c))

        def cancel() -> None:
            if by == "pusher":
                pusher.cancel()
            else:
                queue.cancel("b")

        if order == "release first":
            a.opened.set()
            cancel()
        else:
            cancel()
            a.opened.set()
        b.opened.set()
        await asyncio.wait_for(c.started.wait(), 1)
        assert queue.stats()["normal"].running == 1
        c.opened.set()
        await asyncio.gather(pusher, return_exceptions=True)
        await queue.drain()
        assert queue.stats()["normal"].running == 0


class Round:
    """Jobs of random length, some cancelled, some timed out, some failing, in a random order."""

    def __init__(self, seed: str, permits: int) -> None:
        self.chance = random.Random(seed)
        self.permits = permits
        self.now = self.most = 0

    async def job(self, yields: int, fails: bool) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await turns(yields)
            if fails:
                raise ValueError
        finally:
            self.now -= 1

    async def run(self) -> None:
        chance = self.chance
        async with Queue({"normal": LaneConfig(capacity=3, permits=self.permits)}) as queue:
            waits: list[asyncio.Task[object]] = []
            for number in range(10):
                job = Job(
                    f"k{number}",
                    self.job,
                    args=(chance.randrange(4), chance.random() < 0.2),
                    timeout=chance.choice((None, None, 1e-5)),
                    retry=chance.choice((None, None, Retry(attempts=2, initial=0))),
                )
                waits.append(asyncio.create_task(queue.push_and_wait(job)))
                await turns(chance.randrange(2))
                if chance.random() < 0.4:
                    chance.choice(waits).cancel()
                if chance.random() < 0.4:
                    queue.cancel(f"k{chance.randrange(number + 1)}")
            await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 5)
            gates = [Gate() for _ in range(self.permits)]
            for number, gate in enumerate(gates):
                await queue.push(Job(f"after {number}", gate))
            for gate in gates:
                await asyncio.wait_for(gate.started.wait(), 5)
            for gate in gates:
                gate.opened.set()
            await queue.drain()
            stats = queue.stats()["normal"]
            numbers = (stats.running, stats.waiting, stats.lending, stats.retrying)
            assert numbers == (0, 0, 0, 0)
        assert self.most <= self.permits
        assert self.now == 0


@pytest.mark.parametrize("permits", [1, 3])
@pytest.mark.parametrize("seed", range(20))
async def test_permits_are_conserved_over_seeded_rounds(seed: int, permits: int) -> None:
    for round_ in range(50):
        name = f"{seed}.{round_}"
        try:
            await Round(name, permits).run()
        except BaseException as error:
            error.add_note(f"seed {name!r}, {permits} permits")
            raise


async def test_a_job_cancelled_in_the_tick_in_which_it_is_given_a_permit_never_starts() -> None:
    a, b = Gate(), Gate()
    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        await queue.push(Job("a", a))
        accepted = await queue.push(Job("b", b))
        assert type(accepted) is Queued
        await a.started.wait()
        a.opened.set()
        while queue.stats()["normal"].completed == 0:
            await asyncio.sleep(0)
            queue.cancel("b")
        assert await accepted.handle == Failed("cancelled")
        with pytest.raises(JobFailed):
            await accepted.handle.result()
        assert queue.stats()["normal"].running == 0
    assert b.runs == 0
