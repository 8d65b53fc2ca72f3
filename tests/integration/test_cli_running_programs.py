"""`agentq run`: programs, their input and output, and that none of them is left behind."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import MEMORY, Bench, Json, encoded, end_of, memory, opened

MEGABYTE = 1_000_000


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path) as bench:
        yield bench


def test_a_program_that_cannot_be_started_is_not_tried_again(bench: Bench) -> None:
    ended = bench.run_batch([{"argv": ["no-such-program-here"]}], "--retry", "3")
    [result] = ended.results
    assert result["reason"] == "CannotStart: no program 'no-such-program-here' on PATH"
    assert (result["state"], result["ran"], result["attempts"]) == ("failed", "ran", 1)


def test_output_is_cut_and_says_so(bench: Bench) -> None:
    lines = [
        {"key": "long", "argv": ["printf", "123456789"]},
        {"key": "just", "argv": ["printf", "12345"]},
    ]
    long, just = bench.run_batch(lines, "--max-output", "5").results
    assert (long["output"], long["output_cut"], long["output_bytes"]) == ("12345", True, 9)
    assert just["output"] == "12345"
    assert "output_cut" not in just


def test_a_failure_is_seen_where_children_are_ignored(bench: Bench) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        process = bench.start("run", str(bench.write([{"shell": "exit 3"}])), "--json")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert end_of(process).results[0]["reason"] == "ProgramFailed: exit status 3"


def test_without_stdin_a_program_reads_nothing(bench: Bench) -> None:
    # Not even what this process has: the batch, whose end has not come.
    process = bench.start("run", "-", "--json", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(encoded({"shell": "cat; echo end"}))
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["output"] == "end\n"


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="memory is read from /proc"
)


@needs_proc
def test_a_program_that_writes_without_end_takes_no_more_memory(bench: Bench) -> None:
    script = "head -c 300000000 /dev/zero; head -c 300000000 /dev/zero >&2"
    lines = [{"shell": script, "lane": "one"}, {**MEMORY, "lane": "one"}]
    first, second = bench.run_batch(lines, "--lane", "one=1").results
    assert first["output_bytes"] == 300_000_000
    assert memory(second) < 100 * MEGABYTE


@needs_proc
def test_outputs_do_not_pile_up_in_memory(bench: Bench) -> None:
    size = 2 * MEGABYTE
    lines: list[Json] = [{"shell": f"head -c {size + i} /dev/zero | tr '\\0' x"} for i in range(40)]
    batch = str(bench.write({**line, "lane": "one"} for line in [*lines, MEMORY]))
    ended = bench.run("run", batch, "--max-output", "3000000", "--lane", "one=1:1")
    [told] = re.findall(r"VmHWM:\D+(\d+) kB", ended.stdout)
    assert int(told) * 1024 < 100 * MEGABYTE


def test_a_large_output_is_repeated_whole(bench: Bench) -> None:
    lines = [
        {"key": key, "shell": f"yes {key} | head -c 900000", "lane": "one"}
        for key in ("a", "b", "c", "a")
    ]
    results = bench.run_batch(lines, "--lane", "one=1:1").results
    assert [r["ran"] for r in results] == ["ran", "ran", "ran", "cached"]
    assert [r["output"] for r in results] == [f"{key}\n" * 450_000 for key in "abca"]


# ── nothing is left behind ───────────────────────────────────────────────────────────────────
# `exec 9> alive` leaves the pipe open in everything that is started below, so whoever reads it
# sees its end when the last of them is gone.


def test_stragglers_of_a_program_that_has_ended_are_killed(bench: Bench) -> None:
    alive = bench.pipe("alive")
    script = f"exec 9> {alive}; trap '' TERM; (while :; do sleep 1; done) & echo done"
    process = bench.start("run", str(bench.write([{"shell": script}])), "--json")
    assert opened(alive) == ""
    [result] = end_of(process).results
    assert (result["output"], result["state"]) == ("done\n", "completed")
    assert result["seconds"] < 10


def test_a_process_that_left_the_group_cannot_hang_the_batch(bench: Bench) -> None:
    away, hold = bench.pipe("away"), bench.pipe("hold")
    script = f"setsid sh -c 'echo > {away}; exec cat {hold}' & cat {away}; echo done"
    try:
        [result] = bench.run_batch([{"shell": script}]).results
    finally:
        hold.write_text("go")
    assert (result["output"], result["state"]) == ("\ndone\n", "completed")


def test_a_timeout_ends_the_whole_group_and_frees_the_permit(bench: Bench) -> None:
    alive = bench.pipe("alive")
    script = f"exec 9> {alive}; trap '' TERM; (while :; do sleep 1; done) & wait; wait"
    lines: list[Json] = [
        {"shell": script, "timeout": 0.2, "lane": "one"},
        {"argv": ["echo", "next"], "lane": "one"},
    ]
    process = bench.start("run", str(bench.write(lines)), "--json", "--lane", "one=1")
    assert opened(alive) == ""
    first, second = end_of(process).results
    assert first["reason"] == "timed out after 0.2 s"
    assert second["output"] == "next\n"


def test_a_program_that_is_ended_may_clean_up(bench: Bench) -> None:
    # The shell ends at once; its child takes a moment, and has it.
    done, alive = bench.directory / "done", bench.pipe("alive")
    child = f"trap 'sleep 0.3; echo clean > {done}; exit' TERM; while :; do sleep 0.05; done"
    script = f'exec 9> {alive}; sh -c "{child}" & wait'
    process = bench.start("run", str(bench.write([{"shell": script, "timeout": 0.2}])), "--json")
    opened(alive)
    assert end_of(process).results[0]["reason"] == "timed out after 0.2 s"
    assert done.read_text() == "clean\n"


ZOMBIES = """
import os
from pathlib import Path

def children():
    states = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getpid():
            states.append(state)
    return states
"""


def test_no_program_becomes_a_zombie(bench: Bench) -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc")
    bench.module(ZOMBIES)
    lines: list[Json] = [{"key": f"k{i}", "argv": ["true"], "lane": "one"} for i in range(5)]
    lines.append({"task": "calls:children", "lane": "one"})
    assert bench.run_batch(lines, "--lane", "one=1").results[-1]["output"] == []
