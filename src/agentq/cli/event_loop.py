"""Runs the event loop of a batch to an end that no job can prevent."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Task
from collections.abc import Coroutine
from typing import TypeVar

from agentq.cli.interrupts import Interrupts

T = TypeVar("T")

LAST_SECONDS = 1.0
"""How long tasks that jobs have left behind may take to end."""


def run_to_its_end(main: Coroutine[None, None, None], interrupts: Interrupts) -> bool:
    """Run `main` on a loop of its own, with `interrupts` installed.

    A job that raises `KeyboardInterrupt` counts as a Ctrl-C; one that stops the loop, or raises
    `SystemExit` into it, changes nothing. Returns whether everything has ended with `main`: tasks
    that ignore their cancellation, and threads of the loop's executor, may not have. Then the
    process should end without waiting for them.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with interrupts.installed(loop):
            _drive(loop, loop.create_task(main), interrupts).result()
            rest = _drive(loop, loop.create_task(_end()), interrupts)
            ended = not rest.cancelled() and rest.result()
            if ended:
                loop.close()
            return ended
    finally:
        asyncio.set_event_loop(None)


def _drive(loop: AbstractEventLoop, task: Task[T], interrupts: Interrupts) -> Task[T]:
    """Run the loop until `task` is done, whoever stops it before."""
    task.add_done_callback(lambda _: loop.stop())
    while not task.done():
        try:
            loop.run_forever()
        except KeyboardInterrupt:
            interrupts.raised(loop)
        except SystemExit:  # meant for the task or callback that raised it, which has ended
            continue
    return task


async def _end() -> bool:
    left: set[Task[object]] = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, left = await asyncio.wait(left, timeout=LAST_SECONDS)
    await asyncio.get_running_loop().shutdown_asyncgens()
    return not left
