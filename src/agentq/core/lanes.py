"""Lanes: their default names, their limits and their numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Priority(StrEnum):
    """The lanes every queue has. Lanes are independent: none runs ahead of another."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class LaneConfig:
    """The limits of one lane.

    Attributes:
        capacity: how many jobs may wait in the lane; then `push` waits. 1 or more.
        permits: how many jobs of the lane may run at once. 1 or more.
    """

    capacity: int = 100
    permits: int = 5


@dataclass(frozen=True, slots=True)
class LaneStats:
    """The numbers of one lane at one moment.

    At rest, `completed + failed` is the number of jobs the lane has accepted. A run that is given
    up (timed out, say) is counted in `failed` or `retrying` at once, and in `running` too until
    its code has stopped. A job that waits for a place is counted nowhere.

    Attributes:
        waiting: jobs that have a place in the lane and wait for a permit; at most `capacity`.
        running: jobs that run their own code; at most `permits`.
        capacity: as configured.
        permits: as configured.
        completed: jobs that ended `Completed`, ever.
        failed: jobs that ended `Failed`, ever.
        joined: pushes answered by a job already in flight, ever.
        cached: pushes answered by a cached output, ever.
        lending: jobs that wait for other jobs; each lends its permit meanwhile.
        retrying: jobs between two tries, holding no permit.
    """

    waiting: int
    running: int
    capacity: int
    permits: int
    completed: int
    failed: int
    joined: int
    cached: int
    lending: int
    retrying: int


def lane_configs(given: Mapping[str, LaneConfig] | None) -> dict[str, LaneConfig]:
    """Return the lanes of a queue: one for every `Priority`, and those in `given`.

    Raises `TypeError` or `ValueError` naming the lane and the value that is wrong.
    """
    lanes: dict[str, LaneConfig] = {str(name): LaneConfig() for name in Priority}
    if given is None:
        return lanes
    if not isinstance(given, Mapping):
        raise TypeError(f"lanes must map names to LaneConfig, not {given!r}")
    for name, config in given.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"a lane's name must be a non-empty string, not {name!r}")
        if not isinstance(config, LaneConfig):
            raise TypeError(f"lane {name!r} must be given a LaneConfig, not {config!r}")
        for field in ("capacity", "permits"):
            value = getattr(config, field)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"lane {name!r}: {field} must be a whole number, not {value!r}")
            if value < 1:
                raise ValueError(f"lane {name!r}: {field} must be 1 or more, not {value}")
        lanes[str(name)] = config
    return lanes
