"""`@task`: a function that can make jobs of itself, with keys from a template."""

import functools
import inspect
import string
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypeVar, overload

from agentq.core.durations import seconds
from agentq.core.fingerprint import fingerprint_of
from agentq.core.job import Job, runs_on_loop
from agentq.core.lanes import Priority
from agentq.core.reason import reason_of
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
        self._signature = _signature_of(func, self.name)
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
        return self if instance is None else BoundTask(self, instance)

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Make a job of a call with these arguments.

        Its key comes from the template, or, without one, from the task's name and arguments. Its
        fingerprint covers both, so that its key never answers for a different call.

        Raises `TypeError` when the arguments do not fit the function or the template, or when
        there is no template and they have no portable form to derive a key from.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"task {self.name!r}: {error}") from None
        bound.apply_defaults()
        fingerprint, left_out = fingerprint_of(self.name, bound.arguments)
        if self._template is not None:
            key = self._filled(self._template, bound)
        elif not left_out:
            key = f"{self.name}:{fingerprint.hex()}"
        else:
            raise TypeError(
                f"task {self.name!r}: no key can be derived from these arguments, since "
                f"{' and '.join(left_out)} has no portable form; give the task a template, as in "
                '@task(key="charge:{order_id}")'
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

    def _filled(self, template: str, bound: inspect.BoundArguments) -> str:
        values = dict(bound.arguments)
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                values.update(values[parameter.name])
        try:
            return template.format_map(values)
        except Exception as error:
            raise TypeError(
                f"task {self.name!r}: key template {template!r} does not fit these arguments: "
                f"{reason_of(error)}"
            ) from error


class BoundTask:
    """A task of a method, bound to an instance, which is its first argument."""

    __slots__ = ("_instance", "_task")

    def __init__(self, task: Task[..., Any], instance: object) -> None:
        self._task = task
        self._instance = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method itself; no queue is involved."""
        return self._task(self._instance, *args, **kwargs)

    def job(self, *args: Any, **kwargs: Any) -> Job:
        """As `Task.job`; the instance counts among the arguments."""
        return self._task.job(self._instance, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self._task.name} of {self._instance!r}>"


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
    if isinstance(func, str):
        raise TypeError(f"@task takes its name by keyword: @task(name={func!r})")

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


def _signature_of(func: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(func)
    except ValueError:
        raise TypeError(
            f"task {name!r}: the parameters of {func!r} are not known; make the task of a function "
            "that calls it"
        ) from None


def _checked_template(key: str | None, signature: inspect.Signature, name: str) -> str | None:
    if key is None:
        return None
    if not isinstance(key, str) or not key:
        raise TypeError(f"task {name!r}: key must be a template string, not {key!r}")
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    open_ended = inspect.Parameter.VAR_KEYWORD in kinds
    known = ", ".join(signature.parameters) or "none"
    told = f"task {name!r}: key template {key!r}"
    for placeholder in _placeholders(key, told):
        if not placeholder or placeholder.isdigit():
            raise ValueError(
                f"{told} must name its placeholders, as in 'charge:{{order_id}}'; the parameters "
                f"are: {known}"
            )
        if placeholder not in signature.parameters and not open_ended:
            raise ValueError(
                f"{told} names {placeholder!r}, which is no parameter; the parameters are: {known}"
            )
    return key


def _placeholders(template: str, told: str) -> Iterator[str]:
    """The parameters that a template names, those inside a format such as `{a:{width}}` too."""
    try:
        fields = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{told} is malformed: {error}") from None
    for _, field, form, conversion in fields:
        if field is None:
            continue
        if conversion not in (None, "r", "s", "a"):
            raise ValueError(f"{told} has an unknown conversion: !{conversion}; use !r, !s or !a")
        yield field.split(".")[0].split("[")[0]
        if form:
            yield from _placeholders(form, told)
