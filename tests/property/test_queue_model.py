"""Random verbs on a queue, compared with a small model after every step."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from agentq import (
    Cached,
    Completed,
    Failed,
    InFlight,
    Job,
    JobFailed,
    JobLost,
    KeyConflict,
    LaneConfig,
    Pending,
    Processing,
    Queue,
    QueueClosed,
    Queued,
    Retention,
    Retry,
    current,
)
from agentq.testing import SimulatedLoop
from property.queue_model import BACKOFF, LOST, TIMEOUT, Claim, Lane, Model

KEYS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
KINDS = st.sampled_from(["ok", "fail", "flaky", "blocked", "blocked", "timed", "slow", "stubborn"])
FINGERPRINTS = st.sampled_from([None, None, None, b"one", b"other"])
SMALL = st.sampled_from([1, 1, 2])


class QueueMachine(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 1000),
        lanes=st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=2),
        max_keys=st.sampled_from([None, None, 0, 1, 3]),
        ttl=st.sampled_from([None, None, 2.0, 7.0]),
    )
    def start(
        self, seed: int, lanes: list[tuple[int, int]], max_keys: int | None, ttl: float | None
    ) -> None:
        if max_keys is not None:
            # The oldest is forgotten first: jobs must end in a known order.
            lanes = [(lanes[0][0], 1)]
        self.limits = {f"lane {number}": limits for number, limits in enumerate(lanes)}
        self.seed = seed
        self.loop = SimulatedLoop(seed)
        self.model = Model(
            {name: Lane(*limits) for name, limits in self.limits.items()}, max_keys, ttl
        )
        self.queue = Queue(
            {name: LaneConfig(*limits) for name, limits in self.limits.items()},
            retention=None
            if max_keys is None and ttl is None
            else Retention(ttl=ttl, max_keys=max_keys),
        )
        self.runs: dict[str, int] = {}
        self.gates: dict[str, asyncio.Future[str]] = {}
        self.pushers: list[tuple[Claim, asyncio.Task[Any]]] = []
        self.waiters: list[tuple[Claim, asyncio.Task[Any]]] = []
        self.draining: asyncio.Task[None] | None = None
        self.loop.run_until_complete(self.queue.__aenter__())

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            try:
                self._come_to_an_end()
            finally:
                self.queue.close()
                self.settle(10)
                self.loop.close()

    def _come_to_an_end(self) -> None:
        if self.seed % 2:
            self.close(sure=True)
        elif self.draining is None:
            self.drain(sure=True)
        while self.model.live:
            for key in self._blocked()[:1]:
                self.finish_one(key, "ok")
            self.pass_time(100)
        self.states_are_equal()
        self.numbers_are_equal()
        self.everyone_is_told()
        self.close(sure=True)
        assert not asyncio.all_tasks(self.loop)

    def settle(self, seconds: float = 0.001) -> None:
        """Let everything happen that happens now; virtual time moves on once nothing is ready."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def job(self, key: str, lane: str, kind: str, fingerprint: bytes | None = None) -> Job:
        retry = (
            Retry(attempts=2, initial=BACKOFF[key], jitter=0) if kind in ("flaky", "slow") else None
        )
        timeout = TIMEOUT[key] if kind in ("timed", "slow") else None
        job = Job(key, self.work, args=(key, kind), lane=lane, retry=retry, timeout=timeout)
        job.fingerprint = fingerprint
        return job

    async def work(self, key: str, kind: str) -> str:
        self.runs[key] = self.runs.get(key, 0) + 1
        output = f"{key} {self.runs[key]}"
        if kind in ("blocked", "timed", "stubborn") or (kind == "slow" and current().attempt == 1):
            gate = self.gates[key] = self.loop.create_future()
            try:
                kind = await gate
            except asyncio.CancelledError:
                if kind != "stubborn":
                    raise
        if kind == "fail":
            raise ValueError("no")
        if kind == "flaky" and current().attempt == 1:
            raise ValueError("first")
        return output

    @rule(key=KEYS, number=st.integers(0, 1), kind=KINDS, fingerprint=FINGERPRINTS)
    def push_again(self, key: str, number: int, kind: str, fingerprint: bytes | None) -> None:
        self.push(key, number, kind, fingerprint)  # twice as often as the other rules

    @rule(key=KEYS, number=st.integers(0, 1), kind=KINDS, fingerprint=FINGERPRINTS)
    def push(self, key: str, number: int, kind: str, fingerprint: bytes | None) -> None:
        lane = f"lane {number % len(self.limits)}"
        task = self.loop.create_task(self.queue.push(self.job(key, lane, kind, fingerprint)))
        known = self.model.live.get(key)
        expected: Any = None
        if self.model.open:
            expected = self.model.push(key, lane, kind, fingerprint)
        self.settle()
        if not self.model.open:
            assert isinstance(task.exception(), QueueClosed)
        elif expected is None:
            assert isinstance(task.exception(), KeyConflict)
        elif isinstance(expected, Completed):
            assert task.result() == Cached(expected.output)
        elif expected is known:
            assert isinstance(task.result(), InFlight)
        else:
            self.pushers.append((expected, task))

    @precondition(lambda self: self.model.live and self.model.open)
    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model.live)))
        claim = self.model.live[key]
        assert self.model.push(key, claim.lane, "ok") is claim
        job = self.job(key, claim.lane, "ok")
        self.waiters.append((claim, self.loop.create_task(self.queue.push_and_wait(job))))
        self.settle()

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def give_up_waiting(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.waiters) - 1))
        _, task = self.waiters.pop(number)
        task.cancel()
        self.settle()

    @precondition(lambda self: self._waiting_pushers())
    @rule(data=st.data())
    def give_up_pushing(self, data: st.DataObject) -> None:
        claim, task = data.draw(st.sampled_from(self._waiting_pushers()))
        self.pushers.remove((claim, task))
        task.cancel()
        self.settle()
        assert task.cancelled()
        self.model.withdraw(claim)

    def _waiting_pushers(self) -> list[tuple[Claim, asyncio.Task[Any]]]:
        return [(claim, task) for claim, task in self.pushers if not task.done()]

    @precondition(lambda self: self._blocked())
    @rule(data=st.data(), how=st.sampled_from(["ok", "fail"]))
    def finish(self, data: st.DataObject, how: str) -> None:
        self.finish_one(data.draw(st.sampled_from(self._blocked())), how)

    def finish_one(self, key: str, how: str) -> None:
        claim = self.model.live[key]
        self.gates[key].set_result(how)
        if how == "ok":
            self.model.end(claim, self.model.output(claim))
        elif claim.kind == "slow":
            self.model.try_again(claim)
        else:
            self.model.end(claim, Failed("ValueError: no"))
        self.settle()

    def _blocked(self) -> list[str]:
        return sorted(key for key, claim in self.model.live.items() if claim.where == "running")

    @rule(key=KEYS)
    def cancel(self, key: str) -> None:
        assert self.queue.cancel(key) == self.model.cancel(key)
        self.settle()

    @rule(seconds=st.sampled_from([1.0, 2.0, 4.0, 10.0]))
    def pass_time(self, seconds: float) -> None:
        self.settle(seconds)
        self.model.pass_time(self.loop.time())

    @precondition(lambda self: self.draining is None)
    @rule(sure=st.integers(0, 9).map(lambda number: number == 9))
    def drain(self, sure: bool) -> None:
        if sure:
            self.draining = self.loop.create_task(self.queue.drain())
            self.model.drain()
            self.settle()

    @rule(sure=st.integers(0, 9).map(lambda number: number == 9))
    def close(self, sure: bool) -> None:
        if sure:
            self.queue.close()
            self.model.close()
            self.settle()

    @invariant()
    def states_are_equal(self) -> None:
        if not hasattr(self, "loop"):
            return
        self.model.pass_time(self.loop.time())
        for key in "abcdef":
            assert self.queue.state(key) == self._expected_state(key)

    def _expected_state(self, key: str) -> object:
        if key in self.model.live:
            return Processing() if self.model.live[key].where == "running" else Pending()
        return self.model.finished[key][1] if key in self.model.finished else None

    @invariant()
    def numbers_are_equal(self) -> None:
        if not hasattr(self, "loop"):
            return
        stats = self.queue.stats()
        for name, limits in self.limits.items():
            assert stats[name] == self.model.stats(name, *limits)
        assert self.runs == dict(self.model.runs)

    @invariant()
    def everyone_is_told(self) -> None:
        if not hasattr(self, "loop"):
            return
        for claim, task in self.pushers:
            assert task.done() == (claim.where != "line" or claim.tries > 0)
            if not task.done():
                continue
            if claim.refused:
                assert isinstance(task.exception(), QueueClosed)
            else:
                assert isinstance(task.result(), Queued)
        for claim, task in self.waiters:
            assert task.done() == (claim.outcome is not None)
            if claim.outcome == Failed(LOST):
                assert isinstance(task.exception(), JobLost)
            elif isinstance(claim.outcome, Failed):
                error = task.exception()
                assert isinstance(error, JobFailed)
                assert error.reason == claim.outcome.reason
            elif claim.outcome is not None:
                assert task.result() == claim.outcome.output
        if self.draining is not None:
            assert self.draining.done() == (not self.model.live)


# Only to find the smallest example of a failure takes so long.
pytestmark = pytest.mark.timeout(400)

TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
