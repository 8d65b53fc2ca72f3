"""The errors of a push that cannot be taken, each saying what to do instead."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from agentq.core.errors import KeyConflict, UnknownLane
from agentq.core.job import Job
from agentq.core.task import Task


def not_a_job(given: object) -> TypeError:
    """Something else was pushed. A coroutine among such things is closed."""
    if isinstance(given, Task):
        return TypeError(f"a queue takes a Job, not {given!r}; make one with its .job(…)")
    if inspect.iscoroutine(given):
        given.close()
        return TypeError(
            f"a queue takes a Job, not a coroutine; write Job(key, {given.__name__}, args=(…)) "
            "around the function, without calling it"
        )
    return TypeError(f"a queue takes a Job, not {given!r}; make one with Job(key, func)")


def no_such_lane(job: Job, lanes: Iterable[str]) -> UnknownLane:
    """The job names a lane that the queue was not built with."""
    return UnknownLane(
        f"job {job.key!r} names lane {str(job.lane)!r}, which this queue does not have; its lanes "
        f"are {', '.join(lanes)}; give it one with Queue(lanes={{…}})"
    )


def another_call(key: str) -> KeyConflict:
    """The key is in flight or completed, and was pushed with another fingerprint."""
    return KeyConflict(
        f"key {key!r} belongs to a call of a different task or with different arguments; a key "
        "answers for one call only, so push this one under another"
    )
