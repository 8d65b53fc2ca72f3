"""C15: exceptions that cannot be printed, copied or pickled.

Right: `Failed` is recorded with the type's name and a capped safe text, waiters are told within
2 s, the next job runs, permits are all back. Recording a failure can itself not fail.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import NoReturn

import pytest
from gates import value

from agentq import Failed, Job, JobFailed, LaneConfig, Queue


class StrError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no str")


class ReprError(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class ReduceError(Exception):
    def __reduce__(self) -> NoReturn:
        raise RuntimeError("no reduce")


class RequiredArgumentsError(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"{code}: {detail}")


def no_class(error: Exception) -> NoReturn:
    raise RuntimeError("no class")


# Asking `isinstance` of it raises.
HostileError: type[Exception] = type(
    "HostileError", (Exception,), {"__class__": property(no_class)}
)


def cyclic() -> Exception:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


CASES: list[tuple[Callable[[], Exception], str]] = [
    (StrError, "StrError: <no message: its __str__ raised RuntimeError>"),
    (ReprError, "ReprError"),
    (ReduceError, "ReduceError"),
    (lambda: RequiredArgumentsError(7, detail="x"), "RequiredArgumentsError: 7: x"),
    (lambda: ValueError(threading.Lock()), "ValueError: <unlocked _thread.lock object at "),
    (lambda: ValueError("x" * 5_000_000), "ValueError: xxx"),
    (cyclic, "ValueError: one"),
    (
        lambda: ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
        "ExceptionGroup: two (2 sub-exceptions): ValueError: a; KeyError: 'b'",
    ),
    (lambda: ExceptionGroup("bad", [StrError()]), "ExceptionGroup: bad (1 sub-exception): StrErr"),
    (HostileError, "HostileError"),
]


@pytest.mark.parametrize("kind", ["loop", "thread"])
@pytest.mark.parametrize(("make", "start"), CASES, ids=lambda value: str(value)[:20])
async def test_the_failure_is_recorded_told_and_harmless(
    make: Callable[[], Exception], start: str, kind: str
) -> None:
    async def on_loop() -> None:
        raise make()

    def in_thread() -> None:
        raise make()

    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        job = Job("k", on_loop if kind == "loop" else in_thread)
        waits = [asyncio.create_task(queue.push_and_wait(job)) for _ in range(2)]
        async with asyncio.timeout(2):
            errors = await asyncio.gather(*waits, return_exceptions=True)
            assert await queue.push_and_wait(Job("next", value, args=(1,))) == 1
        for error in errors:
            assert isinstance(error, JobFailed)
            assert error.reason.startswith(start)
            assert len(error.reason.encode()) <= 10_000
        state = queue.state("k")
        assert isinstance(state, Failed)
        assert state.reason.startswith(start)
        assert queue.stats()["normal"].running == 0
