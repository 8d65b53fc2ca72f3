"""The third interrupt comes in the middle of anything, and every line still gets one result."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from agentq import LaneConfig, task
from agentq.cli.batch import Parser
from agentq.cli.board import Board
from agentq.cli.processes import Processes
from agentq.cli.report import FailuresOnly
from agentq.cli.results import Ran, Result, State
from agentq.cli.results_file import ResultsFile
from agentq.cli.run import BatchRun

LINES = 8


@task(name="agentq.program")
async def held(**_: object) -> None:
    """Stand in for a program that does not end."""
    await asyncio.Event().wait()


class AbortedAt(FailuresOnly):
    """A run whose third interrupt comes at one moment of the end of one line."""

    def __init__(self, number: int, moment: str, results: Path) -> None:
        super().__init__()
        self._at = (number, moment)
        self._path = results
        self.left_with: list[int] | None = None
        self.run = BatchRun(
            {"one": LaneConfig(permits=1, capacity=2)},
            max_output=1000,
            processes=Processes(),
            reporter=self,
            board=Board(["high", "normal", "low", "one"]),
            results=Moments(self, results),
        )

    def reach(self, number: int, moment: str) -> None:
        if (number, moment) == self._at:
            self.run._abort(self.leave)

    def leave(self) -> None:
        """Stand in for the end of the process: what comes later does not count."""
        if self.left_with is None:
            lines = self._path.read_text().splitlines()
            self.left_with = sorted(json.loads(line)["line"] for line in lines)

    def result(self, result: Result) -> None:
        self.reach(result.line, "shown")

    def notice(self, text: str) -> None:
        """Not shown."""


class Moments(ResultsFile):
    def __init__(self, aborted: AbortedAt, path: Path) -> None:
        super().__init__(path)
        self._aborted = aborted

    def write(self, result: Result) -> None:
        self._aborted.reach(result.line, "to be written")
        super().write(result)
        self._aborted.reach(result.line, "written")


@pytest.mark.parametrize("moment", ["shown", "to be written", "written"])
@pytest.mark.parametrize("number", range(1, LINES + 1))
def test_every_line_is_recorded_once_wherever_the_third_interrupt_comes(
    tmp_path: Path, number: int, moment: str
) -> None:
    async def interrupted() -> list[int] | None:
        aborted = AbortedAt(number, moment, tmp_path / "results")
        parser = Parser(held, ["one"])
        # The last is a second line for the call that runs.
        calls = [*range(1, LINES), 1]
        lines = [
            parser.parse(i, json.dumps({"argv": [str(call)], "lane": "one"}).encode())
            for i, call in enumerate(calls, 1)
        ]
        running = asyncio.ensure_future(aborted.run.run(lines))
        while aborted.run.board.lanes["one"].running == 0:
            await asyncio.sleep(0)
        aborted.run._interrupt()
        aborted.run._cancel()
        await running
        aborted.run.close()
        return aborted.left_with

    assert asyncio.run(interrupted()) == list(range(1, LINES + 1))


def test_a_results_pipe_that_nobody_reads_does_not_hold_up_the_third_interrupt(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "results"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        results = ResultsFile(pipe)
        results.hurry()
        result = Result(1, "key", "one", "label", State.NOT_RUN, Ran.NO)
        with pytest.raises(BlockingIOError):
            fill(results, result)
        assert results.close() is None
    finally:
        os.close(reader)


def fill(results: ResultsFile, result: Result) -> None:
    while True:
        results.write(result)
