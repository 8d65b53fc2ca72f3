"""Promise 8 over random graphs of jobs: they complete, each once, within the permits."""

import asyncio
import random
from typing import Any

import pytest

from agentq import Completed, Job, JobFailed, LaneConfig, Queue, WouldDeadlock

SEEDS = range(120)


class Graph:
    """Jobs that wait for one another as a random graph says, each in its own random way."""

    def __init__(self, seed: int, *, acyclic: bool) -> None:
        chance = random.Random(seed)
        self.lanes = {
            f"lane {number}": LaneConfig(
                capacity=chance.choice((1, 1, 2)), permits=chance.choice((1, 1, 2))
            )
            for number in range(chance.choice((1, 2, 3)))
        }
        self.nodes = range(chance.randint(2, 14))
        self.lane_of = [chance.choice(list(self.lanes)) for _ in self.nodes]
        self.needs = [
            [
                other
                for other in self.nodes
                if (other > node if acyclic else True) and chance.random() < 0.3
            ]
            for node in self.nodes
        ]
        self.way = [chance.randrange(4) for _ in self.nodes]
        self.yields = [chance.randrange(3) for _ in self.nodes]
        self.ran: list[int] = []
        self.own_code = dict.fromkeys(self.lanes, 0)
        self.told = 0

    def job(self, node: int) -> Job:
        return Job(f"node {node}", self.run, args=(node,), lane=self.lane_of[node])

    async def run(self, node: int) -> str:
        self.ran.append(node)
        self.enter(node)
        try:
            for _ in range(self.yields[node]):
                await asyncio.sleep(0)
            self.leave(node)
            try:
                await self.wait(node)
            except (WouldDeadlock, JobFailed):
                self.told += 1
            finally:
                self.enter(node)
            for _ in range(self.yields[node]):
                await asyncio.sleep(0)
        finally:
            self.leave(node)
        return f"output {node}"

    async def wait(self, node: int) -> None:
        jobs = [self.job(other) for other in self.needs[node]]
        if self.way[node] == 0:
            for job in jobs:
                await self.queue.push_and_wait(job)
        elif self.way[node] == 1:
            accepted = [await self.queue.push(job) for job in jobs]
            for answer in accepted:
                if hasattr(answer, "handle"):
                    await answer.handle
        elif self.way[node] == 2:
            # All waits are over when the job goes on: one that leaves a task waiting still lends.
            waits = (self.queue.push_and_wait(job) for job in jobs)
            for output in await asyncio.gather(*waits, return_exceptions=True):
                if isinstance(output, BaseException):
                    raise output
        else:
            async for _ in self.queue.map(jobs):
                pass

    def enter(self, node: int) -> None:
        lane = self.lane_of[node]
        self.own_code[lane] += 1
        assert self.own_code[lane] <= self.lanes[lane].permits

    def leave(self, node: int) -> None:
        self.own_code[self.lane_of[node]] -= 1

    async def complete(self) -> list[Any]:
        async with Queue(self.lanes) as self.queue:
            outputs = await asyncio.gather(
                *(self.queue.push_and_wait(self.job(node)) for node in self.nodes)
            )
            for lane in self.lanes:
                stats = self.queue.stats()[lane]
                left = (stats.running, stats.lending, stats.waiting, stats.retrying, stats.failed)
                assert left == (0, 0, 0, 0, 0)
            assert [self.queue.state(f"node {node}") for node in self.nodes] == [
                Completed(f"output {node}") for node in self.nodes
            ]
        return outputs


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_acyclic_graph_completes_within_the_permits(seed: int) -> None:
    graph = Graph(seed, acyclic=True)
    async with asyncio.timeout(10):
        outputs = await graph.complete()
    assert outputs == [f"output {node}" for node in graph.nodes]
    assert sorted(graph.ran) == list(graph.nodes)
    assert graph.told == 0


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_graph_with_rings_ends_and_each_job_still_runs_once(seed: int) -> None:
    graph = Graph(seed, acyclic=False)
    async with asyncio.timeout(10):
        outputs = await graph.complete()
    assert outputs == [f"output {node}" for node in graph.nodes]
    assert sorted(graph.ran) == list(graph.nodes)
