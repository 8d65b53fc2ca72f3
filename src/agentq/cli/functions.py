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
_NOTHING = object()

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
        except KeyboardInterrupt:
            raise
        # A key template formats the arguments, whose code may raise anything.
        except BaseException as error:
            raise ValueError(_said(error)) from None


def _look_up(name: str) -> Maker | str:
    """Find a function. Returns how to make jobs of it, or why that is not possible."""
    module_name, colon, path = name.partition(":")
    if not (colon and module_name and path):
        return f"task must name a function as module:function, not {name!r}"
    doing = f"cannot import {module_name!r}: "
    try:
        value: Any = importlib.import_module(module_name)
        doing = ""
        for part in path.split("."):
            value = getattr(value, part, _NOTHING)
            if value is _NOTHING:
                return f"task {name!r}: module {module_name!r} has no {path!r}"
        return _maker(name, value)
    except KeyboardInterrupt:
        raise
    # A module runs code of its own when it is imported and looked into, and may even exit.
    except BaseException as error:
        return f"task {name!r}: {doing}{_said(error, named=bool(doing))}"


def _said(error: BaseException, *, named: bool = False) -> str:
    """What an error says, in short; by its type when that is all there is."""
    told = reason_of(error)
    kind = type(error).__name__
    if not named and isinstance(error, TypeError | ValueError):
        told = told.removeprefix(f"{kind}: ")
    return capped(told, _LONGEST_REASON)


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
