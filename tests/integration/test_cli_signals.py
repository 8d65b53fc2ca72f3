"""`agentq run`: interrupts.

The first lets running jobs finish, the second cancels them, the third kills.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from cli_process import Bench, Json, end_of, opened

WAITING = "agentq: interrupted: nothing more is started; waiting for"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path) as bench:
        yield bench


class Held:
    """A batch whose first job runs and waits, with others behind it that have not started.

    Its script tells with `TELL` that it is where it is to be.
    """

    def __init__(
        self, bench: Bench, script: str = "TELL; cat hold", results: Path | None = None
    ) -> None:
        self.started, self.hold = bench.pipe("started"), bench.pipe("hold")
        script = f"echo first $$ >> {bench.log}; {script.replace('TELL', 'echo started > started')}"
        lines: list[Json] = [{"key": "first", "shell": script, "lane": "one"}]
        lines += [bench.counted(f"k{i}", lane="one") for i in range(40)]
        lines += [{"key": "first", "shell": script}]
        self.batch = bench.write(lines)
        self.process = bench.start(
            *("run", str(self.batch), "--lane", "one=1:20"),
            *("--results", str(results or bench.results_file)),
        )

    def started_up(self) -> Self:
        assert opened(self.started) == "started\n"
        return self

    def interrupt(self, number: int = signal.SIGINT) -> str:
        """Send a signal; return what the process says about it."""
        self.process.send_signal(number)
        assert self.process.stderr is not None
        return self.process.stderr.readline().decode()


def test_the_first_interrupt_lets_running_jobs_finish(bench: Bench) -> None:
    held = Held(bench).started_up()
    assert held.interrupt() == f"{WAITING} 1 running job; interrupt again to cancel\n"
    held.hold.write_text("finished")
    ended = end_of(held.process)
    assert (ended.status, ended.stderr) == (130, "")
    assert bench.executions() == {"first": 1}
    results = bench.results()
    assert [r["line"] for r in results] == list(range(1, 43))
    for line in (results[0], results[-1]):
        assert (line["key"], line["state"], line["output"]) == ("first", "completed", "finished")
    assert [results[0]["ran"], results[-1]["ran"]] == ["ran", "joined"]
    assert {(r["state"], r["ran"], r["reason"]) for r in results[1:-1]} == {
        ("not_run", "no", "interrupted before it started")
    }


def test_what_does_not_start_any_more_is_told_at_once(bench: Bench) -> None:
    held = Held(bench, results=bench.pipe("results"))
    with (bench.directory / "results").open() as results:
        held.started_up().interrupt()
        told = [json.loads(results.readline()) for _ in range(40)]
        held.hold.write_text("finished")  # the first job has run until now
        assert {result["state"] for result in told} == {"not_run"}
        assert [json.loads(line)["line"] for line in results] in ([1, 42], [42, 1])
    assert end_of(held.process).status == 130


def test_an_interrupt_leaves_no_line_open_whose_call_has_happened(bench: Bench) -> None:
    started, hold = bench.pipe("started"), bench.pipe("hold")
    failed, completed = bench.counted("failed", "exit 1"), bench.counted("completed", "echo out")
    held: Json = {"key": "held", "shell": f"echo > {started}; cat {hold}"}
    others = [bench.counted(f"k{i}") for i in range(5)]
    lines = [failed, completed, held, *others, failed, completed]
    batch = str(bench.write({**line, "lane": "one"} for line in lines))
    process = bench.start("run", batch, "--json", "--lane", "one=1:1")
    opened(started)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    process.stderr.readline()
    hold.write_text("go")
    *_, eighth, ninth, tenth = end_of(process).results
    assert eighth["state"] == "not_run"
    assert (ninth["state"], ninth["ran"], ninth["reason"]) == (
        "failed",
        "cached",
        "ProgramFailed: exit status 1",
    )
    assert (tenth["state"], tenth["ran"], tenth["output"]) == ("completed", "cached", "out\n")
    assert bench.executions() == {"failed": 1, "completed": 1}


def watched(bench: Bench) -> int:
    """Open the reading end of a pipe. It ends when nobody has the other end open any more."""
    reader = os.open(bench.pipe("alive"), os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    return reader


STUBBORN = "exec 9> alive; trap '' TERM INT; (while :; do sleep 1; done) & TELL; wait; wait"


def test_the_second_interrupt_ends_programs_with_their_groups(bench: Bench) -> None:
    alive = watched(bench)
    held = Held(bench, STUBBORN).started_up()
    held.interrupt()
    said = held.interrupt()
    assert said == "agentq: interrupted again: cancelling; once more to kill and leave\n"
    assert os.read(alive, 1) == b""
    os.close(alive)
    ended = end_of(held.process)
    assert (ended.status, ended.stderr) == (130, "")
    results = bench.results()
    assert [r["line"] for r in results] == list(range(1, 43))
    assert [(r["state"], r["reason"]) for r in (results[0], results[-1])] == [
        ("failed", "cancelled")
    ] * 2


def test_a_program_may_clean_up_when_it_is_cancelled(bench: Bench) -> None:
    script = "trap 'echo clean > done; exit 0' TERM; TELL; while :; do sleep 0.05; done"
    held = Held(bench, script).started_up()
    held.interrupt()
    held.interrupt()
    assert end_of(held.process).status == 130
    assert (bench.directory / "done").read_text() == "clean\n"
    assert bench.results()[0]["reason"] == "cancelled"


def test_the_third_interrupt_kills_and_leaves_at_once(bench: Bench) -> None:
    alive = watched(bench)
    held = Held(bench, STUBBORN).started_up()
    held.interrupt()
    held.interrupt()
    held.process.send_signal(signal.SIGINT)
    assert os.read(alive, 1) == b""
    os.close(alive)
    ended = end_of(held.process)
    assert (ended.status, ended.stderr) == (130, "")
    results = bench.results()
    assert [r["line"] for r in results] == list(range(1, 43))
    for line in (results[0], results[-1]):
        assert (line["state"], line["reason"]) == ("lost", "killed by an interrupt")
    # Whoever runs again what has not run must not find a call among it that has happened.
    assert (results[0]["ran"], results[0]["attempts"]) == ("ran", 1)
    assert results[0]["seconds"] > 0
    assert (results[-1]["ran"], results[-1]["attempts"]) == ("joined", 0)
    assert {(r["state"], r["ran"]) for r in results[1:-1]} == {("not_run", "no")}


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_exit_status_tells_the_first_signal(bench: Bench, number: int, status: int) -> None:
    held = Held(bench).started_up()
    held.interrupt(number)
    held.interrupt(signal.SIGTERM)
    assert end_of(held.process).status == status
    assert bench.results()[0]["reason"] == "cancelled"


def test_a_terminal_that_goes_away_cancels_at_once(bench: Bench) -> None:
    held = Held(bench).started_up()
    held.interrupt(signal.SIGHUP)
    assert end_of(held.process).status == 129
    assert bench.results()[0]["reason"] == "cancelled"


def test_a_signal_that_is_ignored_stays_ignored(bench: Bench) -> None:
    # As under nohup, and for jobs that a shell runs in the background.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        held = Held(bench).started_up()
    finally:
        signal.signal(signal.SIGHUP, before)
    held.process.send_signal(signal.SIGHUP)
    held.hold.write_text("finished")
    assert end_of(held.process).status == 0
    assert bench.executions().total() == 41


def test_what_waits_for_its_next_try_is_not_tried_again(bench: Bench) -> None:
    hold, started = bench.pipe("hold"), bench.pipe("started")
    lines: list[Json] = [
        bench.counted("flaky", "exit 1", retry={"attempts": 3, "initial": 60}, lane="one"),
        {"key": "held", "shell": f"echo > {started}; cat {hold}", "lane": "one"},
    ]
    process = bench.start("run", str(bench.write(lines)), "--json", "--lane", "one=1")
    opened(started)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline().decode().startswith(f"{WAITING} 1 running job;")
    hold.write_text("go")
    ended = end_of(process)
    assert ended.status == 130
    assert [(r["state"], r["attempts"]) for r in ended.results] == [("failed", 1), ("completed", 1)]
    assert ended.results[0]["reason"] == "interrupted after 1 failed try"
    assert bench.executions() == {"flaky": 1}


def test_a_job_that_fails_after_the_interrupt_is_not_tried_again(bench: Bench) -> None:
    started, hold = bench.pipe("started"), bench.pipe("hold")
    script = f"echo > {started}; cat {hold}; exit 1"
    line = bench.counted("flaky", script, retry={"attempts": 3, "initial": 0})
    process = bench.start("run", str(bench.write([line])), "--json")
    opened(started)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    process.stderr.readline()
    hold.write_text("go")
    ended = end_of(process)
    assert ended.results[0]["reason"] == "interrupted after 1 failed try"
    assert bench.executions() == {"flaky": 1}


BLOCKING = """
import asyncio, time
from pathlib import Path

