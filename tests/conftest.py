"""How tests run here.

An `async def` test runs on an event loop of its own, with a time limit, and fails when anything is
left behind for the loop's exception handler ("never retrieved", "destroyed but pending"). Programs
are real processes with a time limit. `--loop` runs the same tests on another kind of loop.
"""

import asyncio
import gc
import inspect
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import pytest

LIMIT_SECONDS = 20.0
PROGRAMS = Path(__file__).parent / "integration" / "programs"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--loop",
        choices=("asyncio", "eager", "uvloop"),
        default="asyncio",
        help="the event loop of async tests: the default one, one with the eager task factory "
        "(Python 3.12 or later), or uvloop",
    )


def _loop_factory(kind: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if kind == "uvloop":
        import uvloop  # only there when asked for

        new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
        return new_loop
    if kind == "eager":

        def eager_loop() -> asyncio.AbstractEventLoop:
            loop = asyncio.new_event_loop()
            loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009
            return loop

        return eager_loop
    return asyncio.new_event_loop


def pytest_collection_finish() -> None:
    # Each test collects what it leaves behind; what was there before need not be looked at again.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    names = inspect.signature(test).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    left: list[dict[str, Any]] = []
    factory = _loop_factory(pyfuncitem.config.getoption("--loop"))
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: left.append(context))
        runner.run(_limited(test(**arguments)))
        gc.collect()
    assert left == []
    return True


async def _limited(test: Coroutine[Any, Any, None]) -> None:
    """Run `test`, within a limit of real time: a test may move the time of its loop."""
    loop, task, late = asyncio.get_running_loop(), asyncio.current_task(), False
    assert task is not None

    def end() -> None:
        nonlocal late
        late = True
        loop.call_soon_threadsafe(task.cancel)

    timer = threading.Timer(LIMIT_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        await test
    except asyncio.CancelledError:
        if late:
            pytest.fail(f"the test took longer than {LIMIT_SECONDS:g} seconds")
        raise
    finally:
        timer.cancel()


class RunProgram(Protocol):
    def __call__(
        self, name: str, *arguments: str, limit: float = 15.0
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def run_program() -> RunProgram:
    """Run one of `integration/programs` to its end; longer than `limit` seconds is a failure."""

    def run(name: str, *arguments: str, limit: float = 15.0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-X", "faulthandler", "-W", "error", str(PROGRAMS / name)]
        return subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=limit, check=False
        )

    return run
