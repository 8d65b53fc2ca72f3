"""`agentq run`: what is shown, to whom, and that it cannot act on a terminal."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import COMMAND, Bench, Json, end_of, opened

# C0 without the line feed, DEL, C1, and marks that turn text around.
ACTING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

NASTY = "\x1b]0;owned\x07\x1b[31mred\x7f\x9b1m\u202eevil\u2066 [bold]markup[/bold] \r\b\0end"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path) as bench:
        yield bench


def nasty_lines(bench: Bench) -> list[Json]:
    key = NASTY.replace("\0", "")
    bench.module(
        f"nasty = {NASTY!r}\n"
        "def say():\n    return nasty\n"
        "def fail():\n    raise ValueError(nasty)\n"
    )
    return [
        {"key": key, "task": "calls:say"},
        {"key": f"{key}2", "task": "calls:fail"},
        {"key": f"{key}3", "shell": "cat >&2; exit 1", "stdin": NASTY},
        {"argv": ["echo", key]},
        {"key": "lane", "argv": ["true"], "lane": key},
    ]


def on_a_terminal(
    bench: Bench, *arguments: str, columns: int = 120, env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run on a terminal of its own. Returns the exit status and everything it was sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    settings = {"TERM": "xterm", "COLUMNS": str(columns), **(env or {})}
    process = bench.start(
        *arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=settings, start_new_session=True
    )
    os.close(theirs)
    sent = read_to_the_end(ours)
    os.close(ours)
    return process.wait(timeout=20), sent


def read_to_the_end(terminal: int) -> str:
    sent = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # how Linux tells that nobody has the terminal open any more
            return sent.decode()
        if not data:
            return sent.decode()
        sent += data


def without_styles(sent: str) -> str:
    """Drop what rich sends on purpose: styles, cursor movement, erasing."""
    return re.sub(r"\x1b\[\??[0-9;]*[mAKhlJ]", "", sent).replace("\r\n", "\n").replace("\r", "")


def test_plain_lines_and_a_summary(bench: Bench) -> None:
    lines: list[Json] = [
        {"key": "greet", "argv": ["echo", "hello"], "lane": "one"},
        {"key": "fail", "shell": "echo why >&2; exit 3", "lane": "one"},
        {"key": "greet", "argv": ["echo", "hello"], "lane": "one"},
    ]
    ended = bench.run("run", str(bench.write(lines)), "--lane", "one=1:1")
    shown = re.sub(r"\d+\.\d+ s", "T s", ended.stdout)
    assert ended.stderr == ""
    assert sorted(shown.splitlines()) == sorted(
        [
            "completed line 1     greet  (ran, T s)  hello",
            "completed line 3     greet  (joined)  hello",
            "failed    line 2     fail  (ran, T s)  ProgramFailed: exit status 3; stderr: why",
            "3 lines: 2 completed, 1 failed; 2 ran, 1 shared an earlier line's result; T s",
        ]
    )


def test_quiet_tells_only_failures_and_on_standard_error(bench: Bench) -> None:
    lines = [{"key": "fine", "argv": ["true"]}, {"key": "bad", "argv": ["false"]}]
    ended = bench.run("run", str(bench.write(lines)), "--quiet")
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert line.startswith("agentq: failed    line 2     bad  (ran, ")
    assert ended.status == 1


def test_plain_output_cannot_act_on_a_terminal(bench: Bench) -> None:
    lines = nasty_lines(bench)
    lane = lines[4]["lane"]
    ended = bench.run("run", str(bench.write(lines)), "--lane", f"{lane}=1")
    assert ended.status == 1
    assert ACTING.findall(ended.stdout + ended.stderr) == []
    assert ended.stdout.count(r"\x1b]0;owned\x07\x1b[31mred\x7f\x9b1m\u202eevil\u2066 [bold]") >= 4


def test_results_cannot_act_on_a_terminal(bench: Bench) -> None:
    lines = nasty_lines(bench)
    lane = lines[4]["lane"]
    ended = bench.run_batch(lines, *("--lane", f"{lane}=1", "--results", str(bench.results_file)))
    assert ACTING.findall(ended.stdout) == []
    assert ended.results[0]["output"] == NASTY
    assert ended.results[0]["key"] == NASTY.replace("\0", "")
    assert bench.results_file.read_text() == ended.stdout


def test_errors_cannot_act_on_a_terminal(bench: Bench) -> None:
    lines: list[Json] = [
        {"key": "a", "lane": NASTY, "argv": ["true"]},
        {NASTY: 1, "argv": ["true"]},
        {"task": f"{NASTY}:f"},
        {"argv": ["true"], "env": {f"={NASTY}": ""}},
    ]
    ended = bench.run("run", str(bench.write(lines)))
    assert ended.status == 2
    assert len(ended.stderr.splitlines()) == 5
    assert ACTING.findall(ended.stderr) == []
    missing = bench.run("run", NASTY.replace("\0", ""))
    assert missing.status == 2
    assert ACTING.findall(missing.stderr) == []


def test_the_display_on_a_terminal_cannot_be_acted_upon(bench: Bench) -> None:
    lines = nasty_lines(bench)
    lane = lines[4]["lane"]
    status, sent = on_a_terminal(bench, "run", str(bench.write(lines)), "--lane", f"{lane}=1")
    assert status == 1
    shown = without_styles(sent)
    assert ACTING.findall(shown) == []
    assert "[bold]markup[/bold]" in shown


def test_the_display_on_a_terminal_ends_in_a_table(bench: Bench) -> None:
    lines: list[Json] = [
        {"key": "one", "argv": ["echo", "x"], "lane": "slow"},
        {"key": "two", "shell": "echo why >&2; exit 3"},
        {"key": "one", "argv": ["echo", "x"], "lane": "slow"},
    ]
    status, sent = on_a_terminal(bench, "run", str(bench.write(lines)), "--lane", "slow=1")
    assert status == 1
    assert sent.startswith("\x1b[?25l")  # the cursor is hidden while numbers change
    assert "\x1b[?25h" in sent
    table = without_styles(sent).partition("batch")[2]
    rows = [re.findall(r"[\w]+", line) for line in table.splitlines() if "│" in line]
    assert rows == [
        ["normal", "1", "1", "0", "0", "1", "0"],
        ["slow", "2", "1", "1", "2", "0", "0"],
    ]
    assert "ProgramFailed: exit status 3; stderr: why" in table
    assert "3 lines: 2 completed, 1 failed; 2 ran, 1 shared" in table


def test_progress_is_shown_while_jobs_run(bench: Bench) -> None:
    hold = bench.pipe("hold")
    lines = [{"key": "held", "argv": ["cat", str(hold)]}, {"key": "quick", "argv": ["true"]}]
    ours, theirs = pty.openpty()
    process = bench.start(
        *("run", str(bench.write(lines))),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={"TERM": "xterm"},
    )
    os.close(theirs)
    sent = ""
    while "1 of 2 lines done" not in sent or "quick" not in sent:
        sent += os.read(ours, 65536).decode()
    assert re.search(r"normal +0 +1 +1 +0", without_styles(sent))
    hold.write_text("go")
    read_to_the_end(ours)
    os.close(ours)
    assert process.wait(timeout=20) == 0


@pytest.mark.parametrize("colour", [True, False])
def test_no_color_is_respected(bench: Bench, colour: bool) -> None:
    batch = str(bench.write([{"argv": ["true"]}, {"argv": ["false"]}]))
    _, sent = on_a_terminal(bench, "run", batch, env={} if colour else {"NO_COLOR": "1"})
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-7]m", sent)) is colour


def test_a_dumb_terminal_gets_plain_lines(bench: Bench) -> None:
    batch = str(bench.write([{"argv": ["true"]}]))
    status, sent = on_a_terminal(bench, "run", batch, env={"TERM": "dumb"})
    assert status == 0
    assert "\x1b" not in sent
    assert sent.startswith("completed line 1")


def test_interrupts_on_a_terminal_are_told_in_the_display(bench: Bench) -> None:
    started, hold = bench.pipe("started"), bench.pipe("hold")
    lines = [{"key": "held", "shell": f"echo > {started}; cat {hold}"}]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(COMMAND[0], [*COMMAND, "run", str(bench.write(lines))])
    opened(started)
    os.write(terminal, b"\x03")  # as a key: the terminal sends the signal
    sent = ""
    while "interrupted: nothing more is started" not in sent:
        sent += os.read(terminal, 65536).decode()
    os.write(terminal, b"\x03")
    sent = read_to_the_end(terminal)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert "1 line: 0 completed, 1 failed" in without_styles(sent)
    assert "cancelled" in sent


def test_the_third_interrupt_leaves_the_terminal_usable(bench: Bench) -> None:
    started = bench.pipe("started")
    lines = [{"shell": f"echo > {started}; trap '' TERM; while :; do sleep 1; done"}]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(COMMAND[0], [*COMMAND, "run", str(bench.write(lines))])
    opened(started)
    sent = ""
    for said in ("interrupted: nothing more", "interrupted again", None):
        os.write(terminal, b"\x03")
        while said is not None and said not in sent:
            sent += os.read(terminal, 65536).decode()
    sent += read_to_the_end(terminal)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert sent.rstrip().endswith("\x1b[?25h")


# ── when nobody reads ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("option", ["--json", None])
def test_a_reader_that_goes_away_stops_neither_jobs_nor_results(
    bench: Bench, option: str | None
) -> None:
    lines = [bench.counted(f"k{i}", lane="one") for i in range(8)]
    options = ["--lane", "one=1:1", "--results", str(bench.results_file)]
    options += [] if option is None else [option]
    process = bench.start("run", str(bench.write(lines)), *options)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    ended = end_of(process)
    assert (ended.status, ended.stderr) == (0, "")
    assert bench.executions() == {f"k{i}": 1 for i in range(8)}
    assert len(bench.results()) == 8


def test_what_functions_print_cannot_break_the_end(bench: Bench) -> None:
    bench.module("def talk():\n    print('x' * 100)\n")
    process = bench.start("run", str(bench.write([{"task": "calls:talk"}])))
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    ended = end_of(process)
    assert (ended.status, ended.stderr) == (0, "x" * 100 + "\n")


@pytest.mark.parametrize("option", ["--json", "--quiet", "--lane=one=1"])
def test_standard_output_that_is_closed(bench: Bench, option: str) -> None:
    batch = str(bench.write([bench.counted("k"), {"argv": ["false"]}]))
    arguments = ["run", batch, option, "--results", str(bench.results_file)]
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *arguments]
    ended = subprocess.run(command, stderr=subprocess.PIPE, check=False, cwd=bench.directory)
    assert ended.returncode == 1
    assert bench.executions() == {"k": 1}
    assert [r["state"] for r in bench.results()] == ["completed", "failed"]


def test_a_full_disk_behind_standard_output_is_told(bench: Bench) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    batch = str(bench.write([bench.counted("k")]))
    with Path("/dev/full").open("wb") as full:
        ended = bench.run("run", batch, stdout=full)
    assert ended.stderr == "agentq: cannot write to standard output: No space left on device\n"
    assert bench.executions() == {"k": 1}
    assert ended.status == 1


def test_a_reader_that_stalls_does_not_stall_timeouts(bench: Bench) -> None:
    # `| less` reads a screenful. Meanwhile deadlines hold and a Ctrl-C is heard.
    told = bench.pipe("told")
    talk = {"shell": "head -c 900000 /dev/zero | tr '\\0' x"}
    lines: list[Json] = [{**talk, "key": f"k{i}"} for i in range(20)]
    lines.append({"key": "held", "argv": ["sleep", "600"], "timeout": 0.1, "lane": "one"})
    lines.append({"key": "next", "shell": f"echo next > {told}; sleep 600", "lane": "one"})
    process = bench.start(
        *("run", str(bench.write(lines)), "--json", "--lane", "one=1"),
        *("--results", str(bench.results_file)),
    )
    assert opened(told) == "next\n"
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"agentq: interrupted")
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline().startswith(b"agentq: interrupted again")
    assert process.wait(timeout=20) == 130
    reasons = {r["key"]: r.get("reason") for r in bench.results()}
    assert (reasons["held"], reasons["next"]) == ("timed out after 0.1 s", "cancelled")
