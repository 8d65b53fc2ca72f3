"""Text from jobs cannot act on a terminal."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.cli.escape import clipped, in_json, visible

ACTING_CATEGORIES = {"Cc", "Cs", "Zl", "Zp"}
ACTING = "\u061c\u200b\u200e\u200f\u202a\u202e\u2060\u2066\u2069\ufeff\ufff9\U000e0001\U000e007f"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, é 漢字 🙂 [red]", "plain text, é 漢字 🙂 [red]"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x1b[2J\x07\0\x7f\x9b", r"\x1b[2J\x07\x00\x7f\x9b"),
        ("\u202eabc\u2069", r"\u202eabc\u2069"),
        ("\ud800\U000e0041", r"\ud800\U000e0041"),
        ("👩\u200d👧", "👩\u200d👧"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def acts(character: str) -> bool:
    return unicodedata.category(character) in ACTING_CATEGORIES or character in ACTING


@given(st.text(st.characters() | st.sampled_from(ACTING)))
def test_nothing_that_is_visible_acts(text: str) -> None:
    assert not any(acts(character) for character in visible(text))


def test_every_character_that_acts_is_written_out() -> None:
    everything = map(chr, range(0x110000))
    assert [hex(ord(c)) for c in everything if acts(c) and visible(c) == c] == []


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(ACTING)))
def test_json_is_escaped_and_means_the_same(text: str) -> None:
    written = in_json(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(written) == {"a": text}
    assert not any(acts(character) for character in written)
    assert written.encode()


def test_half_a_surrogate_pair_is_escaped_in_json() -> None:
    assert in_json(json.dumps("\ud800", ensure_ascii=False)) == '"\\ud800"'


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("12345", 5, "12345"),
        ("123456", 5, "1234…"),
        ("\x1b\x1b", 8, r"\x1b\x1b"),
        ("\x1b\x1b", 7, r"\x1b\x…"),
        ("x" * 10_000_000, 3, "xx…"),
    ],
)
def test_clipped(text: str, width: int, shown: str) -> None:
    assert clipped(text, width) == shown
