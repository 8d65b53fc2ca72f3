"""`Queue.map`: many jobs from any iterable, outcomes in completion order, bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from typing import TYPE_CHECKING

from agentq.core.errors import JobLost, QueueClosed
from agentq.core.job import Job
from agentq.core.lifecycle import Verdict
from agentq.core.states import Completed, Outcome
from agentq.queue import lending, suspension
from agentq.queue.entry import ADMITTING, SETTLED, Entry
from agentq.queue.handle import outcome_of
from agentq.queue.lending import Wait
from agentq.queue.source import NOTHING, Source

if TYPE_CHECKING:
    from agentq.queue.scheduler import Scheduler

_AT_ONCE = 100


async def map_jobs(
    scheduler: Scheduler, jobs: Iterable[Job] | AsyncIterable[Job]
) -> AsyncGenerator[tuple[str, Outcome], None]:
    """Push `jobs` as lanes have room, and yield each one's outcome as it comes."""
    source = Source(jobs)
    mapping = _Mapping(scheduler)
    at_once = 0
    try:
        while True:
            answers = mapping.settled()
            if not answers and mapping.has_room():
                job = source.take(mapping.nudge)
                if job is not NOTHING:
                    answers = mapping.push(job)
                    if not answers:
                        continue
            for answer in answers:
                yield answer
            if answers:
                at_once += 1
                if at_once % _AT_ONCE == 0:
                    await asyncio.sleep(0)  # a run of cached keys must not keep others waiting
                continue
            if source.ended and mapping.is_done():
                return
            at_once = 0
            await mapping.news()
    finally:
        mapping.close()
        await source.stop()


class _Mapping:
    """The jobs that one `map` has pushed and not yet answered."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._wait = Wait(scheduler.owner())
        lanes = scheduler.lanes.values()
        self._window = sum(lane.capacity + lane.permits for lane in lanes)
        # A key may come several times; each time it is answered.
        self._outstanding: dict[Entry, int] = {}
        self._total = 0
        self._blocked: Entry | None = None

    def has_room(self) -> bool:
        """Tell whether another job may be pushed: the last one has its place, and few are out."""
        blocked = self._blocked
        if blocked is not None:
            suspension.check_taken(blocked)
            if blocked.phase is ADMITTING:
                return False
            self._blocked = None
        return self._total < self._window

    def push(self, job: Job) -> list[tuple[str, Outcome]]:
        """Push one job; returns the answer if there is one already."""
        verdict, found = self._scheduler.claim(job)
        if verdict is Verdict.REPLAY:
            return [(str.__str__(job.key), Completed(found))]
        wait = self._wait
        with self._scheduler.lock:
            suspension.check_taken(found)
            if found in self._outstanding:
                self._outstanding[found] += 1
            else:
                try:
                    if found.phase is SETTLED:
                        wait.settled.append(found)
                    else:
                        lending.watch(wait, found)
                finally:
                    if verdict is Verdict.QUEUE and found.phase is ADMITTING:
                        self._blocked = wait.admitting = found
                        found.admission = wait
                self._outstanding[found] = 1
        self._total += 1
        return []

    def settled(self) -> list[tuple[str, Outcome]]:
        """The answers that have come in since the last time."""
        answers: list[tuple[str, Outcome]] = []
        while self._wait.settled and not answers:
            entry = self._wait.settled.popleft()
            times = self._outstanding.pop(entry)
            self._total -= times
            answers = [(entry.key, outcome_of(entry))] * times
        return answers

    def is_done(self) -> bool:
        """Tell whether every job that was pushed has been answered."""
        return not self._outstanding

    def nudge(self) -> None:
        """There is something new to look at; called from anywhere."""
        self._scheduler.nudge(self._wait)

    async def news(self) -> None:
        """Wait until there is something new to look at."""
        try:
            await suspension.for_news(self._scheduler, self._wait)
        except QueueClosed as error:
            key = next(iter(self._outstanding)).key if self._outstanding else "(none taken yet)"
            raise JobLost(key, str(error)) from None

    def close(self) -> None:
        """Let go: a job without a place is withdrawn, the others run on."""
        if self._blocked is not None:
            self._scheduler.withdraw(self._blocked)
        with self._scheduler.lock:
            lending.close(self._wait)
