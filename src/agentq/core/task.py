"""`@task`: a function that can make jobs of itself, with keys from a template."""

import functools
import inspect
import string
from collections.abc import Callable
from datetime import timedelta
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, overload

from agentq.core.durations import seconds
from agentq.core.fingerprint import fingerprint_of
from agentq.core.job import Job, runs_on_loop
from agentq.core.lanes import Priority
from agentq.core.retry import Retry

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A function, callable as it was, that also makes jobs. Made by `@task`.

    Attributes:
        name: what the task is called in fingerprints and in stores.
    """

    def __init__(
        self,
        func: Callable[P, R],
        *,
        name: str | None,
        key: str | None,
        lane: str,
        retry: Retry | None,
        timeout: float | timedelta | None,
    ) -> None:
        on_loop = runs_on_loop(func)
        functools.update_wrapper(self, func)
        self.name = _checked_name(name, func)
        self._func = func
        self._signature = inspect.signature(func)
        self._template = _checked_template(key, self._signature, self.name)
        if not isinstance(lane, str):
            raise TypeError(f"task {self.name!r}: lane must be a string, not {lane!r}")
        if retry is not None and not isinstance(retry, Retry):
            raise TypeError(f"task {self.name!r}: retry must be a Retry, not {retry!r}")
        self._lane = lane
        self._retry = retry
        self._timeout = (
            None if timeout is None else seconds(timeout, f"task {self.name!r}: timeout")
        )
        if on_loop and hasattr(inspect, "markcoroutinefunction"):
            inspect.markcoroutinefunction(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself; no queue is involved."""
        return self._func(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Make a job of a call with these arguments.

        Its key comes from the template, or, without one, from the task's name and arguments. Its
        fingerprint covers both, so that its key never answers for a different call.

        Raises `TypeError` when the arguments do not fit the function, or when there is no template
        and they have no portable form to derive a key from.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"task {self.name!r}: {error}") from None
        bound.apply_defaults()
        fingerprint, complete = fingerprint_of(self.name, bound.arguments)
        if self._template is not None:
            values = {**bound.arguments, **self._extra(bound)}
            key = self._template.format_map(values)
        elif complete:
            key = f"{self.name}:{fingerprint.hex()}"
        else:
            raise TypeError(
                f"task {self.name!r}: no key can be derived from these arguments, since not all "
                'have a portable form; give the task a template, as in @task(key="charge:{id}")'
            )
        job = Job(
            key,
            self._func,
            args=bound.args,
            kwargs=bound.kwargs,
            lane=self._lane,
            timeout=self._timeout,
            retry=self._retry,
        )
        job.fingerprint = fingerprint
        return job

    def _extra(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                extra: dict[str, Any] = bound.arguments[parameter.name]
                return extra
        return {}


@overload
def task(func: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(
    *,
    name: str | None = None,
    key: str | None = None,
    lane: str = Priority.NORMAL,
    retry: Retry | None = None,
    timeout: float | timedelta | None = None,
) -> Callable[[Callable[P, R]], Task[P, R]]: ...


def task(
    func: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    key: str | None = None,
    lane: str = Priority.NORMAL,
    retry: Retry | None = None,
    timeout: float | timedelta | None = None,
) -> Task[P, R] | Callable[[Callable[P, R]], Task[P, R]]:
    """Make a function a task: `charge(7)` calls it, `charge.job(7)` makes a job of the call.

    Args:
        func: the function, when the decorator is used without arguments.
        name: what the task is called; by default `module:function`. Keep it stable: it is part
            of what tells one call from another.
        key: a template over the parameters, such as `"charge:{order_id}"`. Without one, the key
            is derived from the name and the arguments.
        lane: the lane of its jobs.
        retry: as for `Job`.
        timeout: as for `Job`.

    Raises:
        TypeError, ValueError: the function cannot be a job, or the template names something that
            is no parameter; the message says what to do.
    """

    def decorate(func: Callable[P, R]) -> Task[P, R]:
        return Task(func, name=name, key=key, lane=lane, retry=retry, timeout=timeout)

    return decorate if func is None else decorate(func)


def _checked_name(name: str | None, func: Callable[..., Any]) -> str:
    if name is None:
        module = getattr(func, "__module__", None)
        qualname = getattr(func, "__qualname__", None)
        if module is None or qualname is None:
            raise TypeError(f"{func!r} has no name of its own; give one: @task(name=…)")
        return f"{module}:{qualname}"
    if not isinstance(name, str) or not name:
        raise TypeError(f"a task's name must be a non-empty string, not {name!r}")
    return name


def _checked_template(key: str | None, signature: inspect.Signature, name: str) -> str | None:
    if key is None:
        return None
    if not isinstance(key, str) or not key:
        raise TypeError(f"task {name!r}: key must be a template string, not {key!r}")
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    open_ended = inspect.Parameter.VAR_KEYWORD in kinds
    known = ", ".join(signature.parameters) or "none"
    try:
        fields = list(string.Formatter().parse(key))
    except ValueError as error:
        raise ValueError(f"task {name!r}: key template {key!r} is malformed: {error}") from None
    for _, field, _, _ in fields:
        if field is None:
            continue
        first = field.split(".")[0].split("[")[0]
        if not first or first.isdigit():
            raise ValueError(
                f"task {name!r}: key template {key!r} must name its placeholders, as in "
                f"'charge:{{order_id}}'; the parameters are: {known}"
            )
        if first not in signature.parameters and not open_ended:
            raise ValueError(
                f"task {name!r}: key template {key!r} names {first!r}, which is no parameter; "
                f"the parameters are: {known}"
            )
    return key
