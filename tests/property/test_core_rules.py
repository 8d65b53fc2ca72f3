"""The pure rules of the core, for any input there may be."""

import os
import subprocess
import sys
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from agentq import InvalidKey, Retry
from agentq.core.fingerprint import fingerprint_of
from agentq.core.keys import checked_key, is_plain_key
from agentq.core.lifecycle import after_failure
from agentq.core.reason import REASON_LIMIT, capped, reason_of

# ── retry ────────────────────────────────────────────────────────────────────────────────────────

WAITS = st.floats(0, 1e6)
DRAWS = st.floats(0, 1, exclude_max=True)


@given(
    initial=WAITS,
    maximum=WAITS,
    factor=st.floats(1, 1e6),
    jitter=st.floats(0, 1),
    attempt=st.integers(1, 10_000),
    draw=DRAWS,
)
@example(initial=0.5, maximum=60, factor=1e300, jitter=0, attempt=9_999, draw=0)
@example(initial=0, maximum=60, factor=1e300, jitter=0, attempt=9_999, draw=0)
def test_a_wait_is_within_its_bounds(
    initial: float, maximum: float, factor: float, jitter: float, attempt: int, draw: float
) -> None:
    retry = Retry(initial=initial, maximum=maximum, factor=factor, jitter=jitter)
    delay = retry.delay(attempt, draw)
    try:
        full = min(initial * factor ** (attempt - 1), maximum)
    except OverflowError:
        full = maximum if initial else 0.0
    assert full * (1 - jitter) <= delay <= full
    assert retry.delay(attempt, draw) == delay


@given(attempt=st.integers(1, 100), draw=DRAWS)
def test_waits_grow_until_the_maximum(attempt: int, draw: float) -> None:
    retry = Retry(initial=0.5, maximum=60, factor=2)
    assert retry.delay(attempt, draw) <= retry.delay(attempt + 1, draw) <= 60
    assert retry.delay(1, 0.0) == 0.5
    assert retry.delay(2, 0.0) == 1.0
    assert retry.delay(8, 0.0) == 60


@given(attempts=st.integers(1, 50), attempt=st.integers(1, 50), draw=DRAWS)
def test_no_more_tries_than_allowed(attempts: int, attempt: int, draw: float) -> None:
    retry = Retry(attempts=attempts, on=(OSError, KeyError))
    again = after_failure(retry, attempt, FileNotFoundError(), draw)
    assert (again is not None) == (attempt < attempts)
    assert after_failure(retry, attempt, ValueError(), draw) is None
    assert after_failure(None, attempt, FileNotFoundError(), draw) is None


# ── reasons ──────────────────────────────────────────────────────────────────────────────────────


class Hostile(Exception):
    """Its methods do what a case says."""

    def __init__(self, message: object, problem: BaseException | None) -> None:
        super().__init__(message)
        self.message = message
        self.problem = problem

    def __str__(self) -> str:
        if self.problem is not None:
            raise self.problem
        return self.message  # type: ignore[return-value]  # it may be anything

    __repr__ = __str__

    def __reduce__(self) -> Any:
        raise RuntimeError("cannot be pickled")


