"""Reads a batch from a file, whole, before anything of it runs."""

from __future__ import annotations

from pathlib import Path

from agentq.cli.batch import BadLine, Line, Parser
from agentq.cli.lines import lines_of

ERRORS_SHOWN = 20


class BadBatch(Exception):
    """The batch cannot run.

    Attributes:
        problems: what is wrong, one line of text each; not all of them when there are many.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def load(path: Path, parser: Parser) -> list[Line]:
    """Read and check every line of the file. Raises `BadBatch`."""
    lines: list[Line] = []
    problems: list[str] = []
    bad = 0
    try:
        with path.open("rb") as file:
            for number, raw in lines_of(file):
                try:
                    lines.append(parser.parse(number, raw))
                except BadLine as error:
                    bad += 1
                    if bad <= ERRORS_SHOWN:
                        problems.append(str(error))
    except OSError as error:
        raise BadBatch([f"cannot read {str(path)!r}: {error.strerror}"]) from None
    except ValueError as error:  # a NUL in the name
        raise BadBatch([f"cannot read {str(path)!r}: {error}"]) from None
    if bad > ERRORS_SHOWN:
        problems.append(f"and {bad - ERRORS_SHOWN} more bad lines")
    if problems:
        problems.append("nothing was run")
        raise BadBatch(problems)
    return lines
