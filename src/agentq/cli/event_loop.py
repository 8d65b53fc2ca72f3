"""Runs the event loop of a batch to an end that no job can prevent."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Task
from collections.abc import Coroutine

from agentq.cli.interrupts import Interrupts

LAST_SECONDS = 1.0
"""How long tasks that jobs have left behind may take to end."""


def run_to_its_end(main: Coroutine[None, None, None], interrupts: Interrupts) -> bool:
    """Run `main` on a loop of its own, with `interrupts` installed.

    A job that raises `KeyboardInterrupt` counts as a Ctrl-C. Returns whether everything has ended
    with it: tasks that ignore their cancellation, and threads of the loop's executor, may not
    have. Then the process should end without waiting for them.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with interrupts.installed(loop):
            task = loop.create_task(main)
            while not task.done():
                try:
                    loop.run_until_complete(task)
                except KeyboardInterrupt:
                    interrupts.raised(loop)
            task.result()
            return _end(loop)
    finally:
        asyncio.set_event_loop(None)


def _end(loop: AbstractEventLoop) -> bool:
    left: set[Task[object]] = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        _, left = loop.run_until_complete(asyncio.wait(left, timeout=LAST_SECONDS))
    loop.run_until_complete(loop.shutdown_asyncgens())
    if left:
        return False
    loop.close()
    return True
