"""Synchronous jobs in a simulation: called on the simulated loop instead of in threads."""

import asyncio
from collections.abc import Callable

from agentq.queue.queue import Queue
from agentq.queue.threads import ThreadCache
from agentq.testing.simulation import SimulatedLoop


def simulate_threads(queue: Queue, delay: Callable[[], float] = float) -> None:
    """Have the synchronous jobs of `queue` called by the running `SimulatedLoop`.

    Each is called as a whole, in a step of its own, `delay()` virtual seconds after it was started
    (at once, if not given), as if its thread had taken so long. So a job that is cancelled, times
    out or outlives its queue can be explored like any other. Call it before the first push.

    Raises `TypeError` when another kind of loop is running, `RuntimeError` when none is.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SimulatedLoop):
        raise TypeError(f"threads can be simulated on a SimulatedLoop only, not on {loop!r}")
    queue._scheduler.threads = _SimulatedThreads(loop, delay)  # noqa: SLF001 (of one package)


class _SimulatedThreads(ThreadCache):
    def __init__(self, loop: SimulatedLoop, delay: Callable[[], float]) -> None:
        super().__init__()
        self._loop = loop
        self._delay = delay

    def start(self, call: Callable[[], None]) -> None:
        self._loop.call_later(self._delay(), self._loop.start_thread, call)
