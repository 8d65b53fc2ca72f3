"""`Retry`: what is checked, and the waits that follow from it."""

import math
from datetime import timedelta
from typing import Any

import pytest

from agentq import Retry


@pytest.mark.parametrize(
    ("field", "wrong", "error", "message"),
    [
        ("attempts", 0, ValueError, "attempts counts tries in all, so it must be 1 or more, not 0"),
        ("attempts", -1, ValueError, "attempts counts tries in all"),
        ("attempts", True, TypeError, "attempts must be a whole number, not True"),
        ("attempts", 2.0, TypeError, "attempts must be a whole number, not 2.0"),
        ("attempts", None, TypeError, "attempts must be a whole number, not None"),
        ("initial", -0.1, ValueError, "initial must be 0 or more seconds and finite, not -0.1"),
        ("initial", math.nan, ValueError, "initial must be 0 or more seconds"),
        ("initial", "1", TypeError, "initial must be seconds or a timedelta, not '1'"),
        ("maximum", -1, ValueError, "maximum must be 0 or more seconds"),
        ("maximum", math.inf, ValueError, "maximum must be 0 or more seconds and finite"),
        ("factor", 0.5, ValueError, "factor must be 1 or more, not 0.5"),
        ("factor", math.nan, ValueError, "factor must be "),
        ("factor", "2", TypeError, "factor must be "),
        ("jitter", 1.1, ValueError, "jitter must be from 0 to 1, not 1.1"),
        ("jitter", -0.1, ValueError, "jitter must be "),
        ("jitter", True, TypeError, "jitter must be "),
        ("on", (7,), TypeError, "on must hold exception classes, not 7"),
        ("on", ValueError(), TypeError, "on must hold exception classes"),
        ("on", (ValueError, int), TypeError, "on must hold exception classes, not <class 'int'>"),
        ("on", [ValueError], TypeError, "on must hold exception classes"),
        ("on", None, TypeError, "on must hold exception classes, not None"),
    ],
)
def test_a_wrong_attribute_is_refused_by_name(
    field: str, wrong: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        Retry(**{field: wrong})
    assert str(caught.value).startswith(f"Retry.{message}")


def test_the_defaults_are_three_tries_with_growing_waits() -> None:
    retry = Retry()
    assert (retry.attempts, retry.initial, retry.maximum) == (3, 0.5, 60.0)
    assert (retry.factor, retry.jitter, retry.on) == (2.0, 0.5, (Exception,))


def test_the_ends_of_each_range_are_allowed() -> None:
    assert Retry(attempts=1).attempts == 1
    assert Retry(initial=0, maximum=0).delay(1, 0.0) == 0
    assert [Retry(initial=7, factor=1, jitter=0).delay(n, 0.0) for n in (1, 9)] == [7, 7]
    assert Retry(initial=8, jitter=1).delay(1, 0.75) == 2


def test_one_class_may_stand_for_itself() -> None:
    assert Retry(on=KeyError).on == (KeyError,)
    assert Retry(on=()).on == ()


def test_the_waits_grow_by_the_factor_up_to_the_maximum() -> None:
    retry = Retry(initial=1, factor=3, maximum=20, jitter=0)
    assert [retry.delay(attempt, 0.9) for attempt in (1, 2, 3, 4, 5)] == [1, 3, 9, 20, 20]


def test_durations_may_be_timedeltas() -> None:
    retry = Retry(initial=timedelta(milliseconds=500), maximum=timedelta(minutes=1), jitter=0)
    assert (retry.initial, retry.maximum) == (0.5, 60.0)
    assert retry.delay(2, 0.0) == 1.0


@pytest.mark.parametrize(("draw", "delay"), [(0.0, 8.0), (0.5, 7.0), (0.999, 6.002)])
def test_jitter_takes_away_up_to_its_part_of_a_wait(draw: float, delay: float) -> None:
    retry = Retry(initial=8, maximum=8, jitter=0.25)
    assert retry.delay(1, draw) == pytest.approx(delay)


def test_a_very_late_attempt_waits_for_the_maximum() -> None:
    assert Retry(initial=1, maximum=60, jitter=0).delay(100_000, 0.0) == 60


def test_an_initial_wait_of_zero_stays_zero_at_any_attempt() -> None:
    retry = Retry(initial=0, maximum=60, jitter=0)
    assert [retry.delay(attempt, 0.0) for attempt in (1, 2, 2000)] == [0, 0, 0]
