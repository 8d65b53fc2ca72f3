"""Waking those who wait, on whatever loop and thread they wait."""

import asyncio
from asyncio import AbstractEventLoop, Future
from asyncio.events import _get_running_loop

from agentq.core.errors import QueueClosed

LOOP_CHECK_SECONDS = 0.25


def wake(future: "Future[None]") -> None:
    """Wake the task that awaits `future`. Never fails: a waiter whose loop is gone is gone."""
    loop = future.get_loop()
    if loop is _get_running_loop():
        if not future.done():
            future.set_result(None)
        return
    try:
        loop.call_soon_threadsafe(_set, future)
    except RuntimeError:  # that loop is closed, so nobody waits there any more
        return


def _set(future: "Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def wait_on(future: "Future[None]", home: AbstractEventLoop) -> None:
    """Wait for `future`, which belongs to the running loop and is woken from `home`.

    From another loop, `home` may stop or be closed without a word; then this raises
    `QueueClosed` within about half a second instead of waiting for ever. Cancellation is passed
    on and leaves `future` cancelled.
    """
    if future.get_loop() is home:
        await future
        return
    stopped_before = False
    try:
        while not future.done():
            await asyncio.wait((future,), timeout=LOOP_CHECK_SECONDS)
            if future.done():
                break
            stopped = not home.is_running()
            if home.is_closed() or (stopped and stopped_before):
                raise QueueClosed(
                    "the event loop that this queue lives on has stopped; nothing can be known "
                    "about its jobs until it runs again"
                )
            stopped_before = stopped
    finally:
        future.cancel()
