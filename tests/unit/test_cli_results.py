"""The form in which outputs and results are given out."""

import dataclasses
import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.cli.programs import Head, Tail
from agentq.cli.results import Ran, Result, Shown, State, shown
from agentq.cli.spool import IN_MEMORY, Spool


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Hostile:
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __repr__(self) -> str:
        raise self._error


@dataclasses.dataclass
class HostileField:
    x: int = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "x":
            raise SystemExit("no x")
        return super().__getattribute__(name)

    def __repr__(self) -> str:
        return "<hostile>"


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("text", Shown("text", "text")),
        (None, Shown(None, "json")),
        (True, Shown(True, "json")),
        (3, Shown(3, "json")),
        ({"a": [1.5, None]}, Shown({"a": [1.5, None]}, "json")),
        ((1, 2), Shown((1, 2), "json")),
        ({1: 2}, Shown({"1": 2}, "json")),
        (Point(1, 2), Shown({"x": 1, "y": 2}, "json")),
        (datetime.date(2024, 2, 1), Shown("2024-02-01", "json")),
        (Decimal("1.50"), Shown("1.50", "json")),
        (10**30, Shown(10**30, "json")),
        (math.nan, Shown("nan", "repr")),
        ([math.inf], Shown("[inf]", "repr")),
        (b"\xff", Shown(r"b'\xff'", "repr")),
        ({"a": b"x"}, Shown("{'a': b'x'}", "repr")),
        (object, Shown("<class 'object'>", "repr")),
        (CYCLE, Shown("[[...]]", "repr")),
        (Hostile(RuntimeError()), Shown("<Hostile: its __repr__ raised RuntimeError>", "repr")),
        (Hostile(SystemExit()), Shown("<Hostile: its __repr__ raised SystemExit>", "repr")),
        (
            Hostile(KeyboardInterrupt()),
            Shown("<Hostile: its __repr__ raised KeyboardInterrupt>", "repr"),
        ),
        (HostileField(), Shown("<hostile>", "repr")),
    ],
)
def test_shown(output: object, expected: Shown) -> None:
    assert shown(output, 1000) == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("12345", Shown("12345", "text")),
        ("123456", Shown("12345", "text", 6)),
        ("1234é", Shown("1234", "text", 6)),
        ([10, 20], Shown("[10, ", "json", 8)),
        (b"12345", Shown("b'123", "repr", 8)),
    ],
)
def test_outputs_are_cut_and_say_so(output: object, expected: Shown) -> None:
    assert shown(output, 5) == expected


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(json_values)
def test_what_has_a_json_form_comes_back_equal(value: Any) -> None:
    result = Result(1, "k", "l", "k", State.COMPLETED, Ran.RAN, output=shown(value, 10**9))
    record = json.loads(result.to_json())
    assert record["output"] == value
    assert "output_form" not in record


def test_a_result_as_json() -> None:
    cut = Shown("[1", "json", 10)
    result = Result(
        7, "k", "l", "label", State.COMPLETED, Ran.RAN, seconds=1 / 3, attempts=2, output=cut
    )
    assert json.loads(result.to_json()) == {
        "line": 7,
        "key": "k",
        "lane": "l",
        "state": "completed",
        "output": "[1",
        "output_cut": True,
        "output_bytes": 10,
        "ran": "ran",
        "seconds": 0.333333,
        "attempts": 2,
    }


def test_a_result_is_one_line_of_utf_8_whatever_is_in_it() -> None:
    nasty = "\n\r\u2028\x85\ud800\x1b\x7f"
    line = Result(1, "k", "l", "k", State.FAILED, Ran.NO, reason=nasty).to_json()
    assert line.encode().decode().splitlines() == [line]
    assert json.loads(line)["reason"] == nasty


@pytest.mark.parametrize(
    ("output", "width", "detail"),
    [
        (Shown(" text\nmore \n", "text"), 50, r"text\nmore"),
        (Shown({"a": 1}, "json"), 50, '{"a": 1}'),
        (Shown(None, "json"), 50, ""),
        (Shown("x" * 60, "text"), 10, "xxxxxxxxx…"),
        (Shown("x" * 60, "text", 99), 30, "xxxxxxxxxxxxx… [cut, 99 bytes]"),
    ],
)
def test_detail(output: Shown, width: int, detail: str) -> None:
    result = Result(1, "k", "l", "k", State.COMPLETED, Ran.RAN, output=output)
    assert result.detail(width) == detail


# ── what is kept of a program's output ───────────────────────────────────────────────────────


@given(st.lists(st.binary(max_size=20)), st.integers(0, 40))
def test_the_head_keeps_the_first_bytes(chunks: list[bytes], limit: int) -> None:
    head, whole = Head(limit), b"".join(chunks)
    for chunk in chunks:
        head.take(chunk)
    output = head.output(Spool())
    assert output.written == len(whole)
    assert output.cut is (len(whole) > limit)
    kept = output.kept.read()
    assert whole.startswith(kept)
    if output.cut:
        assert len(kept) >= limit - 3
    else:
        assert kept == whole


@given(st.text(), st.integers(0, 20))
def test_a_character_is_not_split(text: str, limit: int) -> None:
    head = Head(limit)
    head.take(text.encode())
    assert text.startswith(head.output(Spool()).text())


@given(st.lists(st.text("abc.")), st.integers(1, 40))
def test_the_tail_keeps_the_last_bytes(chunks: list[str], limit: int) -> None:
    tail, whole = Tail(limit), "".join(chunks)
    for chunk in chunks:
        tail.take(chunk.encode())
    assert tail.text() == (whole if len(whole) <= limit else f"… {whole[-limit:]}")


def test_the_spool_gives_back_what_it_keeps() -> None:
    spool = Spool()
    pieces = [bytes([i]) * size for i, size in enumerate((0, 1, IN_MEMORY, IN_MEMORY + 1, 10**6))]
    kept = [spool.keep(piece) for piece in [*pieces, *pieces]]
    assert [one.read() for one in kept] == [*pieces, *pieces]
    spool.close()
    assert kept[2].read() == pieces[2]
    with pytest.raises(OSError, match="Bad file descriptor"):
        kept[3].read()


def test_an_output_that_cannot_be_read_back_is_told() -> None:
    spool, head = Spool(), Head(10**6)
    head.take(b"x" * 10_000)
    output = head.output(spool)
    spool.close()
    assert shown(output, 10) == Shown("<output unreadable: Bad file descriptor>", "repr", 10_000)


def test_a_disk_that_is_full_costs_memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    spool = Spool()
    assert spool.keep(b"x" * 10_000).read() == b"x" * 10_000
    spool.close()
