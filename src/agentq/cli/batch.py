"""Turns lines of a batch into jobs, and refuses the lines that cannot be jobs, with a reason."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from agentq import Job, Retry
from agentq.cli import fields
from agentq.cli.functions import Functions
from agentq.cli.lines import LINE_LIMIT
from agentq.cli.programs import WORTH_RETRYING
from agentq.core.keys import checked_key
from agentq.core.task import Task

_FORMS = {
    "argv": ("key", "lane", "argv", "stdin", "env", "cwd", "timeout", "retry"),
    "shell": ("key", "lane", "shell", "stdin", "env", "cwd", "timeout", "retry"),
    "task": ("key", "lane", "task", "args", "kwargs", "timeout", "retry"),
}
_LABEL_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Line:
    """One line that can run.

    Attributes:
        number: its number in the batch, from 1.
        job: its call.
        lane: the lane it is fed to: its own, or that of the first line with its key.
        label: what a person is shown: the key when the line has one, else the call.
        size: its length in bytes.
        first: whether no line before it has its key; this one makes the key run.
    """

    number: int
    job: Job
    lane: str
    label: str
    size: int
    first: bool


class BadLine(Exception):
    """A line that cannot run.

    Attributes:
        number: its number in the batch, from 1.
        reason: why not.
        key: its key, when it has a usable one.
    """

    def __init__(self, number: int, reason: str, key: str | None) -> None:
        super().__init__(f"line {number}: {reason}")
        self.number = number
        self.reason = reason
        self.key = key


@dataclass(slots=True)
class Parser:
    """Makes jobs of lines, with what the command line says for all of them.

    Attributes:
        program: the task that runs programs.
        lanes: the lanes there are.
        timeout: for lines that say nothing about it, in seconds.
        retry: for lines that say nothing about it.
    """

    program: Task[..., Any]
    lanes: Collection[str]
    timeout: float | None = None
    retry: Retry | None = None
    _functions: Functions = field(default_factory=Functions)
    _seen: dict[str, tuple[int, str, bytes | None]] = field(default_factory=dict)

    def parse(self, number: int, raw: bytes | None) -> Line:
        """Make a job of a line. Raises `BadLine`."""
        key: str | None = None
        try:
            if raw is None:
                raise ValueError(f"longer than {LINE_LIMIT} bytes")
            record = fields.record_of(raw)
            form = _form_of(record)
            if "key" in record:
                key = checked_key(fields.encodable(record["key"], "key"))
            job = self._job(form, record, key)
            key = job.key
            lane, first = self._admit(number, job)
        except ValueError as error:
            raise BadLine(number, str(error), key) from None
        label = record.get("key") or _label(form, record)
        return Line(number, job, lane, label, len(raw), first)

    def _job(self, form: str, record: dict[str, Any], key: str | None) -> Job:
        job = self._call(record, key) if form == "task" else self._program(form, record, key)
        lane = fields.encodable(record.get("lane", str(job.lane)), "lane")
        if lane not in self.lanes:
            raise ValueError(
                f"unknown lane {lane!r}; the lanes are {', '.join(self.lanes)}; "
                f"add one with --lane {shlex.quote(lane)}=PERMITS"
            )
        timeout = fields.timeout(record["timeout"]) if "timeout" in record else job.timeout
        retry = fields.retry(record["retry"]) if "retry" in record else job.retry
        retry = self.retry if retry is None else retry
        if form != "task" and retry is not None:
            retry = replace(retry, on=WORTH_RETRYING)
        settled = Job(
            checked_key(job.key),
            job.func,
            args=job.args,
            kwargs=job.kwargs,
            lane=lane,
            timeout=self.timeout if timeout is None else timeout,
            retry=retry,
        )
        settled.fingerprint = job.fingerprint
        return settled

    def _program(self, form: str, record: dict[str, Any], key: str | None) -> Job:
        job = self.program.job(
            argv=fields.arguments(record["argv"]) if form == "argv" else None,
            shell=fields.text(record["shell"], "shell") if form == "shell" else None,
            stdin=fields.encodable(record["stdin"], "stdin") if "stdin" in record else None,
            env=fields.environment(record["env"]) if "env" in record else None,
            cwd=fields.text(record["cwd"], "cwd") if "cwd" in record else None,
        )
        return job if key is None else job.with_key(key)

    def _call(self, record: dict[str, Any], key: str | None) -> Job:
        name, args, kwargs = record["task"], record.get("args", []), record.get("kwargs", {})
        fields.encodable(name, "task")
        if not isinstance(args, list):
            raise ValueError(f"args must be an array, not {fields.kind_of(args)}")
        if not isinstance(kwargs, dict):
            raise ValueError(f"kwargs must be an object, not {fields.kind_of(kwargs)}")
        return self._functions.job(name, args, kwargs, key)

    def _admit(self, number: int, job: Job) -> tuple[str, bool]:
        """Note a key. Returns the lane of the first line that has it, and whether this is it."""
        first, lane, fingerprint = self._seen.setdefault(
            job.key, (number, job.lane, job.fingerprint)
        )
        if fingerprint != job.fingerprint:
            raise ValueError(
                f"key {job.key!r} stands for another call on line {first}; "
                "a key answers for one call only"
            )
        return lane, first == number


def _form_of(record: dict[str, Any]) -> str:
    forms = [name for name in _FORMS if name in record]
    if len(forms) != 1:
        found = f"it has {' and '.join(forms)}" if forms else "it has none"
        raise ValueError(f"a line needs exactly one of argv, shell and task; {found}")
    fields.unknown(record, _FORMS[forms[0]], f"a line with {forms[0]}")
    return forms[0]


def _label(form: str, record: dict[str, Any]) -> str:
    if form == "argv":
        text = shlex.join(record["argv"])
    elif form == "shell":
        text = record["shell"]
    else:
        given = [repr(value) for value in record.get("args", [])]
        given += [f"{name}={value!r}" for name, value in record.get("kwargs", {}).items()]
        text = f"{record['task'].partition(':')[2]}({', '.join(given)})"
    return text if len(text) <= _LABEL_WIDTH else text[: _LABEL_WIDTH - 1] + "…"
