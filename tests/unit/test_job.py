"""A `Job` refuses at construction what could not work, and says what to do."""

import asyncio
import functools
import math
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from agentq import Job, Priority, Retry


async def coroutine_function() -> int:
    return 1


def function() -> int:
    return 1


def generator_function() -> Iterator[int]:
    yield 1


async def async_generator_function() -> AsyncIterator[int]:
    yield 1


class CallableGenerator:
    def __call__(self) -> Iterator[int]:
        yield 1


class CallableAsyncGenerator:
    async def __call__(self) -> AsyncIterator[int]:
        yield 1


class Methods:
    def generator(self) -> Iterator[int]:
        yield 1

    async def async_generator(self) -> AsyncIterator[int]:
        yield 1

    @staticmethod
    def static_generator() -> Iterator[int]:
        yield 1

    @classmethod
    async def class_async_generator(cls) -> AsyncIterator[int]:
        yield 1

    async def coroutine(self) -> int:
        return 1

    @staticmethod
    async def static_coroutine() -> int:
        return 1

    async def __call__(self) -> int:
        return 1

    def method(self) -> int:
        return 1


@pytest.mark.parametrize("func", [None, 7, "function", object(), [function]])
def test_what_cannot_be_called_is_refused(func: Any) -> None:
    with pytest.raises(TypeError, match="a job needs a callable, not "):
        Job("k", func)


def test_a_coroutine_instead_of_its_function_is_refused_and_closed() -> None:
    coroutine: Any = coroutine_function()
    with pytest.raises(TypeError, match=r"needs the function itself.*Job\(key, func, args=\(…\)\)"):
        Job("k", coroutine)
    assert coroutine.cr_frame is None  # closed, so that nobody warns that it was never awaited


@pytest.mark.parametrize(
    "func",
    [
        generator_function,
        async_generator_function,
        CallableGenerator(),
        CallableAsyncGenerator(),
        functools.partial(generator_function),
        functools.partial(async_generator_function),
        functools.partial(functools.partial(async_generator_function)),
        Methods().generator,
        Methods().async_generator,
        Methods.static_generator,
        Methods.class_async_generator,
    ],
)
def test_generator_functions_of_every_kind_are_refused(func: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="is a generator function: calling it runs nothing"):
        Job("k", func)


@pytest.mark.parametrize(
    ("func", "on_loop"),
    [
        (coroutine_function, True),
        (functools.partial(coroutine_function), True),
        (functools.partial(functools.partial(coroutine_function)), True),
        (Methods().coroutine, True),
        (Methods.static_coroutine, True),
        (Methods(), True),
        (asyncio.sleep, True),
        (function, False),
        (functools.partial(function), False),
        (Methods().method, False),
        (Methods, False),
        (len, False),
        (lambda: 1, False),
    ],
)
def test_coroutine_functions_run_on_the_loop_and_the_rest_in_threads(
    func: Callable[..., Any], on_loop: bool
) -> None:
    assert Job("k", func).on_loop is on_loop


@pytest.mark.parametrize("lane", [None, math.nan, True, 7, b"high", ("high",)])
def test_a_lane_that_is_no_string_is_refused(lane: Any) -> None:
    with pytest.raises(TypeError, match=r"Job\.lane must be a lane's name or a Priority, not "):
        Job("k", function, lane=lane)


@pytest.mark.parametrize(
    ("timeout", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        (timedelta(0), ValueError),
        (timedelta(seconds=-1), ValueError),
        (True, TypeError),
        ("1", TypeError),
        ((1,), TypeError),
    ],
)
def test_a_timeout_that_means_nothing_is_refused(timeout: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^Job\.timeout must be "):
        Job("k", function, timeout=timeout)


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [(2, 2.0), (0.25, 0.25), (timedelta(minutes=1), 60.0), (None, None)],
)
def test_a_timeout_is_seconds_or_a_timedelta(timeout: Any, seconds: float | None) -> None:
    assert Job("k", function, timeout=timeout).timeout == seconds


@pytest.mark.parametrize("retry", [3, True, {"attempts": 3}, Retry])
def test_a_retry_that_is_none_is_refused(retry: Any) -> None:
    with pytest.raises(TypeError, match=r"Job\.retry must be a Retry or None, not "):
        Job("k", function, retry=retry)


@pytest.mark.parametrize("args", ["abc", b"abc", 7, None])
def test_arguments_that_are_no_tuple_are_refused(args: Any) -> None:
    with pytest.raises(TypeError, match=r"Job\.args must be a tuple of arguments.*args=\(…,\)"):
        Job("k", function, args=args)


@pytest.mark.parametrize("kwargs", [[("a", 1)], "a", {1: 2}, 7])
def test_keyword_arguments_that_are_no_mapping_of_names_are_refused(kwargs: Any) -> None:
    with pytest.raises(TypeError, match=r"Job\.kwargs must map parameter names to values"):
        Job("k", function, kwargs=kwargs)


def test_arguments_are_taken_over_once() -> None:
    args, kwargs = [1, 2], {"base": 7}
    job = Job("k", function, args=iter(args), kwargs=kwargs)
    kwargs["base"] = 8
    assert (job.args, job.kwargs) == ((1, 2), {"base": 7})


def test_with_key_changes_the_key_and_nothing_else() -> None:
    retry = Retry(attempts=2)
    job = Job("a", function, args=(1,), kwargs={"b": 2}, lane="x", timeout=3, retry=retry)
    job.fingerprint = b"f" * 16
    other = job.with_key("ключ")
    assert (job.key, other.key) == ("a", "ключ")
    assert (job.key_is_plain, other.key_is_plain) == (True, False)
    for name in ("func", "args", "kwargs", "lane", "timeout", "retry", "fingerprint", "on_loop"):
        assert getattr(other, name) == getattr(job, name)


def test_a_job_shows_its_key_function_and_lane() -> None:
    assert repr(Job("k", function)) == "Job('k', function, lane='normal')"
    assert repr(Job("k", function, lane=Priority.HIGH)) == "Job('k', function, lane='high')"
