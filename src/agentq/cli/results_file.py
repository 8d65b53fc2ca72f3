"""The file that `--results` names."""

import os
from pathlib import Path

from agentq.cli.results import Result


class ResultsFile:
    """Gets one line of JSON per result, each as one write, so that it is whole at any moment.

    Opening it empties the file. Raises `OSError` when it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)

    def write(self, result: Result) -> None:
        """Write one result. Raises `OSError` when the system refuses."""
        data = memoryview(f"{result.to_json()}\n".encode())
        while data:
            data = data[os.write(self._descriptor, data) :]

    def hurry(self) -> None:
        """Wait no longer for a reader, should the file be a pipe: then writing fails instead."""
        os.set_blocking(self._descriptor, False)

    def close(self) -> str | None:
        """Close the file. Returns what is wrong when the system did not keep all of it."""
        try:
            os.close(self._descriptor)
        except OSError as error:
            return f"results may be incomplete: {error.strerror}"
        return None
