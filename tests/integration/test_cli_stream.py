"""`agentq run -`: lines from standard input run as they come."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import COMMAND, MEMORY, Bench, Json, encoded, end_of, memory


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path) as bench:
        yield bench


def started(bench: Bench, *options: str) -> subprocess.Popen[bytes]:
    return bench.start("run", "-", "--json", *options, stdin=subprocess.PIPE)


def test_jobs_start_before_the_input_ends(bench: Bench) -> None:
    process = started(bench)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(encoded({"key": "a", "argv": ["echo", "early"]}))
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["output"] == "early\n"
    process.stdin.write(encoded({"key": "b", "argv": ["echo", "late"]}))
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["output"] == "late\n"
    assert end_of(process).status == 0


def test_a_line_may_come_in_parts_and_the_last_without_an_end(bench: Bench) -> None:
    process = started(bench)
    assert process.stdin is not None
    for part in (
        b"\xef\xbb\xbf",
        b'{"key": "a", ',
        b'"argv": ["echo", "\xc3',
        b'\xa9"]}\r\n\n{"key"',
    ):
        process.stdin.write(part)
        process.stdin.flush()
    ended = end_of(process, b': "b", "argv": ["true"]}')
    assert [(r["line"], r["output"]) for r in ended.results] == [(1, "é\n"), (3, "")]
    assert ended.status == 0


def test_input_from_a_regular_file(bench: Bench) -> None:
    with bench.write([{"key": "a", "argv": ["echo", "x"]}]).open("rb") as batch:
        ended = bench.run("run", "-", "--json", source=batch)
    assert [r["output"] for r in ended.results] == ["x\n"]


def test_a_bad_line_is_a_failed_line_and_the_others_run(bench: Bench) -> None:
    lines: list[Json | str | bytes] = [
        bench.counted("before"),
        b"\xff\xfe",
        {"key": "known", "argv": []},
        bench.counted("after"),
        {"key": "after", "argv": ["true"]},
    ]
    batch = b"".join(encoded(line) for line in lines)
    ended = bench.run("run", "-", "--json", stdin=batch)
    assert bench.executions() == {"before": 1, "after": 1}
    assert ended.status == 1
    assert [(r["line"], r["key"], r["state"], r.get("reason")) for r in ended.results] == [
        (1, "before", "completed", None),
        (2, None, "failed", "not UTF-8: byte 0xff at position 1"),
        (3, "known", "failed", "argv must begin with a program's name"),
        (4, "after", "completed", None),
        (
            5,
            "after",
            "failed",
            "key 'after' stands for another call on line 4; a key answers for one call only",
        ),
    ]
    assert [r["ran"] for r in ended.results] == ["ran", "no", "no", "ran", "no"]


def test_a_conflict_is_found_however_the_first_call_ended(bench: Bench) -> None:
    lines = [
        {"key": "k", "shell": "exit 1", "lane": "one"},
        bench.counted("b", lane="one"),
        bench.counted("c", lane="one"),
        {"key": "k", "shell": f"echo again >> {bench.log}", "lane": "one"},
    ]
    batch = b"".join(encoded(line) for line in lines)
    ended = bench.run("run", "-", "--json", "--lane", "one=1:1", stdin=batch)
    assert bench.executions() == {"b": 1, "c": 1}
    assert ended.results[3]["reason"].startswith("key 'k' stands for another call on line 1;")


def test_a_saturated_lane_holds_up_no_other(bench: Bench) -> None:
    hold = bench.pipe("hold")
    lines: list[Json] = [{"key": "held", "lane": "one", "argv": ["cat", str(hold)]}]
    lines += [{"key": f"k{i}", "lane": "one", "argv": ["true"]} for i in range(30)]
    lines += [{"key": "release", "lane": "high", "shell": f"echo go > {hold}"}]
    process = started(bench, "--lane", "one=1:1")
    assert process.stdin is not None
    process.stdin.writelines(encoded(line) for line in lines)
    process.stdin.flush()
    ended = end_of(process)
    assert ended.status == 0
    assert ended.results[0]["output"] == "go\n"


def test_an_interrupt_while_the_input_is_open(bench: Bench) -> None:
    process = started(bench)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(encoded({"key": "a", "argv": ["true"]}))
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(2)
    assert process.stderr.readline().startswith(b"agentq: interrupted: nothing more is started")
    assert process.wait(timeout=20) == 130


def test_a_line_that_is_too_long_takes_no_memory(bench: Bench) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    batch = b"x" * 60_000_000 + b"\n" + encoded(MEMORY)
    first, second = bench.run("run", "-", "--json", stdin=batch).results
    assert (first["line"], first["reason"]) == (1, "longer than 16777216 bytes")
    assert second["line"] == 2
    assert memory(second) < 95_000_000


def test_standard_input_that_is_closed(bench: Bench) -> None:
    command = ["sh", "-c", 'exec "$@" <&-', "sh", *COMMAND, "run", "-"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (2, "agentq: standard input is closed\n")


def test_standard_input_that_cannot_be_read(bench: Bench) -> None:
    if not Path("/proc/self/mem").exists():
        pytest.skip("needs /proc")
    with Path("/proc/self/mem").open("rb", buffering=0) as unreadable:
        ended = bench.run("run", "-", source=unreadable)
    assert ended.status == 1
    assert ended.stderr == "agentq: cannot read standard input: Input/output error\n"
