"""A synchronous job is stuck in a call that ignores everything; the queue is closed after 1 s."""

import asyncio
import socket
import sys
import time

from agentq import BlockingQueue, Job, JobLost, Queue, Queued

ours, theirs = socket.socketpair()


def stuck() -> bytes:
    print("stuck", flush=True)
    return ours.recv(1)


async def with_a_queue() -> None:
    queue = Queue()
    await queue.__aenter__()
    accepted = await queue.push(Job("k", stuck))
    assert isinstance(accepted, Queued)
    while not queue.stats()["normal"].running:
        await asyncio.sleep(0)
    await queue.drain(timeout=1)
    try:
        await accepted.handle
    except JobLost as error:
        print(error.reason, flush=True)
    print(queue.state("k"), flush=True)


def with_a_blocking_queue() -> None:
    queue = BlockingQueue()
    queue.__enter__()
    accepted = queue.push(Job("k", stuck))
    assert isinstance(accepted, Queued)
    queue.drain(timeout=1)
    queue.close()
    try:
        accepted.handle.result()
    except JobLost as error:
        print(error.reason, flush=True)
    print(queue.state("k"), flush=True)


started = time.monotonic()
if sys.argv[1] == "queue":
    asyncio.run(with_a_queue())
else:
    with_a_blocking_queue()
print("closed" if time.monotonic() - started < 3 else "late", flush=True)
