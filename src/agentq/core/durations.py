"""Durations at the public surface are seconds or `timedelta`; inside they are seconds."""

import math
from datetime import timedelta


def seconds(value: float | timedelta, what: str, *, zero: bool = False) -> float:
    """Return `value` in seconds.

    Raises `TypeError` when it is no duration and `ValueError` when it is not finite, negative, or
    zero where `zero` is not allowed; the message begins with `what`.
    """
    if isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            result = float(value)
        except OverflowError:
            result = math.inf
    else:
        raise TypeError(f"{what} must be seconds or a timedelta, not {value!r}")
    if not math.isfinite(result) or result < 0 or (result == 0 and not zero):
        least = "0 or more" if zero else "more than 0"
        raise ValueError(f"{what} must be {least} seconds and finite, not {value!r}")
    return result
