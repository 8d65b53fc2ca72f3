"""Where `map` takes its jobs from: an iterable or an async one, never more than one job ahead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from agentq.core.job import Job

NOTHING: Any = object()


class Source:
    """Takes jobs one by one.

    Attributes:
        ended: there are no more.
    """

    def __init__(self, jobs: Iterable[Job] | AsyncIterable[Job]) -> None:
        self.ended = False
        self._async: AsyncIterator[Job] | None = None
        self._sync: Iterator[Job] | None = None
        self._next: asyncio.Task[Job] | None = None
        if isinstance(jobs, AsyncIterable):
            self._async = aiter(jobs)
        elif isinstance(jobs, Iterable):
            self._sync = iter(jobs)
        else:
            raise TypeError(f"map takes an iterable or an async iterable of jobs, not {jobs!r}")

    def take(self, nudge: Callable[[], None]) -> Any:
        """The next job, or `NOTHING` when there is none now; `nudge` is called when there is."""
        if self.ended:
            return NOTHING
        if self._sync is not None:
            job = next(self._sync, NOTHING)
            self.ended = job is NOTHING
            return job
        assert self._async is not None
        if self._next is None:
            self._next = asyncio.ensure_future(_take(self._async))
            self._next.add_done_callback(lambda _: nudge())
        if not self._next.done():
            return NOTHING
        taken, self._next = self._next, None
        job = taken.result()
        self.ended = job is NOTHING
        return job

    async def stop(self) -> None:
        """Stop taking, and close the source if it can be closed."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait((self._next,))
            if not self._next.cancelled():
                self._next.exception()
        close = getattr(self._sync, "close", None)
        if callable(close):
            close()
        aclose = getattr(self._async, "aclose", None)
        if callable(aclose):
            await aclose()


async def _take(source: AsyncIterator[Job]) -> Any:
    return await anext(source, NOTHING)
