"""Checks the fields of one line of a batch. Every check raises `ValueError` with a reason."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from agentq import LaneConfig, Retry

_TYPES = {
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def record_of(raw: bytes) -> dict[str, Any]:
    """Read one line as a JSON object."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        raise ValueError(f"not UTF-8: byte 0x{byte:02x} at position {error.start + 1}") from None
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except _Refused:
        raise
    except ValueError as error:  # a number with thousands of digits
        raise ValueError(f"not usable: {error}") from None
    except RecursionError:
        raise ValueError("not usable: its JSON is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object, not {kind_of(value)}")
    return value


def kind_of(value: object) -> str:
    """Say what JSON calls the type of `value`."""
    return _TYPES.get(type(value), type(value).__name__)


def text(value: object, name: str) -> str:
    """Check a string that the system is to be handed: UTF-8, without NUL."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, not {kind_of(value)}")
    if "\0" in value:
        raise ValueError(f"{name} must not contain NUL")
    return encodable(value, name)


def encodable(value: object, name: str) -> str:
    """Check a string that has a form in UTF-8."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, not {kind_of(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} has half of a surrogate pair, which is no text") from None
    return value


def arguments(value: object) -> list[str]:
    """Check `argv`: a program and its arguments."""
    if not isinstance(value, list):
        raise ValueError(
            f'argv must be an array of strings such as ["wc", "-l"], not {kind_of(value)}'
        )
    if not value or value[0] == "":
        raise ValueError("argv must begin with a program's name")
    return [text(item, f"argv[{index}]") for index, item in enumerate(value)]


def environment(value: object) -> dict[str, str]:
    """Check `env`: variables by name."""
    if not isinstance(value, dict):
        raise ValueError(f"env must be an object of strings, not {kind_of(value)}")
    for name, setting in value.items():
        if not name or "=" in text(name, "a name in env"):
            raise ValueError(f"env cannot have a variable named {name!r}")
        text(setting, f"env[{name!r}]")
    return value


def timeout(value: object) -> float:
    """Check a number of seconds, more than 0 and finite."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"timeout must be a number of seconds, not {kind_of(value)}")
    if not 0 < value < float("inf"):
        raise ValueError(f"timeout must be more than 0 seconds and finite, not {value}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("timeout must be a number of seconds that can be waited") from None


def retry(value: object) -> Retry:
    """Check `retry`: how many extra tries, or an object with the settings of `Retry`."""
    if isinstance(value, dict):
        known = ("attempts", "initial", "maximum", "factor", "jitter")
        unknown(value, known, "retry")
        try:
            return Retry(**value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"retry: {error}") from None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(
            f"retry must be a whole number of extra tries, or an object, not {kind_of(value)}"
        )
    if value < 0:
        raise ValueError(f"retry must be 0 or more extra tries, not {value}")
    return Retry(attempts=value + 1)


def unknown(record: dict[str, Any], known: Iterable[str], what: str) -> None:
    """Refuse fields that are not among `known`."""
    known = tuple(known)
    for name in record:
        if name not in known:
            raise ValueError(f"unknown field {name!r} in {what}; it may have {', '.join(known)}")


def lane_option(value: str) -> tuple[str, LaneConfig]:
    """Read `NAME=PERMITS[:CAPACITY]`."""
    name, equals, limits = value.rpartition("=")
    permits, colon, capacity = limits.partition(":")
    if not (name and equals and _is_number(permits) and (not colon or _is_number(capacity))):
        raise ValueError(f"must be NAME=PERMITS or NAME=PERMITS:CAPACITY, not {value!r}")
    encodable(name, "a lane's name")
    config = LaneConfig(
        permits=int(permits), capacity=int(capacity) if colon else LaneConfig().capacity
    )
    if config.permits < 1 or config.capacity < 1:
        raise ValueError(f"permits and capacity must be 1 or more, not {value!r}")
    return name, config


def _is_number(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) < 10


class _Refused(ValueError):
    """What is JSON to others and not here."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Refused(f"field {twice!r} is given twice")
    return record


def _no_constant(name: str) -> Any:
    raise _Refused(f"not JSON: {name} is no JSON value")
