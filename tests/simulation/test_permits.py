"""The hand-over of a permit: it goes to the next in line, whatever is cancelled in that step."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from agentq import Completed, Failed, Job, JobFailed, LaneConfig, Queue, Retry, Transition
from simulation.invariants import check_rest
from simulation.seeds import sweep
from simulation.watch import Run, Watch, until


class HandOver:
    """`limit` jobs hold the permits, others wait; one of them is ended as a permit comes free."""

    def __init__(self, seed: int, limit: int) -> None:
        self.random = Random(seed)
        self.limit = limit
        self.lanes = {"normal": LaneConfig(capacity=10, permits=limit)}
        self.watch = Watch(self.lanes, lambda _: 1)
        self.queue = Queue(self.lanes, on_change=self._on_change)
        self.gates = [asyncio.Event() for _ in range(limit)]
        self.at_hand_over: Callable[[], object] | None = None

    def _on_change(self, transition: Transition) -> None:
        self.watch.on_change(transition)
        if isinstance(transition.after, Completed | Failed) and self.at_hand_over is not None:
            act, self.at_hand_over = self.at_hand_over, None
            act()

    def job(self, key: str, *, timeout: float | None = None) -> Job:
        return Job(key, self._work, args=(key,), timeout=timeout)

    async def _work(self, key: str) -> tuple[str, int]:
        with self.watch.run(key, "normal") as run:
            if key.startswith("holder"):
                await self.gates[int(key.removeprefix("holder"))].wait()
            else:
                await asyncio.sleep(self.random.choice((0, 1)))
            return run.output()

    def _release(self) -> None:
        """One of the holders ends: by itself, by its timeout or because it is cancelled."""
        holder = self.random.randrange(self.limit)
        if self.random.random() < 0.5:
            self.gates[holder].set()
        else:
            assert self.queue.cancel(f"holder{holder}")

    async def main(self) -> None:
        queue, random = self.queue, self.random
        async with queue:
            self.watch.follow(queue)
            for number in range(self.limit):
                timeout = random.choice((None, 2))
                await queue.push(self.job(f"holder{number}", timeout=timeout))
            waiters = {
                key: asyncio.create_task(self._wait(key), name=f"wait for {key}")
                for key in ("b", "c", "d")
            }
            await asyncio.sleep(1)
            end = random.choice((self._cancel_job, self._cancel_waiter))
            match random.choice(("before", "after", "as it happens", "when time is up")):
                case "before":
                    end(waiters["b"])
                    self._release()
                case "after":
                    self._release()
                    end(waiters["b"])
                case "as it happens":
                    self.at_hand_over = lambda: end(waiters["b"])
                    self._release()
                case "when time is up":
                    await asyncio.sleep(1)
                    end(waiters["b"])
            await asyncio.sleep(0)
            for gate in self.gates:
                gate.set()
            await asyncio.wait(waiters.values())
            assert (waiters["c"].result(), waiters["d"].result()) == (("c", 1), ("d", 1))
            await until(lambda: not queue._scheduler.ledger.live)
            check_rest(queue)
            assert self.watch.highest["normal"] == self.limit
            assert queue.stats()["normal"].running == 0

    async def _wait(self, key: str) -> object:
        try:
            return await self.queue.push_and_wait(self.job(key))
        except JobFailed as error:
            return error

    def _cancel_job(self, _: asyncio.Task[object]) -> None:
        self.queue.cancel("b")

    def _cancel_waiter(self, waiter: asyncio.Task[object]) -> None:
        waiter.cancel()


@pytest.mark.parametrize("limit", [1, 3])
def test_permit_is_handed_on(limit: int) -> None:
    sweep(lambda seed: HandOver(seed, limit).main(), 1000, slow=False)


async def cancelled_while_lending(seed: int) -> None:
    """A job that waits for another is ended in the very steps in which its permit is on loan."""
    random = Random(seed)
    lanes = {"normal": LaneConfig(capacity=3, permits=1)}
    watch = Watch(lanes, lambda _: 1)

    def on_change(transition: Transition) -> None:
        watch.on_change(transition)
        if transition.key == "child" and random.random() < 0.3:
            queue.cancel("parent")

    async def work(key: str) -> tuple[str, int]:
        with watch.run(key, "normal") as run:
            for _ in range(random.randint(0, 3)):
                await asyncio.sleep(random.choice((0, 1)))
            return run.output()

    async def parent() -> tuple[str, int]:
        with watch.run("parent", "normal") as run:
            with run.waiting():
                await queue.push_and_wait(Job("child", work, args=("child",)))
            return run.output()

    async with Queue(lanes, on_change=on_change) as queue:
        watch.follow(queue)
        timeout = random.choice((None, 1))
        await queue.push(Job("parent", parent, timeout=timeout))
        others = [
            asyncio.create_task(queue.push_and_wait(Job(key, work, args=(key,))))
            for key in ("x", "y", "z", "child")
        ]
        await asyncio.sleep(random.choice((0, 1)))
        if random.random() < 0.5:
            queue.cancel("parent")
        await asyncio.wait(others)
        assert [task.result()[0] for task in others] == ["x", "y", "z", "child"]
    check_rest(queue)
    assert watch.highest["normal"] == 1


def test_permit_on_loan_comes_back() -> None:
    sweep(cancelled_while_lending, 300)


async def left_behind_by_the_first_try(seed: int) -> None:
    """A task of an earlier try waits as nobody's: it does not lend the permit of the next try."""
    random = Random(seed)
    lanes = {"normal": LaneConfig(capacity=3, permits=1)}
    watch = Watch(lanes, lambda key: 2 if key == "job" else 1)
    left: list[asyncio.Task[None]] = []

    async def busy(run: Run) -> tuple[str, int]:
        for _ in range(random.randint(1, 5)):
            await asyncio.sleep(random.choice((0, 1)))
        return run.output()

    async def other() -> tuple[str, int]:
        with watch.run("other", "normal") as run:
            return await busy(run)

    async def wait_for_other() -> None:
        await asyncio.sleep(random.choice((0, 0, 1, 2)))
        await queue.push_and_wait(Job("other", other))

    async def job() -> tuple[str, int]:
        with watch.run("job", "normal") as run:
            if run.number == 1:
                left.append(asyncio.create_task(wait_for_other()))
                raise ValueError("once more")
            return await busy(run)

    async with Queue(lanes, on_change=watch.on_change) as queue:
        watch.follow(queue)
        await queue.push_and_wait(Job("job", job, retry=Retry(initial=0, jitter=0)))
        await left[0]
    assert watch.runs == {"job": 2, "other": 1}


def test_tasks_left_behind_lend_nothing() -> None:
    sweep(left_behind_by_the_first_try, 100)
