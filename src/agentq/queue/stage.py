"""The stages of a queue's life, in order."""

from enum import Enum


class Stage(Enum):
    """A queue only moves forward through these."""

    NEW = "not entered yet"
    OPEN = "open"
    DRAINING = "draining"
    CLOSED = "closed"
