"""`BlockingQueue`: the same verbs for code without an event loop, from any thread.

Interrupts and interpreters that exit are in `integration/test_threads.py`.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest
from gates import ThreadGate, value

from agentq import (
    BlockingQueue,
    Cached,
    Completed,
    Failed,
    InFlight,
    Job,
    JobFailed,
    KeyConflict,
    LaneConfig,
    Queued,
    Retention,
    Transition,
    UnknownLane,
    WouldDeadlock,
    current,
    task,
)

pytestmark = pytest.mark.timeout(20)
TIGHT = {"normal": LaneConfig(capacity=1, permits=1)}


def give(output: Any = None) -> Any:
    return output


def test_the_verbs_mean_what_they_mean_on_a_queue() -> None:
    gate = ThreadGate()
    with BlockingQueue() as queue:
        accepted = queue.push(Job("k", give, args=(1,)))
        assert type(accepted) is Queued
        assert accepted.handle.key == "k"
        assert accepted.handle.outcome() == Completed(1)
        assert accepted.handle.result() == 1
        assert queue.push(Job("k", give)) == Cached(1)
        assert queue.push_and_wait(Job("loop", value, args=(2,))) == 2
        assert sorted(queue.map(Job(f"m{n}", give, args=(n,)) for n in range(3))) == [
            ("m0", Completed(0)),
            ("m1", Completed(1)),
            ("m2", Completed(2)),
        ]
        held = queue.push(Job("held", gate))
        joined = queue.push(Job("held", give))
        assert (type(held), type(joined)) == (Queued, InFlight)
        assert queue.state("k") == Completed(1)
        assert queue.state("unknown") is None
        assert queue.cancel("held") is True
        assert not isinstance(joined, Cached)
        assert joined.handle.outcome() == Failed("cancelled")
        assert queue.cancel("held") is False
        assert queue.stats()["normal"].completed == 5
        gate.opened.set()


def test_failures_carry_their_cause() -> None:
    error = ValueError("no")

    def fail() -> None:
        raise error

    with BlockingQueue() as queue:
        accepted = queue.push(Job("k", fail))
        assert type(accepted) is Queued
        assert accepted.handle.outcome() == Failed("ValueError: no")
        with pytest.raises(JobFailed, match="job 'k' failed: ValueError: no") as caught:
            accepted.handle.result()
        assert caught.value.__cause__ is error
        with pytest.raises(JobFailed, match="job 'again' failed: ValueError: no") as caught:
            queue.push_and_wait(Job("again", fail))
        assert caught.value.__cause__ is error


def test_bad_pushes_are_refused_as_on_a_queue() -> None:
    @task(name="t", key="k")
    def work(number: int) -> int:
        return number

    with BlockingQueue() as queue:
        with pytest.raises(UnknownLane):
            queue.push(Job("k", give, lane="nowhere"))
        assert queue.push_and_wait(work.job(1)) == 1
        with pytest.raises(KeyConflict):
            queue.push(work.job(2))


def test_lanes_and_retention_are_those_of_the_queue() -> None:
    with BlockingQueue(TIGHT, retention=Retention(max_keys=1)) as queue:
        assert (queue.stats()["normal"].capacity, queue.stats()["normal"].permits) == (1, 1)
        queue.push_and_wait(Job("a", give))
        queue.push_and_wait(Job("b", give))
        assert queue.state("a") is None


def test_a_wait_that_times_out_leaves_the_job_alone() -> None:
    gate = ThreadGate()
    with BlockingQueue() as queue:
        with pytest.raises(TimeoutError, match=r"not there within 0\.02 s"):
            queue.push_and_wait(Job("k", gate, args=(7,)), timeout=0.02)
        accepted = queue.push(Job("k", give))
        assert type(accepted) is InFlight
        for wait in (accepted.handle.outcome, accepted.handle.result):
            with pytest.raises(TimeoutError):
                wait(timeout=0.01)
        with pytest.raises(TimeoutError):
            accepted.handle.outcome(0)
        gate.opened.set()
        assert accepted.handle.result(timeout=10) == 7
    assert gate.runs == 1


@pytest.mark.parametrize(
    ("timeout", "error"), [(-1, ValueError), (float("nan"), ValueError), ("1", TypeError)]
)
def test_a_wrong_timeout_is_refused(timeout: Any, error: type[Exception]) -> None:
    gate = ThreadGate()
    with BlockingQueue() as queue:
        for call in (queue.push, queue.push_and_wait):
            with pytest.raises(error, match="timeout must be "):
                call(Job("k", give), timeout=timeout)
        assert queue.state("k") is None
        accepted = queue.push(Job("k", gate))
        assert type(accepted) is Queued
        with pytest.raises(error, match="timeout must be "):
            accepted.handle.result(timeout)
        with pytest.raises(error, match="timeout must be "):
            queue.drain(timeout)
        gate.opened.set()


def test_a_push_without_room_in_time_leaves_nothing_behind() -> None:
    gate = ThreadGate()
    with BlockingQueue(TIGHT) as queue:
        queue.push(Job("runs", gate))
        queue.push(Job("waits", give))
        with pytest.raises(TimeoutError):
            queue.push(Job("k", give), timeout=0.02)
        while queue.state("k") is not None:
            threading.Event().wait(0.001)
        gate.opened.set()
        assert queue.push_and_wait(Job("k", give, args=(1,))) == 1


@pytest.mark.parametrize("permits", [1, 3])
def test_nested_synchronous_jobs_lend_their_permits(permits: int) -> None:
    lock = threading.Lock()
    now = most = 0

    def entered(change: int) -> None:
        nonlocal now, most
        with lock:
            now += change
            most = max(most, now)

    def node(key: str, depth: int) -> int:
        entered(+1)
        total = 1
        for number in range(2 if depth else 0):
            child = Job(f"{key}.{number}", node, args=(f"{key}.{number}", depth - 1))
            entered(-1)
            total += queue.push_and_wait(child)
            entered(+1)
        entered(-1)
        return total

    with BlockingQueue({"normal": LaneConfig(capacity=1, permits=permits)}) as queue:
        assert queue.push_and_wait(Job("r", node, args=("r", 4))) == 31
        assert queue.stats()["normal"].completed == 31
    assert (now, most) == (0, 1)


def test_nested_fan_out_by_map_and_by_handles_completes_with_one_permit() -> None:
    def by_map() -> list[str]:
        return sorted(key for key, _ in queue.map(Job(f"m{n}", give) for n in range(10)))

    def by_handles() -> list[Any]:
        accepted = [queue.push(Job(f"h{n}", give, args=(n,))) for n in range(10)]
        return [
            answer.output if isinstance(answer, Cached) else answer.handle.result()
            for answer in accepted
        ]

    with BlockingQueue(TIGHT) as queue:
        assert queue.push_and_wait(Job("map", by_map)) == [f"m{n}" for n in range(10)]
        assert queue.push_and_wait(Job("handles", by_handles)) == list(range(10))


def test_a_synchronous_job_that_waits_for_itself_is_told() -> None:
    def narcissus() -> str:
        with pytest.raises(WouldDeadlock, match="job 'k' would wait for itself"):
            queue.push_and_wait(Job("k", give))
        accepted = queue.push(Job("k", give))
        assert type(accepted) is InFlight
        with pytest.raises(WouldDeadlock):
            accepted.handle.result()
        with pytest.raises(WouldDeadlock):
            queue.drain()
        return "went on"

    with BlockingQueue(TIGHT) as queue:
        assert queue.push_and_wait(Job("k", narcissus)) == "went on"


def test_calls_on_its_own_loops_thread_are_told_that_they_would_block_it() -> None:
    told: list[str] = []

    async def job() -> None:
        for call in (
            lambda: queue.push(Job("other", give)),
            lambda: queue.push_and_wait(Job("other", give)),
            lambda: next(queue.map([Job("other", give)])),
            lambda: queue.drain(),
        ):
            with pytest.raises(WouldDeadlock, match="called on its own loop's thread"):
                call()
            told.append("job")

    def on_change(change: Transition) -> None:
        if change.key == "k":
            with pytest.raises(WouldDeadlock):
                queue.push(Job("other", give))
            told.append("on_change")

    def use() -> None:
        with queue:
            queue.push_and_wait(Job("k", job))
            assert queue.state("other") is None
            assert queue.push_and_wait(Job("other", give, args=(1,))) == 1
            told.append("end")

    queue = BlockingQueue(on_change=on_change)
    # Apart, since a loop that is blocked can be neither used nor left any more.
    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(10)
    assert sorted(told) == ["end", *["job"] * 4, *["on_change"] * 3]


def test_a_job_runs_in_a_copy_of_its_pushers_context() -> None:
    user: ContextVar[str] = ContextVar("user", default="nobody")

    def who() -> str:
        before = user.get()
        user.set("changed by the job")
        return before

    async def who_on_loop() -> str:
        return who()

    with BlockingQueue() as queue:
        for name in ("u1", "u2"):
            user.set(name)
            assert queue.push_and_wait(Job(f"t {name}", who)) == name
            assert queue.push_and_wait(Job(f"l {name}", who_on_loop)) == name
            assert user.get() == name


def test_a_job_knows_itself() -> None:
    with BlockingQueue() as queue:
        assert queue.push_and_wait(Job("k", lambda: current().key)) == "k"
        with pytest.raises(LookupError):
            current()


def test_many_threads_share_it() -> None:
    with BlockingQueue({"normal": LaneConfig(capacity=3, permits=2)}) as queue:

        def work(number: int) -> Any:
            return queue.push_and_wait(Job(f"k{number % 50}", give, args=(number % 50,)))

        with ThreadPoolExecutor(8) as pool:
            outputs = list(pool.map(work, range(400)))
        assert outputs == [number % 50 for number in range(400)]
        assert queue.stats()["normal"].completed == 50


def test_map_reads_its_source_lazily_and_closes_it_when_left_early() -> None:
    taken: list[int] = []
    closed = threading.Event()

    def endless() -> Iterator[Job]:
        try:
            for number in range(10**9):
                taken.append(number)
                yield Job(f"k{number}", give)
        finally:
            closed.set()

    with BlockingQueue({"normal": LaneConfig(capacity=2, permits=1)}) as queue:
        outcomes = queue.map(endless())
        assert next(outcomes)[1] == Completed(None)
        outcomes.close()
        assert closed.is_set()
        assert len(taken) < 500
        assert queue.push_and_wait(Job("after", give, args=(1,))) == 1


def test_an_error_in_the_source_of_map_is_raised() -> None:
    def failing() -> Iterator[Job]:
        yield Job("k", give)
        raise ValueError("source")

    with BlockingQueue() as queue, pytest.raises(ValueError, match="source"):
        list(queue.map(failing()))
