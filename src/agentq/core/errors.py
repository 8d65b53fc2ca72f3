"""Every error agentq raises on purpose.

    AgentqError
    ├── QueueClosed      the queue takes no more work
    ├── UnknownLane      the job names a lane the queue does not have
    ├── InvalidKey       the key is not a usable string (also a ValueError)
    ├── KeyConflict      the key belongs to a different call
    ├── JobFailed        the job ran and failed, or was cancelled
    ├── JobLost          the queue ended before the job's result was known
    └── WouldDeadlock    a job would wait for itself

Bad arguments to constructors raise `TypeError` or `ValueError`, as everywhere in Python.
"""


class AgentqError(Exception):
    """The base of every error in this module."""


class QueueClosed(AgentqError):
    """The queue is not open: not entered yet, draining, closed, or its event loop is gone."""


class UnknownLane(AgentqError):
    """A job names a lane that its queue was not built with."""


class InvalidKey(AgentqError, ValueError):
    """A key is not a non-empty `str` of at most 512 characters, encodable as UTF-8, without NUL."""


class KeyConflict(AgentqError):
    """A key in flight or completed was pushed with a different task or different arguments.

    A failed key may be pushed again with corrected arguments.
    """


class JobFailed(AgentqError):
    """The job failed. For a live waiter, `__cause__` is the exception the job raised.

    Attributes:
        key: the job's key.
        reason: type and message as text, as kept in `Failed.reason`.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        return f"job {self.key!r} failed: {self.reason}"


class JobLost(AgentqError):
    """The job's result will never be known here: its queue was closed or its loop is gone.

    Attributes:
        key: the job's key.
        reason: what happened, as text.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        return f"job {self.key!r} is lost: {self.reason}"


class WouldDeadlock(AgentqError):
    """This wait would close a circle: a job would wait for itself, directly or through others."""
