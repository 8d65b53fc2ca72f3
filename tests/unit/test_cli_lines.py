"""Bytes are cut into numbered lines, however they come."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from agentq.cli.lines import LineCutter, RawLine

LIMIT = 8


def cut(chunks: list[bytes]) -> list[RawLine]:
    cutter = LineCutter(LIMIT)
    lines = [line for chunk in chunks for line in cutter.feed(chunk)]
    return lines + list(cutter.finish())


def model(data: bytes) -> list[RawLine]:
    """The same, for one who has everything at once."""
    lines: list[RawLine] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if len(line) > LIMIT:
            lines.append((number, None))
            continue
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if text.strip(b" \t\r"):
            lines.append((number, text.strip(b" \t\r")))
    return lines


pieces = st.sampled_from([b"a", b"{}", b"\n", b"\r\n", b" ", b"\t", b"\xef\xbb\xbf", b"1234567"])


@given(st.lists(pieces, max_size=30), st.data())
def test_lines_do_not_depend_on_how_they_come(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    points = data.draw(st.lists(st.integers(0, len(whole)), max_size=8).map(sorted))
    bounds = [0, *points, len(whole)]
    chunks = [whole[start:end] for start, end in itertools.pairwise(bounds)]
    assert cut(chunks) == model(whole)


def test_numbers_count_blank_lines() -> None:
    assert cut([b"\n\n  \na\n"]) == [(4, b"a")]


def test_a_byte_order_mark_is_taken_off_the_first_line_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert cut([mark + b"a\n" + mark + b"b"]) == [(1, b"a"), (2, mark + b"b")]
    assert cut([mark]) == []


def test_a_line_that_is_too_long_is_told_and_dropped() -> None:
    assert cut([b"12345678\n123456789\nx"]) == [(1, b"12345678"), (2, None), (3, b"x")]
    assert cut([b"1234", b"56789", b"0" * 100]) == [(1, None)]
