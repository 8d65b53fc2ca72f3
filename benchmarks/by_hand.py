"""The baseline: what one would write by hand to run at most N coroutines at a time and wait.

No keys, no cancel safety, no guard: a task, a semaphore and a future a job.
"""

import asyncio
from collections.abc import Awaitable, Callable


def hand_made(
    func: Callable[[], Awaitable[int]], permits: int
) -> Callable[[str], asyncio.Future[int]]:
    loop = asyncio.get_running_loop()
    semaphore = asyncio.Semaphore(permits)
    tasks: set[asyncio.Task[None]] = set()

    async def run(future: asyncio.Future[int]) -> None:
        async with semaphore:
            try:
                result = await func()
            except BaseException as error:
                future.set_exception(error)
                return
            future.set_result(result)

    def submit(_key: str) -> asyncio.Future[int]:
        future: asyncio.Future[int] = loop.create_future()
        task = asyncio.create_task(run(future))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return future

    return submit
