"""A job queue for agent tool calls and other expensive work, embedded in your program.

    async with Queue() as queue:
        answer = await queue.push_and_wait(Job("charge:7", charge, args=(7,)))

Each key runs once; each lane within its limits; every job ends in a known state.
"""

from agentq.core.errors import (
    AgentqError,
    InvalidKey,
    JobFailed,
    JobLost,
    KeyConflict,
    QueueClosed,
    UnknownLane,
    WouldDeadlock,
)
from agentq.core.job import Job
from agentq.core.lanes import LaneConfig, LaneStats, Priority
from agentq.core.retention import Retention
from agentq.core.retry import Retry
from agentq.core.states import Completed, Failed, Outcome, Pending, Processing, State, Transition
from agentq.core.task import task
from agentq.queue.blocking import BlockingQueue
from agentq.queue.context import JobContext, current
from agentq.queue.handle import Accepted, Cached, InFlight, JobHandle, Queued
from agentq.queue.queue import Queue

__all__ = [
    "Accepted",
    "AgentqError",
    "BlockingQueue",
    "Cached",
    "Completed",
    "Failed",
    "InFlight",
    "InvalidKey",
    "Job",
    "JobContext",
    "JobFailed",
    "JobHandle",
    "JobLost",
    "KeyConflict",
    "LaneConfig",
    "LaneStats",
    "Outcome",
    "Pending",
    "Priority",
    "Processing",
    "Queue",
    "QueueClosed",
    "Queued",
    "Retention",
    "Retry",
    "State",
    "Transition",
    "UnknownLane",
    "WouldDeadlock",
    "current",
    "task",
]
