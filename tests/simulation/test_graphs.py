"""Jobs that wait for jobs: random graphs with one permit and one place in each lane."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from random import Random
from typing import Any

from agentq import Cached, Completed, Job, LaneConfig, Queue, WouldDeadlock
from simulation.invariants import check_rest
from simulation.seeds import sweep
from simulation.watch import Run, Watch, until

TIGHT = LaneConfig(capacity=1, permits=1)
WAYS = ("one by one", "by handle", "gather", "group", "map", "helper", "push first")


class Graph:
    """Nodes that add up their own number and the outputs of the nodes they wait for."""

    def __init__(self, seed: int, *, cyclic: bool) -> None:
        self.random = random = Random(seed)
        self.lanes = dict.fromkeys(["high", "normal", "low"][: random.choice((1, 1, 2, 3))], TIGHT)
        size = random.randint(2, 14)
        self.lane_of = [random.choice(list(self.lanes)) for _ in range(size)]
        self.way_of = [random.choice(WAYS) for _ in range(size)]
        self.needs: list[list[int]] = []
        for node in range(size):
            others = list(range(size)) if cyclic else list(range(node + 1, size))
            wanted = random.choice((0, 1, 2, 3, 5))
            self.needs.append(random.sample(others, min(wanted, len(others))))
        self.refused = 0
        self.watch = Watch(self.lanes, lambda _: 1)
        self.queue = Queue(self.lanes, on_change=self.watch.on_change)

    def job(self, node: int) -> Job:
        return Job(f"n{node}", self._node, args=(node,), lane=self.lane_of[node])

    async def _node(self, node: int) -> tuple[str, int]:
        key = f"n{node}"
        with self.watch.run(key, self.lane_of[node]) as run:
            await asyncio.sleep(self.random.choice((0, 0, 1)))
            totals = await self._totals(run, self.way_of[node], self.needs[node])
            run.number = 1000 * node + sum(totals)  # its output, which `watch` looks at too
            return run.output()

    async def _totals(self, run: Run, way: str, nodes: Sequence[int]) -> list[int]:
        match way:
            case "gather":
                return await asyncio.gather(*(self._total(run, node) for node in nodes))
            case "group":
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._total(run, node)) for node in nodes]
                return [task.result() for task in tasks]
            case "map":
                return await self._mapped(run, nodes)
            case "helper":
                helper = asyncio.create_task(self._totals(run, "one by one", nodes))
                await asyncio.sleep(0)
                return await helper
            case "by handle":
                return await self._by_handles(run, nodes)
            case "push first":
                for node in nodes:
                    with run.waiting():
                        await self.queue.push(self.job(node))
        return [await self._total(run, node) for node in nodes]

    async def _total(self, run: Run, node: int) -> int:
        try:
            with run.waiting():
                output = await self.queue.push_and_wait(self.job(node))
        except WouldDeadlock:
            self.refused += 1
            return 0
        assert output[0] == f"n{node}"
        return int(output[1])

    async def _by_handles(self, run: Run, nodes: Sequence[int]) -> list[int]:
        accepted = []
        for node in nodes:
            with run.waiting():
                accepted.append(await self.queue.push(self.job(node)))
        totals = []
        for one in accepted:
            if isinstance(one, Cached):
                totals.append(int(one.output[1]))
                continue
            try:
                with run.waiting():
                    totals.append(int((await one.handle.result())[1]))
            except WouldDeadlock:
                self.refused += 1
        return totals

    async def _mapped(self, run: Run, nodes: Sequence[int]) -> list[int]:
        totals = []
        outcomes: Any = self.queue.map([self.job(node) for node in nodes])
        async with aclosing(outcomes):
            for _ in nodes:
                try:
                    with run.waiting():
                        _, outcome = await anext(outcomes)
                except WouldDeadlock:
                    self.refused += 1
                    break
                assert isinstance(outcome, Completed)
                totals.append(int(outcome.output[1]))
        return totals

    async def run(self) -> None:
        """Push some nodes from outside at once, and wait until everything has come to an end."""
        roots = [0, *(node for node in range(1, len(self.needs)) if self.random.random() < 0.3)]
        async with self.queue:
            self.watch.follow(self.queue)
            await asyncio.gather(*(self._root(node) for node in roots))
        check_rest(self.queue)
        await until(lambda: len(asyncio.all_tasks()) == 1)
        self.reached = self._reachable(roots)

    async def _root(self, node: int) -> None:
        await asyncio.sleep(self.random.choice((0, 0, 1)))
        await self.queue.push_and_wait(self.job(node))

    def _reachable(self, roots: list[int]) -> set[int]:
        reached: set[int] = set()
        pending = list(roots)
        while pending:
            node = pending.pop()
            if node not in reached:
                reached.add(node)
                pending.extend(self.needs[node])
        return reached

    def expected_total(self, node: int) -> int:
        return 1000 * node + sum(self.expected_total(other) for other in self.needs[node])

    def has_circle(self) -> bool:
        """Tell whether any node that ran can reach itself."""
        return any(node in self._reachable(self.needs[node]) for node in self.reached)


async def acyclic(seed: int) -> None:
    graph = Graph(seed, cyclic=False)
    await graph.run()
    assert graph.refused == 0
    assert graph.watch.runs == Counter(f"n{node}" for node in graph.reached)
    for node in graph.reached:
        expected = Completed((f"n{node}", graph.expected_total(node)))
        assert graph.queue.state(f"n{node}") == expected


async def cyclic(seed: int) -> None:
    graph = Graph(seed, cyclic=True)
    await graph.run()
    assert (graph.refused > 0) == graph.has_circle()


def test_acyclic_graphs_complete_with_exact_outputs() -> None:
    sweep(acyclic, 300)


def test_circles_are_broken_and_nothing_else_is_refused() -> None:
    sweep(cyclic, 300)


async def nobody_needs_it(seed: int) -> None:
    """A lent permit is for what is waited for, not for whatever happens to be in the lane."""
    random = Random(seed)
    lanes = {"normal": LaneConfig(capacity=4, permits=1), "low": TIGHT}
    watch = Watch(lanes, lambda _: 1)

    async def leaf(key: str, lane: str) -> tuple[str, int]:
        with watch.run(key, lane) as run:
            await asyncio.sleep(random.choice((0, 1)))
            return run.output()

    def job(key: str, lane: str) -> Job:
        return Job(key, leaf, args=(key, lane), lane=lane)

    async def parent() -> tuple[str, int]:
        with watch.run("parent", "normal") as run:
            await asyncio.sleep(1)  # until all of them wait in the lane
            with run.waiting():
                await queue.push_and_wait(job("elsewhere", "low"))
                await queue.push_and_wait(job("needed", "normal"))
            assert set(watch.runs) == {"parent", "elsewhere", "needed"}
            return run.output()

    async with Queue(lanes, on_change=watch.on_change) as queue:
        watch.follow(queue)
        await queue.push(Job("parent", parent))
        for key in ("other 1", "other 2", "needed"):
            await queue.push(job(key, "normal"))
    assert [queue.state(key) for key in watch.runs] == [
        Completed((key, 1)) for key in ("parent", "elsewhere", "needed", "other 1", "other 2")
    ]


def test_a_lent_permit_is_for_what_is_waited_for() -> None:
    sweep(nobody_needs_it, 50, slow=False)
