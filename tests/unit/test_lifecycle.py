"""The rules of a key's life, as values in and values out."""

from types import NoneType

import pytest

from agentq import Completed, Failed, Pending, Processing, Retry
from agentq.core.lifecycle import TRANSITIONS, Verdict, after_failure, on_push

A, B = b"a" * 16, b"b" * 16
STATES = (NoneType, Pending, Processing, Completed, Failed)


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (NoneType, Verdict.QUEUE),
        (Pending, Verdict.JOIN),
        (Processing, Verdict.JOIN),
        (Completed, Verdict.REPLAY),
        (Failed, Verdict.QUEUE),
    ],
)
@pytest.mark.parametrize(("known", "given"), [(None, None), (A, A), (None, B), (A, None)])
def test_what_a_push_comes_to_when_nothing_contradicts(
    state: type, verdict: Verdict, known: bytes | None, given: bytes | None
) -> None:
    assert on_push(state, known, given) is verdict


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (NoneType, Verdict.QUEUE),
        (Pending, Verdict.CONFLICT),
        (Processing, Verdict.CONFLICT),
        (Completed, Verdict.CONFLICT),
        (Failed, Verdict.QUEUE),
    ],
)
def test_what_a_push_of_a_different_call_comes_to(state: type, verdict: Verdict) -> None:
    assert on_push(state, A, B) is verdict


def test_completed_is_absorbing_and_failed_may_be_tried_again() -> None:
    following = {
        state: {after for before, after in TRANSITIONS if before is state} for state in STATES
    }
    assert following == {
        NoneType: {Pending},
        Pending: {NoneType, Processing, Failed},
        Processing: {Pending, Completed, Failed},
        Completed: set(),
        Failed: {Pending},
    }


@pytest.mark.parametrize(
    ("retry", "attempt", "error", "delay"),
    [
        (None, 1, ValueError(), None),
        (Retry(attempts=1, jitter=0), 1, ValueError(), None),
        (Retry(attempts=3, initial=1, jitter=0), 1, ValueError(), 1.0),
        (Retry(attempts=3, initial=1, jitter=0), 2, ValueError(), 2.0),
        (Retry(attempts=3, initial=1, jitter=0), 3, ValueError(), None),
        (Retry(attempts=3, initial=1, jitter=0), 1, SystemExit(), None),
        (Retry(attempts=3, initial=1, jitter=0, on=(KeyError,)), 1, ValueError(), None),
        (Retry(attempts=3, initial=1, jitter=0, on=(LookupError,)), 1, KeyError(), 1.0),
        (Retry(attempts=3, initial=1, jitter=0, on=KeyError), 1, KeyError(), 1.0),
        (Retry(attempts=3, initial=1, jitter=0, on=BaseException), 1, SystemExit(), 1.0),
        (Retry(attempts=3, initial=1, jitter=0, on=()), 1, ValueError(), None),
    ],
)
def test_what_follows_a_failed_try(
    retry: Retry | None, attempt: int, error: BaseException, delay: float | None
) -> None:
    assert after_failure(retry, attempt, error, 0.0) == delay
