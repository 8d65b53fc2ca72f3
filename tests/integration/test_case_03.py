"""C03: cancelling a push that waits for room wedges nothing.

Right: a cancelled push is either fully accepted or not there at all; it never occupies capacity,
and its key is free again if it was not accepted.
"""

import asyncio
import random

import pytest
from gates import Gate, turns

from agentq import Cached, Job, LaneConfig, Queue, Queued

LANES = {"normal": LaneConfig(capacity=2, permits=1)}


@pytest.mark.parametrize("seed", range(50))
async def test_what_was_accepted_runs_and_nothing_else_is_left(seed: int) -> None:
    for round_ in range(10):
        await one_round(random.Random(f"{seed}.{round_}"))


async def one_round(chance: random.Random) -> None:
    ran: list[str] = []
    accepted: set[str] = {"blocked"}

    async def note(key: str) -> None:
        await turns(chance.randrange(2))
        ran.append(key)

    async with Queue(LANES) as queue:
        gate = Gate()

        async def blocked() -> None:
            await gate()
            ran.append("blocked")

        await queue.push(Job("blocked", blocked))

        async def push(key: str) -> None:
            assert type(await queue.push(Job(key, note, args=(key,)))) is Queued
            accepted.add(key)

        pushes = {key: asyncio.create_task(push(key)) for key in ("a", "b", "c", "d", "e")}
        await turns(2)
        victims = chance.sample(["c", "d", "e"], chance.randint(1, 3))
        if chance.random() < 0.5:  # in the same tick in which a place becomes free
            if chance.random() < 0.5:
                gate.opened.set()
                await turns(chance.randrange(4))
            elif queue.cancel("a"):
                accepted.discard("a")
        for key in victims:
            pushes[key].cancel()
        await asyncio.gather(*(pushes[key] for key in victims), return_exceptions=True)
        for key in set(victims) - accepted:
            assert queue.state(key) is None
        gate.opened.set()
        survivors = [pushes[key] for key in pushes if key not in victims]
        await asyncio.wait_for(asyncio.gather(*survivors), 5)
        while set(ran) != accepted:
            await asyncio.wait_for(turns(1), 5)
        stats = queue.stats()["normal"]
        assert (stats.waiting, stats.running) == (0, 0)
        full = Gate()
        for number in range(3):  # one runs, `capacity` wait: none of them has to wait for room
            async with asyncio.timeout(1):
                await queue.push(Job(f"after {number}", full))
        full.opened.set()
        for key in set(victims) - accepted:
            answer = await queue.push(Job(key, note, args=(key,)))
            assert not isinstance(answer, Cached)
            await answer.handle
            accepted.add(key)
        await queue.drain()
    assert sorted(ran) == sorted(accepted)
