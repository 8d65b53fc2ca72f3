"""`Job`: one call, under one key."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import FunctionType
from typing import Any

from agentq.core.durations import seconds
from agentq.core.keys import is_plain_key
from agentq.core.lanes import Priority
from agentq.core.retry import Retry

_NO_KWARGS: dict[str, Any] = {}


class Job:
    """One call and the key it runs under. Make one, push it; treat it as immutable.

    A coroutine function runs on the queue's event loop. Any other callable runs in a thread, and
    an awaitable that it returns is then awaited on the loop.

    Args:
        key: the idempotency key. It is checked at push.
        func: what to call.
        args: positional arguments.
        kwargs: keyword arguments.
        lane: the name of a lane, or a `Priority`.
        timeout: end each try after this long; seconds or a `timedelta`. None: no limit.
        retry: when and how often to try again. None: one try.

    Raises:
        TypeError, ValueError: the job could not work; the message says why and what to do.
    """

    __slots__ = (
        "args",
        "fingerprint",
        "func",
        "key",
        "key_is_plain",
        "kwargs",
        "lane",
        "on_loop",
        "retry",
        "timeout",
    )

    def __init__(
        self,
        key: str,
        func: Callable[..., Any],
        *,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        lane: str = Priority.NORMAL,
        timeout: float | timedelta | None = None,
        retry: Retry | None = None,
    ) -> None:
        if (
            type(func) is FunctionType and func.__code__.co_flags & _CODE_KINDS == _COROUTINE
        ):  # the usual case, told by the code object alone
            self.on_loop = True
        else:
            self.on_loop = runs_on_loop(func)
        if type(lane) is not str and not isinstance(lane, str):
            raise TypeError(f"Job.lane must be a lane's name or a Priority, not {lane!r}")
        if retry is not None and not isinstance(retry, Retry):
            raise TypeError(f"Job.retry must be a Retry or None, not {retry!r}")
        self.key = key
        self.key_is_plain = is_plain_key(key)
        self.func = func
        self.args = args if type(args) is tuple else _positional(args)
        self.kwargs = _NO_KWARGS if kwargs is None else _keywords(kwargs)
        self.lane = lane
        self.timeout = None if timeout is None else seconds(timeout, "Job.timeout")
        self.retry = retry
        self.fingerprint: bytes | None = None

    def with_key(self, key: str) -> "Job":
        """Return the same job under another key."""
        copy = object.__new__(Job)
        for name in Job.__slots__:
            setattr(copy, name, getattr(self, name))
        copy.key = key
        copy.key_is_plain = is_plain_key(key)
        return copy

    def __repr__(self) -> str:
        name = getattr(self.func, "__qualname__", None) or repr(self.func)
        return f"Job({self.key!r}, {name}, lane={str(self.lane)!r})"


_COROUTINE = inspect.CO_COROUTINE
_CODE_KINDS = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def runs_on_loop(func: object, what: str = "a job") -> bool:
    """Tell whether calling `func` gives a coroutine: then it runs on the loop, else in a thread.

    Raises `TypeError` for what cannot be called to any effect: not callable, or a generator
    function, whose body would never run by being called. The message begins with `what`.
    """
    if inspect.iscoroutine(func):
        func.close()
        raise TypeError(
            f"{what} needs the function itself, not a coroutine made by calling it: "
            "Job(key, func, args=(…)) instead of Job(key, func(…))"
        )
    if not callable(func):
        raise TypeError(f"{what} needs a callable, not {func!r}")
    kinds = [func] if inspect.isroutine(func) or inspect.isclass(func) else [func, _call_of(func)]
    for kind in kinds:
        if inspect.isasyncgenfunction(kind) or inspect.isgeneratorfunction(kind):
            raise TypeError(
                f"{func!r} is a generator function: calling it runs nothing. Collect what it "
                "yields in a function that returns, and make the job from that one"
            )
    return any(inspect.iscoroutinefunction(kind) for kind in kinds)


def _call_of(func: object) -> object:
    return type(func).__call__


def _positional(args: Iterable[Any]) -> tuple[Any, ...]:
    if isinstance(args, str | bytes) or not isinstance(args, Iterable):
        raise TypeError(f"Job.args must be a tuple of arguments, not {args!r}; write args=(…,)")
    return tuple(args)


def _keywords(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        raise TypeError(f"Job.kwargs must map parameter names to values, not {kwargs!r}")
    return dict(kwargs)
