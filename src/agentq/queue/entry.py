"""`Entry`: everything the queue knows about one key in flight."""

from __future__ import annotations

import asyncio
from contextvars import Context
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from agentq.core.job import Job
from agentq.core.states import Completed, Failed, Pending, Processing

if TYPE_CHECKING:
    from agentq.queue.lane import Lane
    from agentq.queue.lending import Wait
    from agentq.queue.scheduler import Scheduler

# When, a number that tells equals apart, and whose; a list, so that it can let go of its entry.
Deadline: TypeAlias = "list[Any]"

State = type[Pending] | type[Processing] | type[Completed] | type[Failed]


class Phase(Enum):
    """Where an entry is. Finer than its state: the first three are all `Pending`."""

    ADMITTING = "waits for a place in its lane"
    WAITING = "has a place, waits for a permit"
    BACKOFF = "waits for its next try"
    RUNNING = "its code runs"
    SETTLED = "its outcome is known"
    WITHDRAWN = "its push was cancelled; nothing is left of it"


class Stop(Enum):
    """Why a run is being ended from outside."""

    CANCEL = "cancelled"
    TIMEOUT = "timed out"
    CLOSE = "the queue closed before the job ended"


ADMITTING, WAITING, BACKOFF = Phase.ADMITTING, Phase.WAITING, Phase.BACKOFF
RUNNING, SETTLED, WITHDRAWN = Phase.RUNNING, Phase.SETTLED, Phase.WITHDRAWN


class Entry:
    """One claim on a key, from the push that made it to its outcome.

    Only code that holds the scheduler's lock writes to it. A settled entry is dropped from the
    state map; handles may hold on to it.
    """

    __slots__ = (
        "admission",
        "attempt",
        "context",
        "deadline",
        "demand",
        "error",
        "holding",
        "job",
        "joined",
        "key",
        "lane",
        "lost",
        "opened",
        "output",
        "phase",
        "reason",
        "scheduler",
        "stop",
        "successor",
        "task",
        "thread",
        "timer",
        "waiters",
        "waiting",
        "waits",
    )

    def __init__(
        self, scheduler: Scheduler, key: str, job: Job, lane: Lane, context: Context
    ) -> None:
        self.scheduler = scheduler
        self.key = key
        self.job = job
        self.lane = lane
        # The pusher's context, until the last try that could need it has started.
        self.context: Context | None = context
        self.phase = ADMITTING
        self.attempt = 0
        # How it ended.
        self.output: Any = None
        self.reason: str | None = None
        self.error: BaseException | None = None
        self.lost = False
        # Its run. `holding` is true from the start of a run until its code has really stopped.
        self.task: asyncio.Task[None] | None = None
        self.thread = False
        self.holding = False
        self.deadline: Deadline | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.stop: Stop | None = None
        # Who waits for it: the pusher waiting for room, callers outside jobs, jobs and maps. Those
        # are dicts used as sets that keep their order: first come, first woken.
        self.admission: asyncio.Future[None] | Wait | None = None
        self.joined = False
        self.waiters: dict[asyncio.Future[None], None] | None = None
        self.waits: dict[Wait, None] | None = None
        self.demand = 0
        # What it waits for itself, and how many of its tasks are suspended doing so.
        self.opened: dict[Wait, None] | None = None
        self.waiting = 0
        # The next claim on the key, when this one's code outlives its outcome.
        self.successor: Entry | None = None

    @property
    def state(self) -> State:
        """The class of the key's state."""
        if self.phase is RUNNING:
            return Processing
        if self.phase is SETTLED:
            return Completed if self.reason is None else Failed
        return Pending

    def outcome(self) -> Completed | Failed:
        """The outcome of a settled entry that is not lost."""
        return Completed(self.output) if self.reason is None else Failed(self.reason)
