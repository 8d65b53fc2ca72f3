"""`Queue.map`: many jobs from any iterable, outcomes in completion order, bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from agentq.core.errors import JobLost, QueueClosed
from agentq.core.job import Job
from agentq.core.lifecycle import Verdict
from agentq.core.states import Completed, Outcome
from agentq.queue import lending, suspension
from agentq.queue.entry import ADMITTING, SETTLED, WITHDRAWN, Entry
from agentq.queue.handle import lost_error
from agentq.queue.lending import Wait

if TYPE_CHECKING:
    from agentq.queue.scheduler import Scheduler

_NOTHING: Any = object()


async def map_jobs(
    scheduler: Scheduler, jobs: Iterable[Job] | AsyncIterable[Job]
) -> AsyncIterator[tuple[str, Outcome]]:
    """Push `jobs` as lanes have room, and yield each one's outcome as it comes."""
    source = _Source(jobs)
    wait = Wait(scheduler.owner())
    window = sum(lane.capacity + lane.permits for lane in scheduler.lanes.values())
    cached: list[tuple[str, Outcome]] = []
    # A key may come several times; each time it is answered.
    outstanding: dict[Entry, int] = {}
    total = 0
    blocked: Entry | None = None
    try:
        while True:
            while blocked is None and total < window and not cached:
                job = source.take(scheduler, wait)
                if job is _NOTHING:
                    break
                verdict, found = scheduler.claim(job)
                if verdict is Verdict.REPLAY:
                    cached.append((job.key, Completed(found)))
                    break
                total += 1
                known = outstanding.get(found, 0)
                outstanding[found] = known + 1
                with scheduler.lock:
                    if not known and found.phase is SETTLED:
                        wait.settled.append(found)
                    elif not known:
                        lending.watch(wait, found)
                    if verdict is Verdict.QUEUE and found.phase is ADMITTING:
                        blocked = wait.admitting = found
                        found.admission = wait
            while cached:
                yield cached.pop()
            while wait.settled:
                entry = wait.settled.popleft()
                if entry is blocked:
                    blocked = None
                times = outstanding.pop(entry)
                total -= times
                if entry.lost:
                    raise lost_error(entry)
                for _ in range(times):
                    yield entry.key, entry.outcome()
            if blocked is not None and blocked.phase is WITHDRAWN:
                raise QueueClosed("the queue is draining and takes no more work")
            if blocked is not None and blocked.phase is not ADMITTING:
                blocked = None
                continue
            if source.ended and not total:
                return
            try:
                await suspension.for_news(scheduler, wait)
            except QueueClosed as error:
                key = next(iter(outstanding)).key if outstanding else "(none taken yet)"
                raise JobLost(key, str(error)) from None
    finally:
        if blocked is not None:
            scheduler.withdraw(blocked)
        with scheduler.lock:
            lending.close(wait)
        await source.stop()


class _Source:
    """Takes jobs from an iterable or an async one, never more than one ahead."""

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

    def take(self, scheduler: Scheduler, wait: Wait) -> Any:
        """The next job, or `_NOTHING` when there is none now; `wait` is nudged when there is."""
        if self.ended:
            return _NOTHING
        if self._sync is not None:
            job = next(self._sync, _NOTHING)
            self.ended = job is _NOTHING
            return job
        assert self._async is not None
        if self._next is None:
            self._next = asyncio.ensure_future(_take(self._async))

            def nudge(_: object) -> None:
                scheduler.nudge(wait)

            self._next.add_done_callback(nudge)
        if not self._next.done():
            return _NOTHING
        taken, self._next = self._next, None
        job = taken.result()
        self.ended = job is _NOTHING
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
    return await anext(source, _NOTHING)
