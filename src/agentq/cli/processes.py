"""Runs a program in a session of its own and leaves no process of it behind.

The group is killed while its leader is a zombie, so that its number cannot have passed to others.
That is why programs are reaped here and not by asyncio, which reaps first and tells later.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

GRACE_SECONDS = 2.0
"""How long a program that is being ended has between SIGTERM and SIGKILL."""

PIPE_SECONDS = 0.5
"""How long a pipe may stay open after its program has ended and the group was killed.

Only a process that has left the group can hold it open; that one is not waited for.
"""

_CHUNK = 64 * 1024

Take = Callable[[bytes], object]


def expect_children() -> None:
    """Have the system keep the exit status of children, should this process not have it so."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


class Processes:
    """The programs that run now. Used on the loop's thread, and by its signal handlers."""

    def __init__(self) -> None:
        self._live: set[Process] = set()
        self._starting = False
        self._afterwards: Callable[[], object] | None = None
        self._gone: Future[None] | None = None

    def start(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        env: Mapping[str, str],
        cwd: str | None,
        stdout: Take,
        stderr: Take,
    ) -> Process:
        """Start a program. `stdout` and `stderr` are called with what it writes, as it comes.

        Raises `OSError` when the system refuses.
        """
        self._starting = True
        try:
            popen = subprocess.Popen(  # noqa: S603 (running programs is what this is for)
                argv,
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                cwd=cwd,
                bufsize=0,
                start_new_session=True,
            )
            process = Process(popen, stdin, stdout, stderr, self.discard)
            self._live.add(process)
        finally:
            self._starting = False
            if self._afterwards is not None:
                self.kill(self._afterwards)
        process.watch()
        return process

    def discard(self, process: Process) -> None:
        """Note that a program has ended."""
        self._live.discard(process)
        if not self._live and self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def kill(self, afterwards: Callable[[], object] | None = None) -> None:
        """Kill every program and its group, then call `afterwards`.

        A signal handler may interrupt a start; then this waits for the start to have happened.
        """
        if self._starting:
            self._afterwards = afterwards
            return
        for process in list(self._live):
            process.signal(signal.SIGKILL)
        if afterwards is not None:
            afterwards()

    async def gone(self, timeout: float) -> bool:
        """Wait until no program runs, `timeout` seconds at most. Returns whether that is so."""
        if self._live:
            self._gone = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._gone,), timeout=timeout)
        return not self._live


class Process:
    """One program, its process group and its pipes.

    Attributes:
        status: its exit status, or minus the number of the signal that ended it; None while it
            runs.
        status_known: false when other code in this process took the status away.
    """

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        stdin: bytes,
        stdout: Take,
        stderr: Take,
        ended: Callable[[Process], None],
    ) -> None:
        self.status: int | None = None
        self.status_known = True
        self._popen = popen
        self._loop: AbstractEventLoop = asyncio.get_running_loop()
        self._finished: Future[None] = self._loop.create_future()
        self._tell = ended
        self._unsent = memoryview(stdin)
        self._takes: dict[IO[bytes], Take] = {}
        for pipe, take in ((popen.stdout, stdout), (popen.stderr, stderr)):
            assert pipe is not None
            self._takes[pipe] = take
        self._leader_ended = False
        self._ending = False
        self._timer: TimerHandle | None = None

    def watch(self) -> None:
        """Serve its pipes and notice its end."""
        for pipe in self._takes:
            os.set_blocking(pipe.fileno(), False)
            self._loop.add_reader(pipe.fileno(), self._read, pipe)
        stdin = self._popen.stdin
        if stdin is not None:
            os.set_blocking(stdin.fileno(), False)
            self._loop.add_writer(stdin.fileno(), self._write, stdin)
        thread = threading.Thread(target=self._await_end, name="agentq program", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self.signal(signal.SIGKILL)
            self._popen.wait()
            self._leader_has_ended()
            raise

    async def wait(self) -> None:
        """Wait until it has ended and all it wrote is read. Cancelled, it runs on."""
        await asyncio.wait((self._finished,))

    async def end(self) -> None:
        """Ask its group to end, then kill what is left of it. Cancelled, it kills at once."""
        self._ending = True
        self.signal(signal.SIGTERM)
        self._set_timer(GRACE_SECONDS, self._end_grace)
        try:
            await self.wait()
        except asyncio.CancelledError:
            self._end_grace()
            raise

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its group, unless the program has ended and is reaped."""
        if self.status is None:
            # Gone already, or (setuid programs) not ours to signal.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, number)

    def _await_end(self) -> None:
        if hasattr(os, "waitid"):
            try:
                os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                self.status_known = False
        else:  # macOS before Python 3.13
            self._popen.wait()
        with suppress(RuntimeError):  # the loop is closed: everything was killed before
            self._loop.call_soon_threadsafe(self._leader_has_ended)

    def _leader_has_ended(self) -> None:
        self._leader_ended = True
        self._step()

    def _end_grace(self) -> None:
        self._ending = False
        self.signal(signal.SIGKILL)
        self._step()

    def _step(self) -> None:
        """Go on to the next part of the end, if it is time for it."""
        if not self._leader_ended or self._finished.done():
            return
        if self.status is None:
            if self._ending and self._takes:
                return  # others of its group still have their pipes and may be cleaning up
            self.signal(signal.SIGKILL)
            self.status = self._popen.wait()
            self._set_timer(PIPE_SECONDS, self._leave_pipes)
        if not self._takes:
            self._set_timer(None)
            if self._popen.stdin is not None:
                self._close(self._popen.stdin)
            self._finished.set_result(None)
            self._tell(self)

    def _leave_pipes(self) -> None:
        for pipe in list(self._takes):
            self._close(pipe)
        self._step()

    def _set_timer(self, seconds: float | None, call: Callable[[], None] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if seconds is not None and call is not None:
            self._timer = self._loop.call_later(seconds, call)

    def _read(self, pipe: IO[bytes]) -> None:
        try:
            data = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return
        if data:
            self._takes[pipe](data)
        else:
            self._close(pipe)
            self._step()

    def _write(self, pipe: IO[bytes]) -> None:
        try:
            sent = os.write(pipe.fileno(), self._unsent[:_CHUNK])
        except BlockingIOError:
            return
        except BrokenPipeError:  # it does not want to read more, which is its right
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self._close(pipe)

    def _close(self, pipe: IO[bytes]) -> None:
        if pipe.closed:
            return
        if pipe is self._popen.stdin:
            self._loop.remove_writer(pipe.fileno())
        else:
            self._loop.remove_reader(pipe.fileno())
            del self._takes[pipe]
        pipe.close()
