"""A short digest of a task and its arguments: tells whether two calls are the same call.

Arguments are compared by what they would look like in a message: a tuple and a list, or an enum
member and its value, are the same argument.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec


def _plain(value: Any) -> Any:
    """Give what msgspec cannot encode by itself a portable form, or raise `TypeError`."""
    if hasattr(type(value), "__fspath__"):
        return type(value).__fspath__(value)
    if isinstance(value, complex):
        return (value.real, value.imag)
    raise TypeError(f"no portable form: {type(value).__name__}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic", decimal_format="string")


def fingerprint_of(name: str, arguments: Mapping[str, Any]) -> tuple[bytes, list[str]]:
    """Return a 16-byte digest of a task's name and arguments, and what it does not cover.

    What has no portable form (a socket, a lock) counts by its type alone, also inside a list, a
    dict or a dataclass; the second value names the parameters for which that is so.
    """
    left_out = []
    digest = hashlib.blake2b(_encoder.encode(name), digest_size=16)
    for parameter, value in arguments.items():
        parts = _Parts()
        _add(digest, parameter.encode("utf-8", "surrogatepass"), parts.encoded(value))
        if parts.left_out:
            left_out.append(parameter)
    return digest.digest(), left_out


class _Parts:
    """Encodes one argument, part by part where it cannot be encoded as a whole."""

    def __init__(self) -> None:
        self.left_out = False
        self._depth = 0

    def encoded(self, value: Any) -> bytes:
        try:
            return _encoder.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            pass
        self._depth += 1
        try:
            kind, parts = self._taken_apart(value)
        finally:
            self._depth -= 1
        digest = hashlib.blake2b(digest_size=16)
        _add(digest, kind.encode("utf-8", "surrogatepass"), *parts)
        return digest.digest()

    def _taken_apart(self, value: Any) -> tuple[str, list[bytes]]:
        """What msgspec refuses because of a part: big numbers, lone surrogates, odd keys, locks."""
        if isinstance(value, int):
            return "int", [value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)]
        if isinstance(value, str):
            return "str", [value.encode("utf-8", "surrogatepass")]
        if self._depth <= _DEEPEST:
            if isinstance(value, Mapping):
                items = sorted((self.encoded(key), self.encoded(value[key])) for key in value)
                return "map", [part for item in items for part in item]
            if isinstance(value, AbstractSet):
                return "set", sorted(self.encoded(item) for item in value)
            if isinstance(value, list | tuple):
                return "list", [self.encoded(item) for item in value]
            if dataclasses.is_dataclass(value) and not isinstance(value, type):
                names = [field.name for field in dataclasses.fields(value)]
                return "map", [
                    part
                    for name in names
                    for part in (name.encode(), self.encoded(getattr(value, name)))
                ]
        self.left_out = True
        return f"{type(value).__module__}.{type(value).__qualname__}", []


_DEEPEST = 100


def _add(digest: "hashlib.blake2b", *parts: bytes) -> None:
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
