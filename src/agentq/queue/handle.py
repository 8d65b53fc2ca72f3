"""`JobHandle`, and what a push is answered with."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from agentq.core.errors import JobFailed, JobLost
from agentq.core.states import Completed, Outcome
from agentq.queue.entry import SETTLED, Entry
from agentq.queue.suspension import for_outcome

H = TypeVar("H")


class JobHandle(Struct, frozen=True, eq=False):
    """What a push gives to wait for its job. Await it as often as you like, on any event loop.

    Cancelling a wait disturbs neither the job nor others who wait for it.
    """

    _entry: Entry

    @property
    def key(self) -> str:
        """The job's key."""
        return self._entry.key

    def __await__(self) -> Generator[Any, None, Outcome]:
        """Wait for the outcome, `Completed(output)` or `Failed(reason)`.

        Raises `JobLost` when the queue ends before the job does, and `WouldDeadlock` when a job
        would wait for itself.
        """
        entry = self._entry
        if entry.phase is not SETTLED:
            yield from for_outcome(entry).__await__()
        return Completed(entry.output) if entry.reason is None else outcome_of(entry)

    async def result(self) -> Any:
        """Wait for the output.

        Raises `JobFailed` (from the job's own exception), and what awaiting the handle raises.
        """
        entry = self._entry
        if entry.phase is not SETTLED:
            await for_outcome(entry)
        return output_of(entry)

    def __repr__(self) -> str:
        return f"<JobHandle {self._entry.key!r} {self._entry.state.__name__}>"


def outcome_of(entry: Entry) -> Outcome:
    """The outcome of a settled entry. Raises `JobLost`."""
    if entry.lost:
        raise lost_error(entry)
    return entry.outcome()


def output_of(entry: Entry) -> Any:
    """The output of a settled entry. Raises `JobFailed` or `JobLost`."""
    if entry.reason is None:
        return entry.output
    if entry.lost:
        raise lost_error(entry)
    raise JobFailed(entry.key, entry.reason) from entry.error


def lost_error(entry: Entry) -> JobLost:
    """The error that tells of a lost job."""
    assert entry.reason is not None
    return JobLost(entry.key, entry.reason.removeprefix("lost: "))


class Queued(Struct, Generic[H], frozen=True):
    """The push made new work."""

    handle: H


class InFlight(Struct, Generic[H], frozen=True):
    """The key is in flight already; this push has joined its job."""

    handle: H


class Cached(Struct, frozen=True):
    """The key has completed before; nothing runs."""

    output: Any


Accepted: TypeAlias = Queued[JobHandle] | InFlight[JobHandle] | Cached
