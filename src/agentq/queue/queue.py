"""`Queue`: the verbs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from agentq.core.durations import seconds
from agentq.core.job import Job, runs_on_loop
from agentq.core.lanes import LaneConfig, LaneStats, lane_configs
from agentq.core.lifecycle import Verdict
from agentq.core.retention import Retention
from agentq.core.states import Outcome, State, Transition
from agentq.queue import closing, suspension
from agentq.queue.entry import ADMITTING, SETTLED, WITHDRAWN
from agentq.queue.handle import Accepted, Cached, InFlight, JobHandle, Queued, output_of
from agentq.queue.mapping import map_jobs
from agentq.queue.scheduler import Scheduler

_QUEUE, _JOIN, _REPLAY = Verdict.QUEUE, Verdict.JOIN, Verdict.REPLAY


class Queue:
    """Runs jobs in this process: each key once, each lane within its limits.

    Its tasks live on the event loop that enters it. All its verbs work from any thread and from
    any other running loop too.

    Args:
        lanes: limits by lane name, added to the default lanes (one for every `Priority`).
        retention: when finished keys are forgotten; by default they are kept.
        on_change: called with a `Transition` after every change of a key's state, in order, on
            the queue's loop. It must be quick and not block. An exception in it is logged.

    Raises:
        TypeError, ValueError: a limit is wrong; the message names the lane and the value.
    """

    def __init__(
        self,
        lanes: Mapping[str, LaneConfig] | None = None,
        *,
        retention: Retention | None = None,
        on_change: Callable[[Transition], object] | None = None,
    ) -> None:
        if retention is not None and not isinstance(retention, Retention):
            raise TypeError(f"retention must be a Retention, not {retention!r}")
        if on_change is not None and runs_on_loop(on_change, "on_change"):
            raise TypeError(
                f"on_change is called, not awaited: give it a plain function, not {on_change!r}"
            )
        self._scheduler = Scheduler(lane_configs(lanes), retention, on_change)

    async def __aenter__(self) -> Self:
        """Open the queue on the running loop.

        Raises `QueueClosed` when it was entered before: a queue is used once.
        """
        closing.enter(self._scheduler)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain. When the block was cancelled, cancel what runs instead."""
        if error is not None and not isinstance(error, Exception):
            await self.close()
        else:
            await self.drain()

    async def push(self, job: Job) -> Accepted:
        """Have `job` run, unless its key is in flight or has completed.

        Waits while the job's lane is full, first come first served; joining never waits.

        Returns:
            `Queued(handle)` for new work, `InFlight(handle)` when the key's job is already on its
            way, `Cached(output)` when it has completed.

        Raises:
            InvalidKey, UnknownLane: the job cannot be taken.
            KeyConflict: the key belongs to a call with another task or other arguments.
            QueueClosed: the queue is not open, or stopped accepting while this push waited.

        Cancelled while waiting for room, it leaves nothing behind, unless others have joined the
        key meanwhile: then the job is theirs and runs.
        """
        verdict, found = self._scheduler.claim(job)
        if verdict is _QUEUE:
            if found.phase is ADMITTING or found.phase is WITHDRAWN:
                await suspension.for_room(found)
            return Queued(JobHandle(found))
        return InFlight(JobHandle(found)) if verdict is _JOIN else Cached(found)

    async def push_and_wait(self, job: Job) -> Any:
        """Push `job` and return its output, cached, joined or new.

        Inside a job, the job's permit is lent to what it waits for, and is back on return.

        Raises:
            JobFailed: the job failed; `__cause__` is its own exception.
            JobLost: the queue ended before the job did.
            WouldDeadlock: a job would wait for itself, directly or through others.
            And what `push` raises.

        Cancelled while waiting for room, as `push`; cancelled later, the job runs on.
        """
        verdict, found = self._scheduler.claim(job)
        if verdict is _REPLAY:
            return found
        if verdict is _QUEUE and (found.phase is ADMITTING or found.phase is WITHDRAWN):
            await suspension.for_room(found)
        if found.phase is SETTLED:
            return output_of(found)
        await suspension.for_outcome(found)
        return output_of(found)

    def map(
        self, jobs: Iterable[Job] | AsyncIterable[Job]
    ) -> AsyncGenerator[tuple[str, Outcome], None]:
        """Run many jobs; yield `(key, outcome)` for each, in completion order.

        Takes jobs from `jobs`, which may be endless, only as lanes have room. A full lane holds
        up the jobs behind it in the same iterable. When the consumer stops early, the source is
        closed and jobs already pushed run on; use `contextlib.aclosing` to have that happen at
        once.

        Raises what `push` raises, and `JobLost`.
        """
        return map_jobs(self._scheduler, jobs)

    def state(self, key: str) -> State | None:
        """Return the state of `key`, or None when it is not known. Never blocks; any thread.

        Raises `TypeError` when `key` is no `str`.
        """
        _check_key(key)
        return self._scheduler.state(key)

    def stats(self) -> dict[str, LaneStats]:
        """Return the numbers of every lane, consistent with one another; any thread."""
        scheduler = self._scheduler
        with scheduler.lock:
            return {name: lane.stats() for name, lane in scheduler.lanes.items()}

    def cancel(self, key: str) -> bool:
        """End the job in flight under `key`; any thread.

        A job that has not started is `Failed("cancelled")` at once. One that runs is cancelled
        and recorded as what it then does; a synchronous one is given up, keeps its permit until
        its thread returns, and its result is discarded. It is not tried again.

        Returns whether there was a job in flight to cancel. Raises `TypeError` when `key` is no
        `str`.
        """
        _check_key(key)
        return self._scheduler.cancel(key)

    async def drain(self, timeout: float | timedelta | None = None) -> None:
        """Stop accepting, let everything accepted finish, then close.

        Pushes from inside running jobs are still taken, since those jobs need them to finish;
        pushes that wait for room are turned away with `QueueClosed`.

        Args:
            timeout: after this long, in seconds or as a `timedelta`, close instead of waiting.

        Raises `WouldDeadlock` inside a job of this queue. Cancelled, it closes the queue.
        """
        await closing.drain(
            self._scheduler, None if timeout is None else seconds(timeout, "timeout", zero=True)
        )

    def close(self) -> Closing:
        """Stop accepting, drop what has not started, and cancel what runs; any thread, any job.

        It takes effect at once and may be repeated. Await what it returns to wait, about a second
        at most, until the cancelled jobs have cleaned up. Every handle resolves: `JobLost` for
        jobs that did not come to an end of their own.
        """
        self._scheduler.close()
        closing.limit(self._scheduler)
        return Closing(self._scheduler)


class Closing:
    """Await it to wait until the closed queue has come to rest."""

    __slots__ = ("_scheduler",)

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __await__(self) -> Generator[Any, None, None]:
        yield from closing.rest(self._scheduler).__await__()


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise TypeError(f"a key is a str, not {key!r}; a job has its key in job.key")
