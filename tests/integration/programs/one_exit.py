"""Two waiters join a job that leaves in the way named on the command line; then a normal job."""

import asyncio
import sys
from collections.abc import Callable

from agentq import Job, JobFailed, LaneConfig, Queue


class OddError(BaseException):
    """A base exception nobody knows."""


EXITS: dict[str, Callable[[], BaseException]] = {
    "exit-0": lambda: SystemExit(0),
    "exit-text": lambda: SystemExit("text"),
    "interrupt": lambda: KeyboardInterrupt(),
    "odd": lambda: OddError("odd"),
    "generator-exit": lambda: GeneratorExit(),
    "cancelled": lambda: asyncio.CancelledError(),
}


async def main(exit_name: str, kind: str) -> None:
    async def on_loop() -> None:
        await asyncio.sleep(0)
        error = EXITS[exit_name]()
        raise error

    def in_thread() -> None:
        error = EXITS[exit_name]()
        raise error

    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        job = Job("k", on_loop if kind == "loop" else in_thread)

        async def waiter() -> None:
            try:
                await queue.push_and_wait(job)
            except JobFailed as error:
                print(error.reason)

        waiters = [asyncio.create_task(waiter()) for _ in range(2)]
        try:
            await asyncio.gather(*waiters)
        except asyncio.CancelledError:
            print("recorded", queue.state("k"))  # an interrupt: the program is being ended
            raise

        async def normal() -> str:
            return "normal"

        print(await queue.push_and_wait(Job("normal", normal)))
        stats = queue.stats()["normal"]
        print("free", stats.permits - stats.running)


asyncio.run(main(*sys.argv[1:]))
