"""`agentq` as a real process, for tests of the command line.

Jobs tell that they are there by opening a named pipe, and are held by reading one, so tests wait
for the thing itself. Whatever writes to a pipe and everything it started is gone once a reader of
that pipe sees its end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

LIMIT_SECONDS = 30.0

COMMAND = [sys.executable, "-W", "error", "-m", "agentq"]

Json = dict[str, Any]
Line = Mapping[str, Any] | str | bytes


@dataclass(frozen=True)
class Ended:
    status: int
    stdout: str
    stderr: str

    @property
    def results(self) -> list[Json]:
        """Standard output as lines of JSON, by line number."""
        assert "Traceback" not in self.stderr, self.stderr
        return by_line(self.stdout)


def by_line(text: str) -> list[Json]:
    return sorted((json.loads(line) for line in text.splitlines()), key=lambda r: r["line"])


class Bench:
    """A directory with a batch in it, and what happens there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.batch = directory / "batch.jsonl"
        self.log = directory / "executions.log"
        self.results_file = directory / "results.jsonl"
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with suppress(OSError):  # what could not be written any more
                        stream.close()

    def write(self, lines: Iterable[Line]) -> Path:
        self.batch.write_bytes(b"".join(encoded(line) for line in lines))
        return self.batch

    def module(self, source: str) -> None:
        """Write `calls.py`, which lines can name."""
        (self.directory / "calls.py").write_text(source)

    def pipe(self, name: str) -> Path:
        path = self.directory / name
        os.mkfifo(path)
        return path

    def counted(self, key: str, then: str = "true", **more: Any) -> Json:
        """A line that notes its execution in the log, then runs `then`."""
        return {"key": key, "shell": f"echo {key} $$ >> {self.log}; {then}", **more}

    def executions(self) -> Counter[str]:
        if not self.log.exists():
            return Counter()
        return Counter(line.split()[0] for line in self.log.read_text().splitlines())

    def results(self) -> list[Json]:
        return by_line(self.results_file.read_text())

    def start(self, *arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
        settings.setdefault("stdin", subprocess.DEVNULL)
        settings.setdefault("stdout", subprocess.PIPE)
        settings.setdefault("stderr", subprocess.PIPE)
        env = {**os.environ, **settings.pop("env", {})}
        process = subprocess.Popen([*COMMAND, *arguments], cwd=self.directory, env=env, **settings)
        self._started.append(process)
        return process

    def run(
        self, *arguments: str, stdin: bytes | None = None, source: Any = None, **settings: Any
    ) -> Ended:
        """Run to the end, with the bytes `stdin` or the file `source` as standard input."""
        if stdin is not None:
            source = subprocess.PIPE
        if source is not None:
            settings["stdin"] = source
        return end_of(self.start(*arguments, **settings), stdin)

    def run_batch(self, lines: Iterable[Line], *options: str, **more: Any) -> Ended:
        """Run `lines` from a file, with results as JSON on standard output."""
        return self.run("run", str(self.write(lines)), "--json", *options, **more)


MEMORY = {"key": "memory", "shell": "grep VmHWM /proc/$PPID/status"}
"""A line whose output tells the most memory that the process has had so far."""


def memory(result: Json) -> int:
    """What a `MEMORY` line has told, in bytes."""
    return int(result["output"].split()[1]) * 1024


def end_of(process: subprocess.Popen[bytes], stdin: bytes | None = None) -> Ended:
    """Wait for a process. One that does not end in time is killed, and the test fails."""
    try:
        stdout, stderr = process.communicate(stdin, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        raise AssertionError(f"did not end:\n{stdout!r}\n{stderr!r}") from None
    return Ended(process.returncode, (stdout or b"").decode(), (stderr or b"").decode())


def encoded(line: Line) -> bytes:
    if isinstance(line, bytes):
        return line + b"\n"
    return (line if isinstance(line, str) else json.dumps(line)).encode() + b"\n"


def opened(pipe: Path) -> str:
    """Wait until someone has opened `pipe` and everyone who did has let it go."""
    return pipe.read_text()