async def block_the_loop(path):
    Path(path).write_text("started")
    while True:
        time.sleep(0.01)

async def ignore_cancellation(path):
    Path(path).write_text("started")
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

def wait_in_a_thread(path):
    Path(path).write_text("started")
    time.sleep(600)

async def raise_interrupt(path):
    await asyncio.sleep(0)
    raise KeyboardInterrupt
"""


def started_call(bench: Bench, name: str) -> subprocess.Popen[bytes]:
    bench.module(BLOCKING)
    started = bench.pipe("started")
    lines: list[Json] = [{"task": f"calls:{name}", "args": [str(started)], "lane": "one"}]
    lines += [bench.counted(f"k{i}", lane="one") for i in range(3)]
    process = bench.start(
        *("run", str(bench.write(lines)), "--json", "--lane", "one=1:1"),
        *("--results", str(bench.results_file)),
    )
    opened(started)
    return process


def test_a_job_that_blocks_the_loop_cannot_stop_the_third_interrupt(bench: Bench) -> None:
    process = started_call(bench, "block_the_loop")
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        # Signals of one kind that are pending are one: wait until this one was taken.
        while int(pending(process.pid)):
            os.sched_yield()
    assert end_of(process).status == 130
    assert bench.executions() == {}
    assert [(r["line"], r["state"], r["ran"]) for r in bench.results()] == [
        (1, "lost", "ran"),
        (2, "not_run", "no"),
        (3, "not_run", "no"),
        (4, "not_run", "no"),
    ]


def pending(pid: int) -> str:
    """The signals that wait for a process, as a number."""
    status = Path(f"/proc/{pid}/status")
    text = status.read_text() if status.exists() else ""
    return str(sum(int(line.split()[1], 16) for line in text.splitlines() if "Pnd" in line))


def test_a_function_in_a_thread_is_given_up_at_the_second_interrupt(bench: Bench) -> None:
    process = started_call(bench, "wait_in_a_thread")
    assert process.stderr is not None
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        process.stderr.readline()
    ended = end_of(process)
    assert ended.status == 130
    assert (ended.results[0]["state"], ended.results[0]["reason"]) == ("failed", "cancelled")


def test_a_function_that_ignores_its_cancellation_is_given_up(bench: Bench) -> None:
    process = started_call(bench, "ignore_cancellation")
    assert process.stderr is not None
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        process.stderr.readline()
    ended = end_of(process)
    assert ended.status == 130
    assert ended.results[0]["state"] == "lost"


def test_a_job_that_raises_keyboard_interrupt_counts_as_one(bench: Bench) -> None:
    bench.module(BLOCKING)
    hold, started = bench.pipe("hold"), bench.pipe("started")
    lines: list[Json] = [
        {"key": "program", "shell": f"echo > {started}; cat {hold}"},
        {"key": "gate", "argv": ["cat", str(started)], "lane": "one"},
        {"task": "calls:raise_interrupt", "args": [""], "lane": "one"},
    ]
    process = bench.start("run", str(bench.write(lines)), "--json", "--lane", "one=1")
    assert process.stderr is not None
    assert process.stderr.readline().decode().startswith(f"{WAITING} 1 running job;")
    hold.write_text("go")
    ended = end_of(process)
    assert (ended.status, ended.stderr) == (130, "")
    assert [(r["line"], r["state"]) for r in ended.results] == [
        (1, "completed"),
        (2, "completed"),
        (3, "failed"),
    ]


def test_an_interrupt_while_the_batch_is_read_runs_nothing(bench: Bench) -> None:
    batch = bench.pipe("fifo.jsonl")
    process = bench.start("run", str(batch))
    with batch.open("w") as lines:
        lines.write("{}\n" * 100_000)  # more than a pipe holds, so some of it has been read
        lines.flush()
        process.send_signal(signal.SIGINT)
        ended = end_of(process)
    assert (ended.status, ended.stdout, ended.stderr) == (130, "", "")
