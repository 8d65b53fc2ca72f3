"""`Retention`: how long finished keys are remembered."""

from dataclasses import dataclass
from datetime import timedelta

from agentq.core.durations import seconds


@dataclass(frozen=True, slots=True)
class Retention:
    """When finished keys are forgotten. Keys in flight never are.

    Without limits a key is kept for the life of its queue. A forgotten key runs again when pushed.

    Attributes:
        ttl: forget a key this long after it finished; seconds or a `timedelta`.
        max_keys: keep at most this many finished keys, forgetting the oldest first.

    Raises:
        TypeError, ValueError: a limit is out of its range; the message names it.
    """

    ttl: float | timedelta | None = None
    max_keys: int | None = None

    def __post_init__(self) -> None:
        if self.ttl is not None:
            object.__setattr__(self, "ttl", seconds(self.ttl, "Retention.ttl"))
        limit = self.max_keys
        if limit is not None:
            if not isinstance(limit, int) or isinstance(limit, bool):
                raise TypeError(f"Retention.max_keys must be a whole number, not {limit!r}")
            if limit < 0:
                raise ValueError(f"Retention.max_keys must be 0 or more, not {limit}")
