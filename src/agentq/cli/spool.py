"""Keeps the outputs of programs out of memory, since every one is kept until the batch ends."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import IO

IN_MEMORY = 4096
"""Outputs up to this many bytes are kept in memory."""


class Spool:
    """A temporary file without a name, made when it is first needed."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._end = 0

    def keep(self, data: bytes) -> Kept:
        """Keep `data`: in the file, or in memory when it is small or the file takes no more."""
        if len(data) <= IN_MEMORY:
            return Kept(data, len(data))
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (see close)
            written = 0
            while written < len(data):
                chunk = memoryview(data)[written:]
                written += os.pwrite(self._file.fileno(), chunk, self._end + written)
        except OSError:
            return Kept(data, len(data))
        kept = Kept(None, len(data), self._file.fileno(), self._end)
        self._end += len(data)
        return kept

    def close(self) -> None:
        """Forget everything that was kept in the file."""
        if self._file is not None:
            self._file.close()


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes that a `Spool` keeps."""

    _data: bytes | None
    _length: int
    _descriptor: int = -1
    _offset: int = 0

    def read(self) -> bytes:
        """The bytes. Raises `OSError` when the file cannot be read."""
        if self._data is not None:
            return self._data
        parts: list[bytes] = []
        offset, left = self._offset, self._length
        while left and (part := os.pread(self._descriptor, left, offset)):
            parts.append(part)
            offset += len(part)
            left -= len(part)
        return b"".join(parts)
