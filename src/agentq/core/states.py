"""The states a key can be in, and what is told about a change of state.

They are msgspec structs: immutable, compared by value, and a quarter of the cost of a frozen
dataclass, which counts since every awaited job makes one.
"""

from typing import Any, TypeAlias

from msgspec import Struct


class Pending(Struct, frozen=True):
    """Claimed, and waiting for a place, a permit or its next try."""


class Processing(Struct, frozen=True):
    """The job's code is running."""


class Completed(Struct, frozen=True):
    """The job returned. Absorbing: pushing the key again answers with this output."""

    output: Any


class Failed(Struct, frozen=True):
    """The job ended without an output. Pushing the key again runs fresh work.

    Attributes:
        reason: type and message as text, at most 10 kB.
    """

    reason: str


State: TypeAlias = Pending | Processing | Completed | Failed
Outcome: TypeAlias = Completed | Failed


class Transition(Struct, frozen=True):
    """One change of a key's state, told to `on_change` after it happened.

    Attributes:
        key: the key.
        lane: the lane of the job that holds the key.
        before: the state it left; `None` when the key was not known.
        after: the state it entered; `None` when a claim was withdrawn and nothing is left of it.
    """

    key: str
    lane: str
    before: State | None
    after: State | None
