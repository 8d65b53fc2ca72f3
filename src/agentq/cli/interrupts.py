"""Signals: the first asks to stop, the second to cancel, the third ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

_SIGNALS = [
    number
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if (number := getattr(signal, name, None)) is not None
]


class Interrupts:
    """Counts signals and says what each asks for.

    The handlers run in the main thread even while a job blocks the event loop, so the third
    signal always works.

    Args:
        stop: called on the loop at the first signal.
        cancel: called on the loop at the second, or at the first when the terminal is gone.
        abort: called at the third, from the handler itself, with what is to be called when
            nothing is left behind; that ends the process.
    """

    def __init__(
        self,
        stop: Callable[[], object],
        cancel: Callable[[], object],
        abort: Callable[[Callable[[], object]], object],
    ) -> None:
        self._stop = stop
        self._cancel = cancel
        self._abort = abort
        self._count = 0
        self.first: int | None = None

    @property
    def status(self) -> int | None:
        """The exit status that a signal asks for; None when there was none."""
        return None if self.first is None else 128 + self.first

    @property
    def cancelling(self) -> bool:
        """Whether running jobs were cancelled."""
        return self._count > 1

    @contextmanager
    def installed(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Handle signals inside the block. A signal that is ignored stays ignored.

        After a block that was interrupted, one more signal ends the process at once.
        """
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        taken = [number for number in _SIGNALS if before[number] is not signal.SIG_IGN]

        over = False

        def handle(number: int, _: FrameType | None) -> None:
            if over:
                self._exit()
            self._handle(loop, number)

        for number in taken:
            signal.signal(number, handle)
        try:
            yield
        finally:
            if self.first is None:
                for number in taken:
                    signal.signal(number, before[number])
            over = self.first is not None

    def raised(self, loop: asyncio.AbstractEventLoop) -> None:
        """A job raised `KeyboardInterrupt`: take it for a Ctrl-C."""
        self._handle(loop, signal.SIGINT)

    def _handle(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        if self.first is None:
            self.first = number
        self._count += 1
        if self._count == 1 and number == getattr(signal, "SIGHUP", None):
            self._count = 2  # the terminal is gone, and who could press a key again with it
        if self._count > 2:
            self._abort(self._exit)
            return
        with suppress(RuntimeError):  # the loop is closed: nothing is left to be stopped
            loop.call_soon_threadsafe(self._stop if self._count == 1 else self._cancel)

    def _exit(self) -> NoReturn:
        status = self.status
        assert status is not None
        os._exit(status)
