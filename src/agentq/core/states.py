"""The states a key can be in, and what is told about a change of state."""

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Pending:
    """Claimed, and waiting for a place, a permit or its next try."""


@dataclass(frozen=True, slots=True)
class Processing:
    """The job's code is running."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The job returned. Absorbing: pushing the key again answers with this output."""

    output: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The job ended without an output. Pushing the key again runs fresh work.

    Attributes:
        reason: type and message as text, at most 10 kB.
    """

    reason: str


State: TypeAlias = Pending | Processing | Completed | Failed
Outcome: TypeAlias = Completed | Failed


@dataclass(frozen=True, slots=True)
class Transition:
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
