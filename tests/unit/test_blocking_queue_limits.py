"""`BlockingQueue`: time limits tell the truth, also inside jobs; signals, forks, interrupts."""

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from agentq import BlockingQueue, Cached, Completed, Job, LaneConfig, QueueClosed, Queued

ONE = {"normal": LaneConfig(capacity=1, permits=1)}


class OwnCode:
    """Counts the jobs that execute their own code."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now = self.most = 0

    def __enter__(self) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.now -= 1


@pytest.mark.parametrize("verb", ["push_and_wait", "outcome"])
def test_a_job_whose_wait_timed_out_goes_on_with_its_permit_only(verb: str) -> None:
    own, release = OwnCode(), threading.Event()

    def child() -> None:
        with own:
            release.wait(10)

    def parent(queue: BlockingQueue) -> str:
        job = Job("child", child)
        handle = None
        if verb == "outcome":
            accepted = queue.push(job)
            assert isinstance(accepted, Queued)
            handle = accepted.handle
        threading.Timer(0.1, release.set).start()
        wait: Callable[[], object] = lambda: queue.push_and_wait(job, timeout=0.02)  # noqa: E731
        if handle is not None:
            wait = functools.partial(handle.outcome, timeout=0.02)
        with pytest.raises(TimeoutError):
            wait()
        with own:
            time.sleep(0.02)  # long enough for two to be seen at once
        return "went on"

    with BlockingQueue(ONE) as queue:
        assert queue.push_and_wait(Job("parent", parent, args=(queue,))) == "went on"
    assert own.most == 1


def test_a_limit_of_zero_is_enough_where_nothing_has_to_be_waited_for() -> None:
    with BlockingQueue() as queue:
        kinds = {type(queue.push(Job(f"k{i}", int), timeout=0)) for i in range(200)}
        assert kinds == {Queued}
        queue.push_and_wait(Job("done", int))
        assert queue.push_and_wait(Job("done", int), timeout=0) == 0
        assert queue.push(Job("done", int), timeout=0) == Cached(0)


def test_a_push_that_timed_out_has_left_nothing() -> None:
    release = threading.Event()
    with BlockingQueue(ONE) as queue:
        queue.push(Job("runs", release.wait))
        queue.push(Job("waits", int))
        for i in range(50):
            with pytest.raises(TimeoutError, match=r"^not there within 0\.0\d* s$|^not there"):
                queue.push(Job(f"k{i}", int), timeout=i / 50_000)
            assert queue.state(f"k{i}") is None
        release.set()
    assert queue.stats()["normal"].completed == 2


def push_until_refused(queue: BlockingQueue) -> None:
    for i in range(100_000):
        queue.push(Job(f"k{i}", int))


def test_a_signal_handler_may_close_the_queue_in_the_middle_of_a_call() -> None:
    def in_time(step: float) -> None:
        queue = BlockingQueue()

        def close(number: int, frame: FrameType | None) -> None:
            queue.close()

        before = signal.signal(signal.SIGUSR1, close)
        sender = threading.Timer(step, os.kill, (os.getpid(), signal.SIGUSR1))
        try:
            with queue:
                sender.start()
                with pytest.raises(QueueClosed):
                    push_until_refused(queue)
        finally:
            sender.join()
            signal.signal(signal.SIGUSR1, before)

    for i in range(60):
        in_time(0.001 + i / 20_000)


def test_leaving_the_block_inside_another_queues_job_ends_the_thread() -> None:
    def job() -> list[str]:
        with BlockingQueue() as inner:
            inner.push_and_wait(Job("k", int))
            thread = inner._thread
        assert thread is not None
        return ["alive"] if thread.is_alive() else []

    with BlockingQueue() as outer:
        assert outer.push_and_wait(Job("k", job)) == []


def in_a_child(body: Callable[[], str]) -> str:
    """Run `body` in a forked child and return what it returned."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)  # a child that hangs tells nothing
        try:
            os.write(writing, body().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_that_the_queue_is_not_there() -> None:
    with BlockingQueue() as queue:
        queue.push_and_wait(Job("parent", int))

        def body() -> str:
            try:
                queue.push_and_wait(Job("child", int))
            except QueueClosed as error:
                return str(error)
            return "ran"

        assert "forked" in in_a_child(body)
        assert queue.push_and_wait(Job("after", int)) == 0


def test_a_keyboard_interrupt_of_a_coroutine_job_stops_the_program() -> None:
    program = """
import threading
from agentq import BlockingQueue, Failed, Job

async def interrupted():
    raise KeyboardInterrupt

with BlockingQueue() as queue:
    try:
        queue.push(Job("k", interrupted))
        threading.Event().wait(60)
        print("went on")
    except KeyboardInterrupt:
        print("interrupted", queue.state("k") == Failed("KeyboardInterrupt"))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=15, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "interrupted True\n", "")


def test_entering_says_what_happened_before() -> None:
    queue: Any = BlockingQueue()
    queue.drain()
    with pytest.raises(QueueClosed, match="was closed before"):
        queue.__enter__()


def test_a_slow_message_of_an_exception_holds_up_no_other_thread() -> None:
    seen: list[Any] = []

    class Talkative(Exception):
        def __str__(self) -> str:
            asked = threading.Thread(target=lambda: seen.append(queue.stats()["normal"].running))
            asked.start()
            asked.join(5)
            return "asked"

    def job() -> None:
        raise Talkative

    with BlockingQueue() as queue:
        handle = queue.push(Job("k", job))
        assert isinstance(handle, Queued)
        assert handle.handle.outcome(timeout=10).reason == "Talkative: asked"  # type: ignore[union-attr]
    assert seen == [1]
    assert queue.state("k") != Completed(None)
