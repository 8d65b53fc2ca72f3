"""A short digest of a task and its arguments: tells whether two calls are the same call.

Arguments are compared by what they would look like in a message: a tuple and a list, or an enum
member and its value, are the same argument.
"""

import hashlib
from collections.abc import Iterable, Mapping
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

    An argument that has no portable form (a socket, a lock) counts by its type alone; the second
    value names the parameters for which that is so.
    """
    left_out = []
    digest = hashlib.blake2b(_encoder.encode(name), digest_size=16)
    for parameter, value in arguments.items():
        try:
            data = _encoded(value)
        except (TypeError, RecursionError):
            left_out.append(parameter)
            data = f"{type(value).__module__}.{type(value).__qualname__}".encode()
        _add(digest, parameter.encode("utf-8", "surrogatepass"), data)
    return digest.digest(), left_out


def _encoded(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError):
        return _encoded_by_parts(value)


def _encoded_by_parts(value: Any) -> bytes:
    """Encode what msgspec refuses because of a part: big numbers, lone surrogates, odd keys."""
    kind: bytes
    parts: Iterable[bytes]
    if isinstance(value, int):
        kind, parts = b"int", [value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)]
    elif isinstance(value, str):
        kind, parts = b"str", [value.encode("utf-8", "surrogatepass")]
    elif isinstance(value, Mapping):
        items = ((_encoded(key), _encoded(item)) for key, item in value.items())
        kind, parts = b"map", (part for pair in sorted(items) for part in pair)
    elif isinstance(value, AbstractSet):
        kind, parts = b"set", sorted(_encoded(item) for item in value)
    elif isinstance(value, list | tuple):
        kind, parts = b"list", [_encoded(item) for item in value]
    else:
        raise TypeError(f"no portable form: {type(value).__name__}")
    digest = hashlib.blake2b(digest_size=16)
    _add(digest, kind, *parts)
    return digest.digest()


def _add(digest: "hashlib.blake2b", *parts: bytes) -> None:
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
