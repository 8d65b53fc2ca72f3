"""A BlockingQueue is left open, with jobs running in a thread and on its loop; the program ends."""

import asyncio
import threading

from agentq import BlockingQueue, Job

queue = BlockingQueue()
queue.__enter__()
started = threading.Event()


def stuck() -> None:
    started.set()
    threading.Event().wait()


queue.push(Job("thread", stuck))
queue.push(Job("loop", asyncio.Event().wait))
assert started.wait(10)
print("end of program", flush=True)
