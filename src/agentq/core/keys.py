"""What makes a key usable. The rule is the same for every backend."""

from agentq.core.errors import InvalidKey

MAX_KEY_LENGTH = 512


def is_plain_key(key: object) -> bool:
    """Tell quickly whether `key` is usable as it is. False says nothing: ask `checked_key`."""
    return type(key) is str and 0 < len(key) <= MAX_KEY_LENGTH and key.isascii() and "\0" not in key


def checked_key(key: object) -> str:
    """Return `key` as an exact `str`.

    Raises `InvalidKey` unless it is a non-empty `str` of at most 512 characters, encodable as
    UTF-8, without NUL. Nothing is folded or normalised: keys are compared exactly.
    """
    if not isinstance(key, str):
        raise InvalidKey(f"a key must be a str, not {type(key).__name__}")
    text = str.__str__(key)
    if not text:
        raise InvalidKey("a key must not be empty")
    if len(text) > MAX_KEY_LENGTH:
        raise InvalidKey(
            f"a key may have at most {MAX_KEY_LENGTH} characters, this one has {len(text)}: "
            f"{text[:40]!r}…; hash the long part"
        )
    if "\0" in text:
        raise InvalidKey(f"a key must not contain NUL: {text[:80]!r}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidKey(f"a key must be encodable as UTF-8: {text[:80]!r}") from error
    return text
