"""The task behind lines with `argv` and `shell`: run a program, keep its output within bounds."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from asyncio import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentq import task
from agentq.cli.processes import Process, Processes
from agentq.cli.spool import Kept, Spool
from agentq.core.task import Task

STDERR_KEPT = 4096
"""How much of the end of a failed program's stderr its reason shows, in bytes."""

_PASSING = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY}


class ProgramFailed(Exception):
    """A program ran and did not exit with 0, or could not be started for a passing reason."""


class CannotStart(Exception):
    """A program that cannot be started, however often it is tried."""


WORTH_RETRYING = (ProgramFailed, TimeoutError)
"""What another try may heal."""


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """What a program wrote to its stdout.

    Attributes:
        kept: its beginning.
        written: how many bytes it wrote in all.
        cut: whether what is kept is less than that.
    """

    kept: Kept
    written: int
    cut: bool

    def text(self) -> str:
        """What is kept, as text; what is not UTF-8 is replaced."""
        return self.kept.read().decode("utf-8", "replace")


class Head:
    """Keeps the first bytes of what it is given."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.written = 0

    def take(self, data: bytes) -> None:
        """Take more."""
        self.written += len(data)
        room = self._limit - len(self._kept)
        if room > 0:
            self._kept += data[:room]

    def output(self, spool: Spool) -> ProgramOutput:
        """What was kept, moved to `spool`. A character that the limit has split is left out."""
        cut = self.written > len(self._kept)
        kept = bytes(self._kept)
        if cut:
            kept = _without_split_character(kept)
        return ProgramOutput(spool.keep(kept), self.written, cut)


class Tail:
    """Keeps the last bytes of what it is given."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._written = 0

    def take(self, data: bytes) -> None:
        """Take more."""
        self._written += len(data)
        self._kept += data[-self._limit :]
        del self._kept[: -self._limit]

    def text(self) -> str:
        """What was kept, and whether that is not all."""
        text = bytes(self._kept).decode("utf-8", "replace").strip()
        return f"… {text}" if self._written > self._limit else text


def program_task(processes: Processes, spool: Spool, max_output: int) -> Task[..., Any]:
    """Make the task that runs programs.

    Args:
        processes: where running programs are known, so that none is left behind.
        spool: where their outputs are kept.
        max_output: how many bytes of stdout are kept.
    """

    @task(name="agentq.program")
    async def program(
        argv: list[str] | None,
        shell: str | None,
        stdin: str | None,
        env: dict[str, str] | None,
        cwd: str | None,
    ) -> ProgramOutput:
        if argv is None:
            assert shell is not None
            argv = ["/bin/sh", "-c", shell]
        stdout, stderr = Head(max_output), Tail(STDERR_KEPT)
        process = _start(processes, argv, stdin or "", env or {}, cwd, stdout, stderr)
        try:
            await process.wait()
        except CancelledError:
            await process.end()
            raise
        if not process.status_known:
            raise ProgramFailed("its exit status was taken by other code in this process")
        if process.status:
            raise ProgramFailed(_end_of(process.status) + _shown(stderr.text()))
        return stdout.output(spool)

    return program


def _start(
    processes: Processes,
    argv: list[str],
    stdin: str,
    env: dict[str, str],
    cwd: str | None,
    stdout: Head,
    stderr: Tail,
) -> Process:
    """Start a program. Raises `CannotStart` or `ProgramFailed`."""
    if cwd is not None and not Path(cwd).is_dir():
        raise CannotStart(f"no directory {cwd!r} to run in")
    environment = {**os.environ, **env}
    try:
        return processes.start(
            argv,
            stdin=stdin.encode(),
            env=environment,
            cwd=cwd,
            stdout=stdout.take,
            stderr=stderr.take,
        )
    except (OSError, RuntimeError) as error:
        raise _start_error(argv[0], error, environment, cwd) from error


def _start_error(
    name: str, error: Exception, environment: dict[str, str], cwd: str | None
) -> Exception:
    if isinstance(error, RuntimeError) or getattr(error, "errno", None) in _PASSING:
        return ProgramFailed(f"cannot start {name!r}: {error}")
    if isinstance(error, FileNotFoundError):
        path = str(Path(cwd or ".", name)) if "/" in name else name
        if shutil.which(path, path=environment.get("PATH")) is not None:
            return CannotStart(f"cannot start {name!r}: the interpreter it names does not exist")
        where = "" if "/" in name else " on PATH"
        return CannotStart(f"no program {name!r}{where}")
    if isinstance(error, PermissionError):
        return CannotStart(f"{name!r} is not an executable program (permission denied)")
    assert isinstance(error, OSError)
    return CannotStart(f"cannot start {name!r}: {error.strerror}")


def _end_of(status: int) -> str:
    if status > 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _shown(stderr: str) -> str:
    return f"; stderr: {stderr}" if stderr else ""


def _without_split_character(data: bytes) -> bytes:
    """Drop the beginning of a character at the end of `data`."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
        return data if length <= back else data[:-back]
    return data
