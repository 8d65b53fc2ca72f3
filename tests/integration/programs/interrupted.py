"""A program that waits for a job when Ctrl-C comes. It says when, and what it then knows."""

import asyncio
import sys
import threading

from agentq import BlockingQueue, Job, JobLost, Queue, Queued

started = threading.Event()


async def on_loop() -> None:
    started.set()
    await asyncio.Event().wait()


def in_thread() -> None:
    started.set()
    threading.Event().wait()


job = Job("k", on_loop if sys.argv[2] == "loop" else in_thread)


async def with_a_queue() -> None:
    queue = Queue()
    try:
        async with queue:
            accepted = await queue.push(job)
            assert isinstance(accepted, Queued)
            assert await asyncio.to_thread(started.wait, 10)
            print("ready", flush=True)
            await accepted.handle
    except asyncio.CancelledError:
        print(queue.state("k"), flush=True)
        raise


def with_a_blocking_queue() -> None:
    queue = BlockingQueue()
    handles = []
    try:
        with queue:
            accepted = queue.push(job)
            assert isinstance(accepted, Queued)
            handles.append(accepted.handle)
            assert started.wait(10)
            print("ready", flush=True)
            accepted.handle.outcome()
    except KeyboardInterrupt:
        print(queue.state("k"), flush=True)
        try:
            handles[0].outcome()
        except JobLost:
            print("JobLost", flush=True)
        raise


if sys.argv[1] == "queue":
    asyncio.run(with_a_queue())
else:
    with_a_blocking_queue()
