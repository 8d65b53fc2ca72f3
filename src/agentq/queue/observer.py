"""Telling `on_change` about every change of state, in order, on the queue's own loop."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from asyncio.events import _get_running_loop
from collections import deque
from collections.abc import Callable
from contextvars import copy_context

from agentq.core.states import Transition

log = logging.getLogger("agentq")


class Observer:
    """Calls `on_change` for each change in `changes`. Called without the scheduler's lock."""

    def __init__(
        self,
        on_change: Callable[[Transition], object],
        changes: deque[Transition],
        home: AbstractEventLoop,
    ) -> None:
        self._on_change = on_change
        self._changes = changes
        self._home = home
        self._context = copy_context()
        self._telling = False

    def flush(self) -> None:
        """Tell what has changed; from a thread other than the loop's, soon."""
        if _get_running_loop() is not self._home:
            try:
                self._home.call_soon_threadsafe(self.flush)
                return
            except RuntimeError:  # the loop is closed: tell it from here
                pass
        if self._telling:
            return  # a change made by on_change itself: told by the call under way
        self._telling = True
        try:
            while self._changes:
                change = self._changes.popleft()
                try:
                    self._context.run(self._on_change, change)
                except KeyboardInterrupt:
                    raise
                except BaseException:
                    log.exception("on_change failed for %r; the job is not affected", change)
        finally:
            self._telling = False
