"""Feeding a batch takes bounded memory: lines ahead, joined lines, results that nobody reads."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from agentq import LaneConfig, task
from agentq.cli import run as run_module
from agentq.cli import writer as writer_module
from agentq.cli.batch import Parser
from agentq.cli.board import Board
from agentq.cli.lines import RawLine, Stream
from agentq.cli.lineup import BYTES_AHEAD, LINES_AHEAD, LineUp
from agentq.cli.processes import Processes
from agentq.cli.report import FailuresOnly
from agentq.cli.results import Result
from agentq.cli.run import BatchRun
from agentq.cli.writer import BACKLOG, Writer

LIMIT_SECONDS = 20


@task(name="agentq.program")
async def held(**_: object) -> None:
    """Stand in for a program that does not end."""
    await asyncio.Event().wait()


class Endless(Stream):
    """A stream that never ends, and counts what is taken of it."""

    def __init__(self, line: Callable[[int], dict[str, Any]]) -> None:
        self.taken = 0
        self._line = line

    async def lines(self) -> AsyncIterator[RawLine]:
        while True:
            self.taken += 1
            yield self.taken, json.dumps(self._line(self.taken)).encode()


class Kept(FailuresOnly):
    def __init__(self) -> None:
        super().__init__()
        self.results: list[Result] = []

    def result(self, result: Result) -> None:
        self.results.append(result)

    def notice(self, text: str) -> None:
        """Not shown."""


async def taken_at_rest(line: Callable[[int], dict[str, Any]]) -> tuple[int, list[Result]]:
    """Feed an endless stream until nothing moves, then stop. How much was taken, and the ends."""
    stream, reporter = Endless(line), Kept()
    batch_run = BatchRun(
        {"one": LaneConfig(permits=1, capacity=1)},
        max_output=1000,
        processes=Processes(),
        reporter=reporter,
        board=Board(["high", "normal", "low", "one"]),
        results=None,
    )
    parser = Parser(held, ["one"])
    running = asyncio.ensure_future(batch_run.run((stream, parser)))
    still, taken = 0, -1
    while still < 100:
        await asyncio.sleep(0)
        still = still + 1 if taken == stream.taken else 0
        taken = stream.taken
    assert not running.done()
    batch_run._cancel()
    await running
    return taken, reporter.results


def test_a_saturated_lane_stops_the_reading_of_a_stream() -> None:
    taken, ended = asyncio.run(taken_at_rest(lambda i: {"argv": ["held", str(i)], "lane": "one"}))
    # One runs, one has a place, one waits for room.
    assert taken == LINES_AHEAD + 3
    assert sorted(result.line for result in ended) == list(range(1, taken + 1))
    assert [result.line for result in ended if result.state != "not_run"] == [1]


def test_joined_lines_without_end_stop_the_reading_of_a_stream() -> None:
    taken, ended = asyncio.run(taken_at_rest(lambda _: {"argv": ["held"], "lane": "one"}))
    assert taken == LINES_AHEAD + run_module.JOINED_AHEAD + 2
    assert sorted(result.line for result in ended) == list(range(1, taken + 1))
    assert {result.reason for result in ended} == {"cancelled"}


def test_a_line_up_is_bounded_by_bytes_too() -> None:
    async def main() -> None:
        lineup = LineUp()
        parser = Parser(held, ["normal"])
        big = json.dumps({"argv": ["x" * (BYTES_AHEAD // 2)]}).encode()
        lineup.add(parser.parse(1, big))
        await lineup.room()
        lineup.add(parser.parse(2, big))
        room = asyncio.ensure_future(lineup.room())
        await asyncio.sleep(0)
        assert not room.done()
        await lineup.take()
        await room

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))


# ── the writer ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        try:
            os.close(descriptor)
        except OSError:
            continue


def read_all(descriptor: int) -> bytes:
    data = b""
    while chunk := os.read(descriptor, 2**20):
        data += chunk
    return data


def test_everything_is_written_in_order(pipe: tuple[int, int]) -> None:
    async def main() -> None:
        writer = Writer(pipe[1])
        reading = asyncio.ensure_future(asyncio.to_thread(read_all, pipe[0]))
        for i in range(20_000):
            writer.put(f"{i}é\n")
            await writer.room()
        await writer.finish()
        os.close(pipe[1])
        assert (await reading).decode() == "".join(f"{i}é\n" for i in range(20_000))
        assert writer.error is None

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))


def test_there_is_no_room_while_nobody_reads(pipe: tuple[int, int]) -> None:
    async def main() -> None:
        writer = Writer(pipe[1])
        writer.put("x" * (BACKLOG - 1))
        await writer.room()
        writer.put("x" * BACKLOG)
        room = asyncio.ensure_future(writer.room())
        await asyncio.sleep(0)
        assert not room.done()
        reading = asyncio.ensure_future(asyncio.to_thread(os.read, pipe[0], 1))
        await reading
        rest = threading.Thread(target=read_all, args=(pipe[0],), daemon=True)
        rest.start()
        await room
        await writer.finish()
        os.close(pipe[1])
        await asyncio.to_thread(rest.join)

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))


def test_a_hurry_ends_every_wait(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "LAST_SECONDS", 0.05)

    async def main() -> None:
        writer = Writer(pipe[1])
        writer.put("x" * 3 * BACKLOG)
        room = asyncio.ensure_future(writer.room())
        await asyncio.sleep(0)
        assert not room.done()
        writer.hurry()
        await room
        await writer.finish()
        os.close(pipe[0])

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))


def test_a_reader_that_is_gone_ends_writing_quietly(pipe: tuple[int, int]) -> None:
    async def main() -> None:
        writer = Writer(pipe[1])
        os.close(pipe[0])
        for _ in range(3):
            writer.put("x" * BACKLOG)
            await writer.room()
        await writer.finish()
        assert writer.error is None

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))


def test_another_error_is_kept() -> None:
    async def main() -> None:
        unwritable = os.open("/", os.O_RDONLY)
        writer = Writer(unwritable)
        writer.put("x")
        await writer.finish()
        os.close(unwritable)
        assert writer.error is not None
        assert writer.error.strerror == "Bad file descriptor"

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))


def test_a_descriptor_that_does_not_block_is_waited_for(pipe: tuple[int, int]) -> None:
    async def main() -> None:
        os.set_blocking(pipe[1], False)
        writer = Writer(pipe[1])
        writer.put("x" * 10 * BACKLOG)
        reading = asyncio.ensure_future(asyncio.to_thread(read_all, pipe[0]))
        await writer.finish()
        os.close(pipe[1])
        assert len(await reading) == 10 * BACKLOG

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))


def test_what_an_encoding_does_not_have_is_escaped(pipe: tuple[int, int]) -> None:
    async def main() -> None:
        writer = Writer(pipe[1], "ascii")
        writer.put("é\ud800\n")
        await writer.finish()
        assert os.read(pipe[0], 100) == b"\\xe9\\ud800\n"

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))
