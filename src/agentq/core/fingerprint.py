"""A short digest of a task and its arguments: tells whether two calls are the same call."""

import hashlib
from typing import Any

import msgspec

_encoder = msgspec.msgpack.Encoder(order="deterministic", decimal_format="string")


def fingerprint_of(name: str, arguments: dict[str, Any]) -> tuple[bytes, bool]:
    """Return a 16-byte digest of a task's name and arguments, and whether it covers all of them.

    An argument that has no portable form (a socket, a lock) counts by its type alone; then the
    second value is `False`.
    """
    complete = True
    digest = hashlib.blake2b(_encoder.encode(name), digest_size=16)
    for parameter, value in arguments.items():
        try:
            data = _encoder.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            complete = False
            data = f"{type(value).__module__}.{type(value).__qualname__}".encode()
        for part in (parameter.encode("utf-8", "surrogatepass"), data):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.digest(), complete
