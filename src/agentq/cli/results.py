"""What becomes of a line, and its form as a line of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from agentq.cli.escape import clipped, in_json
from agentq.cli.programs import ProgramOutput


class State(StrEnum):
    """How a line ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    LOST = "lost"
    NOT_RUN = "not_run"


class Ran(StrEnum):
    """Where a line's end comes from."""

    RAN = "ran"
    JOINED = "joined"
    CACHED = "cached"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Shown:
    """An output in the form it is given out in.

    Attributes:
        value: a value that JSON has.
        form: `text` for text as it was, `json` for another value as it was, `repr` for the
            `repr()` of a value that has no JSON form.
        whole: how many bytes it has in all, when `value` is text that was cut; else None.
    """

    value: Any
    form: str
    whole: int | None = None


def shown(output: Any, limit: int) -> Shown:
    """Give an output a form that JSON has, at most about `limit` bytes long. Never raises."""
    if isinstance(output, ProgramOutput):
        try:
            return Shown(output.text(), "text", output.written if output.cut else None)
        except OSError as error:
            return Shown(f"<output unreadable: {error.strerror}>", "repr", output.written)
    if isinstance(output, str):
        return _cut(str.__str__(output), "text", limit)
    if output is None or output is True or output is False:
        return Shown(output, "json")
    try:
        # Bytes stay bytes here, and so have no form; as base64 they would pass for text.
        value = msgspec.to_builtins(output, str_keys=True, builtin_types=(bytes, bytearray))
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    # Reading an output's attributes runs code of its own, which may raise anything; a signal
    # does not come as an exception here.
    except BaseException:
        return _cut(_repr(output), "repr", limit)
    if len(text) <= limit and len(text.encode("utf-8", "surrogatepass")) <= limit:
        return Shown(value, "json")
    return _cut(text, "json", limit)


def _cut(text: str, form: str, limit: int) -> Shown:
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit:
        return Shown(text, form)
    return Shown(data[:limit].decode("utf-8", "ignore"), form, len(data))


def _repr(output: object) -> str:
    try:
        return repr(output)
    # Whatever a hostile __repr__ raises, the line has completed and must be told.
    except BaseException as error:
        return f"<{type(output).__name__}: its __repr__ raised {type(error).__name__}>"


@dataclass(frozen=True, slots=True)
class Result:
    """The end of one line.

    Attributes:
        line: the line's number, from 1.
        key: its key; None for a bad line without one.
        lane: the lane it was in; None for a bad line.
        label: what a person is shown instead of the key.
        state: how it ended.
        ran: whether it ran itself, or shares the end of an earlier line.
        seconds: from the first try's start to the end, or, for a joined line, from joining.
        attempts: how many tries there were; 0 when it did not run itself.
        output: of a completed line.
        reason: of any other.
    """

    line: int
    key: str | None
    lane: str | None
    label: str
    state: State
    ran: Ran
    seconds: float = 0.0
    attempts: int = 0
    output: Shown | None = None
    reason: str | None = None

    def to_json(self) -> str:
        """The result as one line of JSON, without a line end."""
        record: dict[str, Any] = {
            "line": self.line,
            "key": self.key,
            "lane": self.lane,
            "state": self.state,
        }
        if self.output is not None:
            record["output"] = self.output.value
            if self.output.form == "repr":
                record["output_form"] = "repr"
            if self.output.whole is not None:
                record["output_cut"] = True
                record["output_bytes"] = self.output.whole
        if self.reason is not None:
            record["reason"] = self.reason
        record["ran"] = self.ran
        record["seconds"] = round(self.seconds, 6)
        record["attempts"] = self.attempts
        return in_json(json.dumps(record, ensure_ascii=False))

    def detail(self, width: int) -> str:
        """The output or reason in one harmless line of at most `width` characters."""
        if self.reason is not None:
            return clipped(self.reason, width)
        if self.output is None or self.output.value is None:
            return ""
        value = self.output.value
        text = value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        mark = "" if self.output.whole is None else f" [cut, {self.output.whole} bytes]"
        return clipped(text, width - len(mark)) + mark
