"""Finds the Python functions that lines name as `module:function`, and makes jobs of calls."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from agentq import Job, task
from agentq.core.fingerprint import fingerprint_of
from agentq.core.reason import capped, reason_of
from agentq.core.task import BoundTask, Task

_LONGEST_REASON = 500

Maker = Callable[[list[Any], dict[str, Any], str | None], Job]
"""Makes a job of arguments, keyword arguments, and the key when the line has one."""


class Functions:
    """The functions that lines name, each looked up once."""

    def __init__(self) -> None:
        self._makers: dict[str, Maker | str] = {}

    def job(self, name: str, args: list[Any], kwargs: dict[str, Any], key: str | None) -> Job:
        """Make a job of a call. Lane, retry and timeout are those of its `@task`, if it is one.

        Raises `ValueError` when there is no such function or the arguments do not fit it.
        """
        maker = self._makers.get(name)
        if maker is None:
            maker = self._makers[name] = _look_up(name)
        if isinstance(maker, str):
            raise ValueError(maker)
        try:
            return maker(args, kwargs, key)
        # A key template formats the arguments, whose code may raise anything.
        except Exception as error:
            raise ValueError(capped(str(error) or reason_of(error), _LONGEST_REASON)) from None


def _look_up(name: str) -> Maker | str:
    """Find a function. Returns how to make jobs of it, or why that is not possible."""
    module_name, colon, path = name.partition(":")
    if not (colon and module_name and path):
        return f"task must name a function as module:function, not {name!r}"
    try:
        value: Any = importlib.import_module(module_name)
    # Importing runs the module's code, which may raise or exit as it likes.
    except (Exception, SystemExit) as error:
        reason = capped(reason_of(error), _LONGEST_REASON)
        return f"task {name!r}: cannot import {module_name!r}: {reason}"
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            return f"task {name!r}: module {module_name!r} has no {path!r}"
    try:
        return _maker(name, value)
    except (TypeError, ValueError) as error:
        return f"task {name!r}: {error}"


def _maker(name: str, value: Any) -> Maker:
    if isinstance(value, Task | BoundTask):
        return _of_task(value)
    Job("checked", value)
    try:
        inspect.signature(value)
    except ValueError:
        return _of_unsigned(name, value)
    named = task(name=name)(value)
    # With a template, defaults without a portable form are no obstacle to an explicit key.
    keyed = task(name=name, key="explicit")(value)

    def make(args: list[Any], kwargs: dict[str, Any], key: str | None) -> Job:
        if key is None:
            return named.job(*args, **kwargs)
        return keyed.job(*args, **kwargs).with_key(key)

    return make


def _of_task(found: Task[..., Any] | BoundTask) -> Maker:
    def make(args: list[Any], kwargs: dict[str, Any], key: str | None) -> Job:
        job = found.job(*args, **kwargs)
        return job if key is None else job.with_key(key)

    return make


def _of_unsigned(name: str, function: Callable[..., Any]) -> Maker:
    """For functions written in C that do not tell their parameters."""

    def make(args: list[Any], kwargs: dict[str, Any], key: str | None) -> Job:
        fingerprint, _ = fingerprint_of(name, {"args": args, "kwargs": kwargs})
        job = Job(key or f"{name}:{fingerprint.hex()}", function, args=args, kwargs=kwargs)
        job.fingerprint = fingerprint
        return job

    return make
