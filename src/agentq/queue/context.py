"""`current()`: what a job can know about itself."""

import hashlib
from contextvars import ContextVar
from dataclasses import dataclass

from agentq.queue.entry import Entry

running: ContextVar[tuple[Entry, int] | None] = ContextVar("agentq running", default=None)
"""The job whose code this is, and which of its tries."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """The job that is running here.

    Attributes:
        key: its key.
        lane: its lane.
        attempt: which try this is, from 1.
        token: the same for every attempt of this call: hand it to the API being called as its
            idempotency key. It is made of the key and, for jobs made from a `@task`, of the task
            and its arguments.
    """

    key: str
    lane: str
    attempt: int
    token: str


def current() -> JobContext:
    """Return the context of the job that this code runs in.

    Works in the job's own task, in tasks it started, and in the thread of a synchronous job.
    Raises `LookupError` outside of any job.
    """
    run = running.get()
    if run is None:
        raise LookupError("current() was called outside of a job: no job is running here")
    entry, attempt = run
    return JobContext(entry.key, entry.lane.name, attempt, _token(entry))


def _token(entry: Entry) -> str:
    digest = hashlib.blake2b(b"agentq token", digest_size=16)
    digest.update(entry.job.fingerprint or bytes(16))
    digest.update(entry.key.encode())
    return digest.hexdigest()
