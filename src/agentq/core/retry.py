"""`Retry`: how often a failing job is tried, and how long to wait in between."""

from dataclasses import dataclass
from datetime import timedelta

from agentq.core.durations import seconds


@dataclass(frozen=True, slots=True)
class Retry:
    """Try a failing job again, after a wait that grows.

    The wait before try n+1 is `initial * factor ** (n - 1)`, at most `maximum`, then shortened by
    a random part of up to `jitter` of it, so that many failures do not come back at one moment.

    Attributes:
        attempts: tries in all, the first included. `Retry(attempts=1)` never tries again.
        initial: the first wait, in seconds or as a `timedelta`.
        maximum: the longest wait, in seconds or as a `timedelta`.
        factor: by how much each wait is longer than the one before; 1 or more.
        jitter: how much of a wait chance may take away, from 0 (none) to 1 (all).
        on: the exceptions worth another try. A timeout counts as `TimeoutError`.

    Raises:
        TypeError, ValueError: an attribute is out of its range; the message names it.
    """

    attempts: int = 3
    initial: float | timedelta = 0.5
    maximum: float | timedelta = 60.0
    factor: float = 2.0
    jitter: float = 0.5
    on: tuple[type[BaseException], ...] | type[BaseException] = (Exception,)

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or isinstance(self.attempts, bool):
            raise TypeError(f"Retry.attempts must be a whole number, not {self.attempts!r}")
        if self.attempts < 1:
            raise ValueError(
                f"Retry.attempts counts tries in all, so it must be 1 or more, not {self.attempts}"
            )
        initial = seconds(self.initial, "Retry.initial", zero=True)
        maximum = seconds(self.maximum, "Retry.maximum", zero=True)
        factor = seconds(self.factor, "Retry.factor")
        if factor < 1:
            raise ValueError(f"Retry.factor must be 1 or more, not {self.factor!r}")
        jitter = seconds(self.jitter, "Retry.jitter", zero=True)
        if jitter > 1:
            raise ValueError(f"Retry.jitter must be from 0 to 1, not {self.jitter!r}")
        on = self.on if isinstance(self.on, tuple) else (self.on,)
        for kind in on:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise TypeError(f"Retry.on must hold exception classes, not {kind!r}")
        object.__setattr__(self, "initial", initial)
        object.__setattr__(self, "maximum", maximum)
        object.__setattr__(self, "on", on)

    def delay(self, attempt: int, draw: float) -> float:
        """Return the wait in seconds after failed try number `attempt`, counted from 1.

        `draw` is a random number in [0, 1); the same draw gives the same wait.
        """
        initial, maximum = self.initial, self.maximum
        assert isinstance(initial, float)
        assert isinstance(maximum, float)
        try:
            grown = initial * self.factor ** (attempt - 1)
        except OverflowError:
            grown = maximum if initial else 0.0
        return min(grown, maximum) * (1 - self.jitter * draw)
