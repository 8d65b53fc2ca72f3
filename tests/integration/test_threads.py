"""Promise 1 and 12 with real threads: races, stress, interrupts, interpreters that exit."""

import asyncio
import functools
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PROGRAMS, RunProgram
from gates import turns

from agentq import (
    AgentqError,
    BlockingQueue,
    Cached,
    Completed,
    Failed,
    Job,
    JobFailed,
    JobLost,
    LaneConfig,
    Pending,
    Processing,
    Queue,
    QueueClosed,
    Queued,
    Retry,
    Transition,
)

THREADS = 8
pytestmark = pytest.mark.timeout(45)


@pytest.fixture(autouse=True)
def threads_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class StartLog:
    """Counts runs outside the queue: each appends a line to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, key: str) -> str:
        os.write(self._descriptor, f"{key}\n".encode())
        return key

    async def note_on_loop(self, key: str) -> str:
        self.note(key)
        await asyncio.sleep(0)
        return key

    def counts(self) -> Counter[str]:
        os.close(self._descriptor)
        return Counter(self._path.read_text().splitlines())


def race(work: Callable[[int], Any]) -> list[Any]:
    """Run `work` in eight threads that start in one moment; returns what each one returned."""
    start = threading.Barrier(THREADS)
    answers: list[Any] = [None] * THREADS

    def run(number: int) -> None:
        start.wait(10)
        try:
            answers[number] = work(number)
        except BaseException as error:
            answers[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return answers


def push_and_wait(queue: BlockingQueue, job: Job, number: int) -> Any:
    return queue.push_and_wait(job)


@pytest.mark.parametrize("kind", ["loop", "thread"])
def test_eight_threads_racing_one_key_run_it_once(tmp_path: Path, kind: str) -> None:
    log = StartLog(tmp_path / "starts")
    func = log.note_on_loop if kind == "loop" else log.note
    rounds = 40
    with BlockingQueue({"normal": LaneConfig(capacity=2, permits=2)}) as queue:
        for round_ in range(rounds):
            job = Job(f"k{round_}", func, args=(f"k{round_}",))
            outputs = race(functools.partial(push_and_wait, queue, job))
            assert outputs == [job.key] * THREADS
        stats = queue.stats()["normal"]
        assert stats.completed == rounds
        assert stats.joined + stats.cached == rounds * (THREADS - 1)
    assert log.counts() == Counter(f"k{round_}" for round_ in range(rounds))


async def test_eight_threads_that_claim_in_one_moment_are_told_apart() -> None:
    # No loop of their own turns: the claim alone is raced, by calling `push` up to its first wait.
    async with Queue({"normal": LaneConfig(capacity=10_000, permits=1)}) as queue:
        blocker = asyncio.Event()
        await queue.push(Job("blocker", blocker.wait))

        def claims(_: int) -> list[str]:
            kinds = []
            for number in range(300):
                push: Any = queue.push(Job(f"k{number}", turns, args=(0,)))
                try:
                    push.send(None)
                except StopIteration as returned:
                    kinds.append(type(returned.value).__name__)
            return kinds

        def in_a_loop(number: int) -> list[str]:
            async def run() -> list[str]:
                return claims(number)

            return asyncio.run(run())

        answers = await asyncio.to_thread(race, in_a_loop)
        for number in range(300):
            kinds = Counter(answer[number] for answer in answers)
            assert kinds == {"Queued": 1, "InFlight": THREADS - 1}
        assert queue.stats()["normal"].waiting == 300
        blocker.set()
    assert queue.stats()["normal"].completed == 301


def test_eight_threads_racing_many_keys_run_each_once(tmp_path: Path) -> None:
    log = StartLog(tmp_path / "starts")
    keys = [f"k{number}" for number in range(120)]

    def work(number: int) -> dict[str, Any]:
        mine = random.Random(number).sample(keys, len(keys))
        return {key: queue.push_and_wait(Job(key, log.note_on_loop, args=(key,))) for key in mine}

    with BlockingQueue({"normal": LaneConfig(capacity=3, permits=3)}) as queue:
        answers = race(work)
    assert answers == [{key: key for key in keys}] * THREADS
    assert log.counts() == Counter(keys)


def test_a_failed_key_raced_again_runs_once_for_each_claim(tmp_path: Path) -> None:
    log = StartLog(tmp_path / "starts")
    claims = Counter[str]()
    lock = threading.Lock()

    def fail(key: str) -> None:
        log.note(key)
        raise ValueError(key)

    def work(_: int) -> None:
        for _ in range(25):
            accepted = queue.push(Job("k", fail, args=("k",)))
            with lock:
                claims[type(accepted).__name__] += 1
            assert not isinstance(accepted, Cached)
            assert accepted.handle.outcome() == Failed("ValueError: k")

    with BlockingQueue() as queue:
        assert race(work) == [None] * THREADS
    assert claims["Queued"] + claims["InFlight"] == 25 * THREADS
    assert log.counts() == Counter({"k": claims["Queued"]})


def test_the_limit_of_a_lane_holds_for_pushes_from_many_threads() -> None:
    lock = threading.Lock()
    now = most = 0

    def work() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.001)
        with lock:
            now -= 1

    def push(number: int) -> None:
        for count in range(20):
            queue.push_and_wait(Job(f"{number}.{count}", work))

    with BlockingQueue({"normal": LaneConfig(capacity=2, permits=3)}) as queue:
        assert race(push) == [None] * THREADS
        assert queue.stats()["normal"].completed == 20 * THREADS
    assert (now, most) == (0, 3)


class Stress:
    """Random verbs from eight threads for a while, then everything is counted."""

    def __init__(self, log: StartLog, seed: int) -> None:
        self.log = log
        self.seed = seed
        self.claims = Counter[str]()
        self.changes: list[Transition] = []
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.queue = BlockingQueue(
            {"normal": LaneConfig(capacity=3, permits=2), "high": LaneConfig(permits=1)},
            on_change=self.changes.append,
        )

    async def on_loop(self, key: str, draw: float) -> str:
        self.log.note(key)
        await turns(int(draw * 4))
        if draw < 0.3:
            raise ValueError(key)
        return key

    def in_thread(self, key: str, draw: float) -> str:
        self.log.note(key)
        if draw < 0.3:
            raise ValueError(key)
        if draw > 0.7 and "." not in key:
            inner = Job(f"{key}.child", self.on_loop, args=(f"{key}.child", draw))
            self.push(inner)
            self.queue.push_and_wait(inner)
        return key

    def push(self, job: Job) -> Any:
        accepted = self.queue.push(job, timeout=5)
        if isinstance(accepted, Queued):
            with self.lock:
                self.claims[job.key] += 1
        return accepted

    def work(self, number: int) -> None:
        chance = random.Random(f"{self.seed}.{number}")
        while not self.stop.is_set():
            key = f"k{chance.randrange(300)}"
            verb = chance.random()
            if verb < 0.6:
                func = chance.choice((self.on_loop, self.in_thread))
                lane = chance.choice(("normal", "high"))
                accepted = self.push(Job(key, func, args=(key, chance.random()), lane=lane))
                if chance.random() < 0.7 and not isinstance(accepted, Cached):
                    accepted.handle.outcome(timeout=20)
            elif verb < 0.8:
                state = self.queue.state(key)
                assert state is None or type(state) in (Pending, Processing, Completed, Failed)
            elif verb < 0.95:
                self.queue.cancel(key)
            else:
                for stats in self.queue.stats().values():
                    assert 0 <= stats.running <= stats.permits
                    assert 0 <= stats.waiting <= stats.capacity


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_second_of_every_verb_from_eight_threads_keeps_every_promise(
    tmp_path: Path, seed: int
) -> None:
    stress = Stress(StartLog(tmp_path / "starts"), seed)
    threading.Timer(1.0, stress.stop.set).start()
    with stress.queue as queue:
        assert race(stress.work) == [None] * THREADS
    started = Counter(change.key for change in stress.changes if type(change.after) is Processing)
    ran = stress.log.counts()
    # No run without a claim of its own; one that was cancelled before its start did not run.
    assert all(ran[key] <= started[key] <= stress.claims[key] for key in ran)
    completed = Counter(change.key for change in stress.changes if type(change.after) is Completed)
    assert set(completed.values()) == {1}
    for lane in queue.stats().values():
        at_rest = (lane.running, lane.waiting, lane.lending, lane.retrying)
        assert at_rest == (0, 0, 0, 0)
    ended = sum(lane.completed + lane.failed for lane in queue.stats().values())
    assert ended == sum(stress.claims.values())
    state_of: dict[str, Any] = {}
    for change in stress.changes:
        assert change.before == state_of.get(change.key)
        state_of[change.key] = change.after
    assert all(queue.state(key) == state for key, state in state_of.items())


@pytest.mark.parametrize("round_", range(15))
def test_closing_while_eight_threads_push_leaves_nobody_waiting(round_: int) -> None:
    queue = BlockingQueue({"normal": LaneConfig(capacity=2, permits=2)})

    def work(number: int) -> list[Any]:
        if number == 0:
            threading.Event().wait(0.002 * (round_ % 5))
            queue.close()
            return []
        answers: list[Any] = []
        for count in range(200):
            try:
                key = f"{number}.{count}"
                answers.append(queue.push_and_wait(Job(key, turns, args=(round_ % 3,)), timeout=20))
            except AgentqError as error:
                answers.append(error)
        return answers

    with queue:
        answers = race(work)
    for answer in answers:
        assert isinstance(answer, list)
        assert {type(one) for one in answer} <= {type(None), QueueClosed, JobLost}


def test_retries_and_timeouts_from_many_threads_end_as_they_should() -> None:
    def work(number: int) -> list[str]:
        answers = []
        for count in range(10):
            job = Job(
                f"{number}.{count}",
                asyncio.Event().wait,
                timeout=0.005,
                retry=Retry(attempts=2, initial=0),
            )
            try:
                queue.push_and_wait(job)
            except JobFailed as error:
                answers.append(error.reason)
        return answers

    with BlockingQueue({"normal": LaneConfig(permits=4)}) as queue:
        assert race(work) == [["timed out after 0.005 s"] * 10] * THREADS


def test_an_interpreter_exits_with_a_blocking_queue_left_open(run_program: RunProgram) -> None:
    run = run_program("left_open.py", limit=10)
    assert (run.returncode, run.stdout, run.stderr) == (0, "end of program\n", "")


@pytest.mark.parametrize("kind", ["loop", "thread"])
@pytest.mark.parametrize("queue", ["queue", "blocking"])
def test_ctrl_c_ends_a_program_that_waits_for_a_job_and_every_handle_resolves(
    queue: str, kind: str
) -> None:
    command = [sys.executable, "-W", "error", str(PROGRAMS / "interrupted.py"), queue, kind]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=10)
    finally:
        program.kill()
    lost = "Failed(reason='lost: the queue closed before the job ended')\n"
    assert out == (lost if queue == "queue" else f"{lost}JobLost\n")
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert program.returncode == -signal.SIGINT
