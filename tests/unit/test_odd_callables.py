"""Callables of every kind run to their real end, or are refused with a reason."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest
from gates import value

from agentq import Failed, Job, JobFailed, LaneConfig, Queue, Queued

RAN: list[str] = []


async def coroutine_function(word: str) -> str:
    await asyncio.sleep(0)
    RAN.append("body")
    return word


def returns_a_coroutine(word: str) -> Any:
    return coroutine_function(word)


def returns_an_awaitable(word: str) -> Any:
    class Awaitable:
        def __await__(self) -> Generator[Any, None, str]:
            return coroutine_function(word).__await__()

    return Awaitable()


def returns_a_coroutine_of_a_coroutine(word: str) -> Any:
    async def outer() -> Any:
        return await coroutine_function(word)

    return outer()


class Callable_:
    async def __call__(self, word: str) -> str:
        return await coroutine_function(word)


class SyncCallable:
    def __call__(self, word: str) -> str:
        RAN.append("body")
        return word


class Methods:
    async def coroutine(self, word: str) -> str:
        return await coroutine_function(word)

    def plain(self, word: str) -> str:
        RAN.append("body")
        return word

    @classmethod
    async def of_class(cls, word: str) -> str:
        return await coroutine_function(word)

    @staticmethod
    def static(word: str) -> str:
        RAN.append("body")
        return word


def decorated(func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    "func",
    [
        coroutine_function,
        functools.partial(coroutine_function),
        functools.partial(functools.partial(coroutine_function), "word"),
        returns_a_coroutine,
        returns_an_awaitable,
        returns_a_coroutine_of_a_coroutine,
        decorated(coroutine_function),
        lambda word: coroutine_function(word),
        Callable_(),
        SyncCallable(),
        functools.partial(Callable_()),
        Methods().coroutine,
        Methods().plain,
        Methods.of_class,
        Methods.static,
    ],
)
async def test_the_body_runs_and_its_output_is_the_jobs(func: Callable[..., Any]) -> None:
    RAN.clear()
    bound = isinstance(func, functools.partial) and func.args
    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        job = Job("k", func, args=() if bound else ("word",))
        assert await queue.push_and_wait(job) == "word"
        assert await queue.push_and_wait(job) == "word"
    assert RAN == ["body"]


async def test_a_future_that_a_function_returns_is_awaited() -> None:
    loop = asyncio.get_running_loop()

    def in_thread() -> asyncio.Future[int]:
        future: asyncio.Future[int] = loop.create_future()
        loop.call_soon_threadsafe(future.set_result, 7)
        return future

    async with Queue() as queue:
        assert await queue.push_and_wait(Job("k", in_thread)) == 7


async def test_classes_and_builtins_are_called() -> None:
    async with Queue() as queue:
        assert await queue.push_and_wait(Job("class", dict, kwargs={"a": 1})) == {"a": 1}
        assert await queue.push_and_wait(Job("builtin", len, args=("abc",))) == 3
        assert await queue.push_and_wait(Job("method", "a-b".split, args=("-",))) == ["a", "b"]
        output = await queue.push_and_wait(Job("error", ValueError, args=("returned",)))
        assert repr(output) == "ValueError('returned')"
        assert await queue.push_and_wait(Job("type", lambda: Methods)) is Methods


async def test_an_output_that_is_a_coroutine_function_is_not_called() -> None:
    async with Queue() as queue:
        job = Job("k", value, args=(coroutine_function,))
        assert await queue.push_and_wait(job) is coroutine_function


def numbers() -> Iterator[int]:
    RAN.append("generator")
    yield 1


async def later_numbers() -> AsyncIterator[int]:
    RAN.append("generator")
    yield 1


@pytest.mark.parametrize(
    ("func", "kind"),
    [
        (lambda: numbers(), "generator 'numbers'"),
        (lambda: later_numbers(), "async_generator 'later_numbers'"),
        (decorated(numbers), "generator 'numbers'"),
    ],
)
async def test_a_generator_that_nobody_would_run_is_no_output(
    func: Callable[..., Any], kind: str
) -> None:
    RAN.clear()
    if hasattr(func, "__wrapped__"):
        func = functools.partial(lambda inner: inner(), func)
    async with Queue() as queue:
        accepted = await queue.push(Job("k", func))
        assert type(accepted) is Queued
        assert await accepted.handle == Failed(
            f"TypeError: the job returned {kind}, which nobody would run; collect what it yields "
            "and return that"
        )
    assert RAN == []


async def test_positional_and_keyword_arguments_arrive() -> None:
    async def on_loop(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    def in_thread(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    async with Queue() as queue:
        for func in (on_loop, in_thread):
            job = Job(func.__name__, func, args=(1, 2), kwargs={"key": "k", "self": 3})
            assert await queue.push_and_wait(job) == ((1, 2), {"key": "k", "self": 3})


async def test_a_coroutine_that_returns_a_generator_is_refused_as_a_thread_job_is() -> None:
    async def job() -> Any:
        return (number for number in range(3))

    async with Queue() as queue:
        with pytest.raises(JobFailed, match="TypeError: the job returned generator"):
            await queue.push_and_wait(Job("k", job))
