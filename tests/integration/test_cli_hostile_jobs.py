"""`agentq run`: jobs that reach for the event loop of the batch."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import Bench, Json, end_of

BROKEN_OFF = "agentq: a job has cancelled the tasks of the batch, so it ends here\n"

CALLS = """
import asyncio
import time
from pathlib import Path

async def stop_the_loop(times):
    for _ in range(times):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
    return "went on"

async def stop_while_cancelled():
    async def remain():
        try:
            await asyncio.sleep(600)
        finally:
            asyncio.get_running_loop().stop()
            await asyncio.sleep(0)
    stop_while_cancelled.task = asyncio.create_task(remain())
    await asyncio.sleep(0)
    return "left a task"

async def exit_from_a_task():
    async def leave():
        raise SystemExit(3)
    task = asyncio.create_task(leave())
    await asyncio.wait([task])
    return repr(task.exception())

async def cancel_all(started):
    await asyncio.to_thread(Path(started).read_text)
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(600)

def sleep_in_a_thread():
    time.sleep(600)

async def break_the_loop(started):
    await asyncio.to_thread(Path(started).read_text)
    loop = asyncio.get_running_loop()
    def broken():
        raise MemoryError("broken")
    loop._run_once = broken
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path) as bench:
        bench.module(CALLS)
        yield bench


def test_a_job_that_stops_the_loop_changes_nothing(bench: Bench) -> None:
    lines: list[Json] = [
        {"task": "calls:stop_the_loop", "args": [5]},
        {"task": "calls:stop_while_cancelled"},
        {"task": "calls:exit_from_a_task"},
        {"shell": "echo out"},
    ]
    ended = bench.run_batch(lines)
    assert (ended.status, ended.stderr) == (0, "")
    assert [r["output"] for r in ended.results] == [
        "went on",
        "left a task",
        "SystemExit(3)",
        "out\n",
    ]


def endless(bench: Bench, call: str) -> tuple[list[Json], int]:
    """Lines whose first runs until it is killed, and whose second does `call` to the loop.

    The descriptor reads from a pipe that the first, and what it started, keep open.
    """
    started, alive = bench.pipe("started"), bench.pipe("alive")
    reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    script = f"exec 9> {alive}; trap '' TERM; echo > {started}; (sleep 600) & wait"
    lines: list[Json] = [
        {"key": "program", "shell": script},
        {"task": f"calls:{call}", "args": [str(started)]},
        {"task": "calls:sleep_in_a_thread"},
        {"key": "program", "shell": script},
    ]
    held: Json = {"key": "held", "shell": "exec sleep 600", "lane": "one"}
    lines += [held, {**held, "key": "never"}]
    return lines, reader


def test_a_job_that_cancels_every_task_ends_the_batch_and_its_programs(bench: Bench) -> None:
    lines, alive = endless(bench, "cancel_all")
    results = ("--results", str(bench.results_file))
    ended = bench.run_batch(lines, "--lane", "one=1", *results)
    assert os.read(alive, 1) == b""
    os.close(alive)
    assert (ended.status, ended.stderr) == (1, BROKEN_OFF)
    assert ended.results == bench.results()
    assert [r["line"] for r in ended.results] == list(range(1, len(lines) + 1))
    assert {r["state"] for r in ended.results} <= {"lost", "failed", "not_run"}
    assert [(r["ran"], r["attempts"]) for r in ended.results[:4]] == [
        ("ran", 1),
        ("ran", 1),
        ("ran", 1),
        ("joined", 0),
    ]


def test_an_error_of_the_loop_itself_leaves_no_program_behind(bench: Bench) -> None:
    lines, alive = endless(bench, "break_the_loop")
    process = bench.start("run", str(bench.write(lines[:2])), "--json")
    ended = end_of(process)
    assert os.read(alive, 1) == b""
    os.close(alive)
    assert ended.status == 1
    assert "\nMemoryError: broken\n" in ended.stderr
