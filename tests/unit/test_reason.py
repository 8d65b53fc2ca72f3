"""How a failure becomes text: type and message, safe to store, at most 10 kB."""

import pytest

from agentq.core.reason import REASON_LIMIT, capped, reason_of


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class ExitingError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class NotTextError(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class TrickyText(str):
    __slots__ = ()

    def __format__(self, spec: str) -> str:
        raise RuntimeError("no")

    def __bool__(self) -> bool:
        raise RuntimeError("no")


class TrickyError(Exception):
    def __str__(self) -> str:
        return TrickyText("tricky")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError(), "ValueError"),
        (ValueError(""), "ValueError"),
        (KeyError("k"), "KeyError: 'k'"),
        (SystemExit(0), "SystemExit: 0"),
        (OSError(2, "gone"), "FileNotFoundError: [Errno 2] gone"),
        (UnprintableError(), "UnprintableError: <no message: its __str__ raised RuntimeError>"),
        (ExitingError(), "ExitingError: <no message: its __str__ raised SystemExit>"),
        (NotTextError(), "NotTextError: <no message: its __str__ raised TypeError>"),
        (TrickyError(), "TrickyError: tricky"),
        (ValueError("a\0b"), "ValueError: a\\x00b"),
        (ValueError("lone \ud800"), "ValueError: lone \\ud800"),
        (ValueError("größe 🦀"), "ValueError: größe 🦀"),
    ],
)
def test_the_reason_is_type_and_message(error: BaseException, reason: str) -> None:
    assert reason_of(error) == reason


def test_the_members_of_a_group_are_named() -> None:
    group = ExceptionGroup("two", [ValueError("a"), ExceptionGroup("in", [KeyError("b")])])
    assert reason_of(group) == (
        "ExceptionGroup: two (2 sub-exceptions): ValueError: a; KeyError: 'b'"
    )


def test_of_a_large_group_the_first_are_named() -> None:
    group = ExceptionGroup("all", [ValueError(number) for number in range(7)])
    assert reason_of(group) == (
        "ExceptionGroup: all (7 sub-exceptions): ValueError: 0; ValueError: 1; ValueError: 2; "
        "ValueError: 3; ValueError: 4; and 2 more"
    )


def test_of_a_group_of_five_all_are_named() -> None:
    group = ExceptionGroup("all", [ValueError(number) for number in range(5)])
    assert reason_of(group).endswith("ValueError: 3; ValueError: 4")


def test_a_deeply_nested_group_is_named_without_recursion() -> None:
    group: Exception = ValueError("leaf")
    for depth in range(3000):
        group = ExceptionGroup(str(depth), [group])
    assert reason_of(group) == "ExceptionGroup: 2999 (1 sub-exception): ValueError: leaf"


@pytest.mark.parametrize("unit", ["x", "é", "🦀", "\0", "\ud800"])
@pytest.mark.parametrize("length", [9_000, 10_000, 5_000_000])
def test_a_long_reason_is_cut_to_ten_thousand_bytes_and_says_so(unit: str, length: int) -> None:
    whole = f"ValueError: {unit * length}"
    stored = whole.replace("\0", "\\x00").encode("utf-8", "backslashreplace")
    reason = reason_of(ValueError(unit * length))
    data = reason.encode()
    if len(stored) <= REASON_LIMIT:
        assert data == stored
        return
    mark = f"… [cut, {len(stored)} bytes in all]"
    assert reason.endswith(mark)
    assert REASON_LIMIT - 4 < len(data) <= REASON_LIMIT
    assert stored.startswith(data.removesuffix(mark.encode()))


def test_exactly_the_limit_is_not_cut() -> None:
    assert REASON_LIMIT == 10_000
    assert capped("x" * 10_000) == "x" * 10_000
    assert capped("x" * 10_001).endswith("… [cut, 10001 bytes in all]")
