"""Programs: their input and output, how they fail, and moments that a batch meets rarely."""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentq.cli.processes import GRACE_SECONDS, Processes
from agentq.cli.programs import CannotStart, ProgramFailed, ProgramOutput, program_task
from agentq.cli.spool import Spool

LIMIT_SECONDS = 20


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, LIMIT_SECONDS))


async def program(processes: Processes, *argv: str, **more: Any) -> tuple[str, ProgramOutput]:
    """Run a program. Returns its output as text and as what the queue keeps."""
    with closing(Spool()) as spool:
        task = program_task(processes, spool, more.pop("max_output", 1000))
        call = {"argv": list(argv), "shell": None, "stdin": None, "env": None, "cwd": None, **more}
        output: ProgramOutput = await task(**call)
        return output.text(), output


def text_of(*argv: str, **more: Any) -> str:
    text, _ = run(program(Processes(), *argv, **more))
    assert isinstance(text, str)
    return text


def failure_of(*argv: str, **more: Any) -> str:
    with pytest.raises((ProgramFailed, CannotStart)) as caught:
        text_of(*argv, **more)
    return f"{type(caught.value).__name__}: {caught.value}"


# ── input, surroundings, output ──────────────────────────────────────────────────────────────


def test_arguments_are_no_shell_text() -> None:
    assert text_of("printf", "%s|", "a b", "$HOME", "*", "") == "a b|$HOME|*||"


def test_stdin_is_fed_while_output_is_read() -> None:
    text = "line of text é\n" * 200_000
    assert text_of("cat", stdin=text, max_output=10**7) == text


@pytest.mark.parametrize(("argv", "output"), [(["true"], ""), (["head", "-c", "3"], "abc")])
def test_a_program_need_not_read_its_stdin(argv: list[str], output: str) -> None:
    assert text_of(*argv, stdin="abc" * 1_000_000) == output


def test_env_is_added_to_what_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "kept")
    monkeypatch.setenv("CHANGED", "old")
    env = {"CHANGED": "new", "ADDED": "é"}
    script = 'echo "$INHERITED $CHANGED $ADDED"'
    assert text_of(argv=None, shell=script, env=env) == "kept new é\n"


def test_a_program_is_found_from_its_cwd(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.write_text("#!/bin/sh\npwd\n")
    here.chmod(0o755)
    assert text_of("./here", cwd=str(tmp_path)) == f"{tmp_path.resolve()}\n"


def test_output_that_is_not_utf_8_is_replaced() -> None:
    assert text_of("printf", r"a\377b\303") == "a\ufffdb\ufffd"


@pytest.mark.parametrize(
    ("given", "kept", "written", "cut"),
    [("123456789", "12345", 9, True), ("12345", "12345", 5, False), ("abcdé", "abcd", 6, True)],
)
def test_output_is_cut_between_characters(given: str, kept: str, written: int, cut: bool) -> None:
    text, output = run(program(Processes(), "printf", given, max_output=5))
    assert (text, output.written, output.cut) == (kept, written, cut)


# ── failures ─────────────────────────────────────────────────────────────────────────────────


def test_a_failure_names_the_exit_status_and_the_end_of_stderr() -> None:
    script = "yes error line | head -n 1000 >&2; echo the last words >&2; echo out; exit 42"
    reason = failure_of(argv=None, shell=script)
    start = "ProgramFailed: exit status 42; stderr: … "
    assert reason.startswith(start)
    assert reason.endswith("error line\nthe last words")
    assert len(reason) == len(start) + 4096 - 1  # but for the line end


def test_a_failure_without_stderr() -> None:
    assert failure_of("false") == "ProgramFailed: exit status 1"


def test_a_program_killed_by_a_signal() -> None:
    reason = failure_of(argv=None, shell="echo dying >&2; kill -SEGV $$")
    assert reason == "ProgramFailed: killed by SIGSEGV; stderr: dying"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are no programs, each in its own way, in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("plain.txt").write_text("no program")
    for name, content in (("script", b"#!/nowhere/interpreter\n"), ("binary", b"\x7fELF broken")):
        Path(name).write_bytes(content)
        Path(name).chmod(0o755)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("argv", "cwd", "reason"),
    [
        (["no-such-program"], None, "no program 'no-such-program' on PATH"),
        (["./no-such-program"], None, "no program './no-such-program'"),
        (["./plain.txt"], None, "'./plain.txt' is not an executable program (permission denied)"),
        (["./script"], None, "cannot start './script': the interpreter it names does not exist"),
        (["./binary"], None, "cannot start './binary': Exec format error"),
        (["true"], "nowhere", "no directory 'nowhere' to run in"),
        (["true"], "plain.txt", "no directory 'plain.txt' to run in"),
        (["true", "x" * 200_000], None, "cannot start 'true': Argument list too long"),
    ],
)
def test_programs_that_cannot_be_started(argv: list[str], cwd: str | None, reason: str) -> None:
    assert failure_of(*argv, cwd=cwd) == f"CannotStart: {reason}"


# ── rare moments ─────────────────────────────────────────────────────────────────────────────


def test_a_program_is_known_while_it_runs() -> None:
    async def main() -> None:
        processes = Processes()
        running = asyncio.ensure_future(program(processes, "sleep", "600"))
        await asyncio.sleep(0)
        assert await processes.gone(0) is False
        processes.kill()
        assert await processes.gone(LIMIT_SECONDS) is True
        with pytest.raises(ProgramFailed, match=r"^killed by SIGKILL$"):
            await running

    run(main())


def test_a_program_is_killed_although_it_is_just_being_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As a signal handler does that interrupts the start of a program, and then ends the process.
    class Interrupted(BaseException):
        pass

    processes, made = Processes(), list[subprocess.Popen[bytes]]()
    popen = subprocess.Popen

    def interrupted_start(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        processes.kill(leave)
        process: subprocess.Popen[bytes] = popen(*args, **kwargs)
        made.append(process)
        return process

    def leave() -> None:
        raise Interrupted

    monkeypatch.setattr(subprocess, "Popen", interrupted_start)
    with pytest.raises(Interrupted):
        run(program(processes, "sleep", "600"))
    [process] = made
    assert process.wait(LIMIT_SECONDS) == -signal.SIGKILL
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


def test_cancelled_twice_it_is_killed_at_once(tmp_path: Path) -> None:
    up = tmp_path / "up"
    os.mkfifo(up)

    async def main() -> None:
        processes = Processes()
        script = f"trap '' TERM; echo > {up}; while :; do sleep 1; done"
        running = asyncio.ensure_future(program(processes, "sh", "-c", script))
        await asyncio.to_thread(up.read_text)
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await processes.gone(GRACE_SECONDS / 2) is True

    run(main())


def test_an_exit_status_that_others_took_is_not_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(*_: object) -> None:
        raise ChildProcessError

    monkeypatch.setattr(os, "waitid", taken, raising=False)
    with pytest.raises(ProgramFailed, match=r"^its exit status was taken by other code"):
        run(program(Processes(), "true"))


def test_without_threads_no_program_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    processes = Processes()
    monkeypatch.setattr(threading.Thread, "start", refuse)

    async def main() -> None:
        with pytest.raises(ProgramFailed, match=r"^cannot start 'sleep': can't start new thread$"):
            await program(processes, "sleep", "600")
        assert await processes.gone(0) is True

    run(main())


def test_a_passing_refusal_of_the_system_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(ProgramFailed, match="Resource temporarily unavailable"):
        run(program(Processes(), "true"))
