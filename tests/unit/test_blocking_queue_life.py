"""`BlockingQueue`: how it opens, drains and closes.

Interrupts and interpreters that exit are in `integration/test_threads.py`.
"""

import asyncio
import threading
from typing import Any

import pytest
from gates import ThreadGate

from agentq import (
    BlockingQueue,
    Completed,
    Job,
    JobLost,
    LaneConfig,
    QueueClosed,
    Queued,
    Transition,
)

pytestmark = pytest.mark.timeout(20)
TIGHT = {"normal": LaneConfig(capacity=1, permits=1)}


def give(output: Any = None) -> Any:
    return output


def test_leaving_the_block_drains_and_ends_the_thread() -> None:
    gate = ThreadGate()
    with BlockingQueue(TIGHT) as queue:
        loop_threads = {thread for thread in threading.enumerate() if thread.name == "agentq loop"}
        assert len(loop_threads) == 1
        queue.push(Job("runs", gate, args=(1,)))
        queue.push(Job("waits", give, args=(2,)))
        threading.Timer(0.02, gate.opened.set).start()
    assert queue.state("runs") == Completed(1)
    assert queue.state("waits") == Completed(2)
    assert not any(thread.is_alive() for thread in loop_threads)


def test_an_error_in_the_block_still_lets_jobs_finish() -> None:
    queue = BlockingQueue()

    def block() -> None:
        with queue:
            queue.push(Job("k", give, args=(1,)))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        block()
    assert queue.state("k") == Completed(1)


def test_an_interrupt_in_the_block_closes_instead_of_draining() -> None:
    queue = BlockingQueue()
    gate = ThreadGate()
    handles: list[Any] = []

    def block() -> None:
        with queue:
            accepted = queue.push(Job("k", gate))
            assert type(accepted) is Queued
            handles.append(accepted.handle)
            assert gate.started.wait(10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        block()
    gate.opened.set()
    with pytest.raises(JobLost, match="the queue closed before the job ended"):
        handles[0].result()


def test_handles_answer_after_the_queue_is_gone() -> None:
    with BlockingQueue() as queue:
        accepted = queue.push(Job("k", give, args=(1,)))
    assert type(accepted) is Queued
    assert accepted.handle.result() == 1
    assert accepted.handle.outcome() == Completed(1)


def test_drain_with_a_timeout_ends_what_is_left() -> None:
    gate = ThreadGate()
    with BlockingQueue() as queue:
        accepted = queue.push(Job("k", gate))
        assert type(accepted) is Queued
        assert gate.started.wait(10)
        queue.drain(timeout=0.02)
        with pytest.raises(JobLost):
            accepted.handle.result()
        with pytest.raises(QueueClosed):
            queue.push(Job("new", give))
        gate.opened.set()


@pytest.mark.parametrize("kind", ["loop", "thread", "on_change"])
def test_close_can_be_called_from_inside(kind: str) -> None:
    closed = threading.Event()

    def close(change: Transition | None = None) -> None:
        if change is None or change.after == Completed("trigger"):
            queue.close()
            closed.set()

    async def on_loop() -> None:
        close()
        await asyncio.Event().wait()

    jobs: dict[str, Any] = {"loop": on_loop, "thread": close, "on_change": lambda: "trigger"}
    queue = BlockingQueue(on_change=close if kind == "on_change" else None)
    gate = ThreadGate()
    with queue:
        stuck = queue.push(Job("stuck", gate))
        assert type(stuck) is Queued
        assert gate.started.wait(10)
        queue.push(Job("k", jobs[kind]))
        assert closed.wait(10)
        with pytest.raises(JobLost):
            stuck.handle.result()
        gate.opened.set()


def test_callers_in_other_threads_are_told_when_it_is_closed() -> None:
    gate = ThreadGate()
    errors: list[BaseException] = []

    def call(number: int) -> None:
        try:
            queue.push_and_wait(Job(f"k{number}", gate))
        except BaseException as error:
            errors.append(error)

    with BlockingQueue(TIGHT) as queue:
        threads = [threading.Thread(target=call, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        assert gate.started.wait(10)
        while sum(queue.state(f"k{number}") is not None for number in range(6)) < 6:
            threading.Event().wait(0.001)
        queue.close()
        for thread in threads:
            thread.join(10)
        gate.opened.set()
    assert len(errors) == 6
    assert {type(error) for error in errors} == {JobLost, QueueClosed}
    assert [type(error) for error in errors].count(JobLost) == 2


def test_before_and_after_its_life_it_says_so() -> None:
    queue = BlockingQueue()
    with pytest.raises(QueueClosed, match="not open yet; use it inside 'with queue:'"):
        queue.push(Job("k", give))
    assert queue.state("k") is None
    assert queue.cancel("k") is False
    with queue:
        with pytest.raises(QueueClosed, match="was entered before; a queue is used once"):
            queue.__enter__()
        queue.push_and_wait(Job("k", give, args=(1,)))
        queue.close()
        queue.close()
        with pytest.raises(QueueClosed, match="the queue is closed and takes no more work"):
            queue.push(Job("new", give))
    queue.close()
    queue.drain()
    assert queue.state("k") == Completed(1)
    with pytest.raises(QueueClosed, match="the queue is closed and takes no more work"):
        queue.push_and_wait(Job("k", give))
    with pytest.raises(QueueClosed, match="a queue is used once"):
        queue.__enter__()


@pytest.mark.parametrize("end", ["close", "drain"])
def test_one_that_was_never_entered_can_be_closed(end: str) -> None:
    queue = BlockingQueue()
    getattr(queue, end)()
    with pytest.raises(QueueClosed):
        queue.__enter__()
    with pytest.raises(QueueClosed):
        queue.push(Job("k", give))
