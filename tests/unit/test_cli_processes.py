"""Programs at moments that a batch meets rarely."""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from agentq.cli.processes import GRACE_SECONDS, Processes
from agentq.cli.programs import ProgramFailed, ProgramOutput, program_task
from agentq.cli.spool import Spool

LIMIT_SECONDS = 20


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, LIMIT_SECONDS))


async def program(processes: Processes, *argv: str) -> ProgramOutput:
    task = program_task(processes, Spool(), 1000)
    output: ProgramOutput = await task(list(argv), None, None, None, None)
    return output


def test_a_program() -> None:
    processes = Processes()
    assert run(program(processes, "echo", "hello")).text() == "hello\n"
    assert run(processes.gone(0)) is True


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
