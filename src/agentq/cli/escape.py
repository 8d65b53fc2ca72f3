"""Makes text from jobs harmless on a terminal: what would act there is shown instead."""

import re

# C0, DEL and C1; marks and overrides that turn text around; line and paragraph separators;
# other invisible format characters and tags; surrogates, which no encoding takes.
_ACTING = (
    "\\x00-\\x1f\\x7f-\\x9f\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f"
    "\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff\\U000e0000-\\U000e007f"
)
_ACTS = re.compile(f"[{_ACTING}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """Return `text` as one line in which every character that would act is written out."""
    return _ACTS.sub(_written_out, text)


def clipped(text: str, width: int) -> str:
    """Return the first `width` characters of `visible(text)`, and say when there is more."""
    shown = visible(text[: width + 1])
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def in_json(text: str) -> str:
    """Return JSON text, which may hold such characters inside its strings, with them escaped."""
    return _ACTS.sub(_json_escape, text)


def _written_out(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