class LyingStr(str):  # noqa: SLOT000
    """A string that cannot be used as one."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    def replace(self, *_: object) -> str:
        raise RuntimeError("no")

    def encode(self, *_: object) -> bytes:
        raise RuntimeError("no")


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=50)  # with NUL and surrogates
PROBLEMS = st.sampled_from(
    [None, None, RuntimeError("no"), SystemExit(1), KeyboardInterrupt(), GeneratorExit()]
)
MESSAGES = st.one_of(ANY_TEXT, ANY_TEXT.map(LyingStr), st.none(), st.integers(), st.binary())
SINGLE = st.one_of(
    st.builds(Hostile, MESSAGES, PROBLEMS),
    st.builds(ValueError, ANY_TEXT),
    st.builds(OSError, st.integers(), ANY_TEXT),
    st.builds(lambda text: UnicodeDecodeError("utf-8", b"\xff", 0, 1, text), ANY_TEXT),
    st.builds(lambda: RuntimeError(threading.Lock())),
)
ERRORS = st.recursive(
    SINGLE,
    lambda errors: st.builds(
        ExceptionGroup, st.text(min_size=1), st.lists(errors, min_size=1, max_size=9)
    ),
    max_leaves=20,
)


def is_storable(text: str) -> bool:
    data = text.encode()  # fails on surrogates
    return b"\0" not in data and len(data) <= REASON_LIMIT and type(text) is str


@given(ERRORS)
@example(ValueError("x" * 5_000_000))
@example(ValueError("\udc80" * 20_000))
@example(ValueError("\0" * 20_000))
@example(ValueError("🙂" * 5_000))
def test_a_failure_can_always_be_written_down(error: Exception) -> None:
    try:
        reason = reason_of(error)
    except BaseException as escaped:  # an interrupt too: it would end the tests
        raise AssertionError(f"{type(escaped).__name__} escaped") from None
    assert is_storable(reason)
    assert reason.startswith(type(error).__name__)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(reason)) == reason


def test_circular_causes_and_many_members_do_no_harm() -> None:
    first, second = ValueError("one"), ValueError("two")
    first.__cause__, second.__cause__ = second, first
    assert reason_of(first) == "ValueError: one"
    group = ExceptionGroup("several", [ValueError(str(number)) for number in range(7)])
    members = "; ".join(f"ValueError: {number}" for number in range(5))
    assert reason_of(group) == f"ExceptionGroup: several (7 sub-exceptions): {members}; and 2 more"


@given(text=ANY_TEXT, times=st.integers(0, 400), limit=st.integers(60, 500))
def test_capped_text_keeps_its_beginning(text: str, times: int, limit: int) -> None:
    whole = capped(text * times, 10**9)
    cut = capped(text * times, limit)
    assert len(cut.encode()) <= limit
    if len(whole.encode()) <= limit:
        assert cut == whole
    else:
        kept, mark = cut.rsplit("… [cut, ", 1)
        assert whole.startswith(kept)
        assert mark == f"{len(whole.encode())} bytes in all]"
        assert len(cut.encode()) > limit - 4  # no more is cut than has to be


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────


class Text(str):  # noqa: SLOT000
    """A string that says something else about itself."""

    def __str__(self) -> str:
        return "another"

    def __len__(self) -> int:
        return 3


KEYS = st.one_of(
    ANY_TEXT,
    st.text("ab\0", min_size=505, max_size=520),
    st.text("aé", min_size=505, max_size=520),
    ANY_TEXT.map(Text),
    st.binary(),
    st.none(),
    st.integers(),
)


def is_usable(key: object) -> bool:
    """The rule as design and docstring state it."""
    if not isinstance(key, str):
        return False
    text = "".join(key)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return 0 < len(text) <= 512 and "\0" not in text


@given(KEYS)
@example("")
@example("a" * 512)
@example("a" * 513)
@example("é" * 512)
@example("\udfff")
@example("a\0")
def test_keys(key: object) -> None:
    if is_plain_key(key):
        assert checked_key(key) == key
    if is_usable(key):
        accepted = checked_key(key)
        assert type(accepted) is str
        assert accepted == "".join(key)  # type: ignore[arg-type]
        assert is_plain_key(accepted) == accepted.isascii()
    else:
        assert not is_plain_key(key)
        with pytest.raises(InvalidKey):
            checked_key(key)


# ── fingerprints ─────────────────────────────────────────────────────────────────────────────────

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.text(), st.binary()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.text(min_size=1, max_size=3), VALUES, max_size=4)


def as_text(arguments: dict[str, Any]) -> str:
    """A plain text that tells different arguments apart; 1 and True too."""
    return repr(sorted_deeply(list(arguments.items())))


def sorted_deeply(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((key, repr(sorted_deeply(inner))) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return [sorted_deeply(inner) for inner in value]
    return value


@given(ARGUMENTS, ARGUMENTS)
def test_fingerprints_tell_different_calls_apart(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    first, second = fingerprint_of("task", one), fingerprint_of("task", other)
    assert len(first[0]) == 16
    assert first[1] == []
    assert (first == second) == (as_text(one) == as_text(other))
    assert fingerprint_of("task", one) == first
    assert fingerprint_of("another task", one)[0] != first[0]


@given(st.dictionaries(st.text(min_size=1), VALUES, min_size=2, max_size=4), st.text(min_size=1))
def test_fingerprints_do_not_depend_on_the_order_inside_a_value(
    value: dict[str, Any], name: str
) -> None:
    backwards = dict(reversed(value.items()))
    assert fingerprint_of("task", {name: value}) == fingerprint_of("task", {name: backwards})


@given(ARGUMENTS, st.text(min_size=1))
def test_an_argument_without_a_portable_form_counts_by_its_type(
    arguments: dict[str, Any], name: str
) -> None:
    assume(name not in arguments)
    first, left_out = fingerprint_of("task", {**arguments, name: threading.Lock()})
    assert left_out == [name]
    assert first == fingerprint_of("task", {**arguments, name: threading.Lock()})[0]
    assert first != fingerprint_of("task", {**arguments, name: threading.Event()})[0]


def test_fingerprints_are_the_same_in_every_process() -> None:
    program = (
        "from agentq.core.fingerprint import fingerprint_of;"
        "print(fingerprint_of('t', {'set': {'a', 'b', 'c'}, 'map': {'x': 1, 'y': 2}})[0].hex())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1
