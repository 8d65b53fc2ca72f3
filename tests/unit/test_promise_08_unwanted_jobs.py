"""Promise 8: a lent permit is only for what some job waits for, whatever has happened before."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from gates import Gate, handle_of, turns, value

from agentq import Job, JobFailed, LaneConfig, Pending, Queue

TIGHT = LaneConfig(capacity=1, permits=1)


async def nothing(queue: Queue) -> None:
    return


async def a_job_pushed_without_room(queue: Queue) -> None:
    async def parent() -> None:
        for number in range(5):
            await queue.push(Job(f"child {number}", value))

    await queue.push_and_wait(Job("first", parent))
    await queue.push_and_wait(Job("child 4", value))


async def a_job_gave_up_its_push_without_room(queue: Queue) -> None:
    ready, busy = Gate(), Gate()

    async def parent() -> None:
        await ready()
        waits = asyncio.ensure_future(queue.push_and_wait(Job("busy", busy)))
        await busy.started.wait()  # on the permit lent by that wait
        push = asyncio.ensure_future(queue.push(Job("given up", value)))
        await turns(2)
        assert queue.state("given up") == Pending()
        push.cancel()
        await asyncio.wait((push,))
        assert queue.state("given up") is None
        busy.opened.set()
        await waits

    first = await handle_of(queue, Job("first", parent))
    await ready.started.wait()
    await queue.push(Job("busy", busy))
    ready.opened.set()
    await busy.started.wait()
    await queue.push(Job("takes the place", value))
    await first
    await queue.push_and_wait(Job("takes the place", value))


async def a_job_left_a_push_behind_in_the_line(queue: Queue) -> None:
    left: list[asyncio.Task[Any]] = []
    ready, blocker = Gate(), Gate()

    async def leaves_a_push() -> None:
        await ready()
        left.append(asyncio.create_task(queue.push(Job("left behind", value))))
        await blocker.started.wait()  # on the permit that the push without room lends

    leaves = await handle_of(queue, Job("leaves", leaves_a_push))
    await ready.started.wait()
    await queue.push(Job("blocker", blocker))
    ahead = asyncio.create_task(queue.push(Job("ahead in the line", value)))
    await turns(2)
    ready.opened.set()
    await leaves
    await ahead
    assert queue.state("left behind") == Pending()
    assert not left[0].done()
    blocker.opened.set()
    await left[0]
    await queue.push_and_wait(Job("left behind", value))


async def in_the_line(queue: Queue, then: Callable[[asyncio.Task[Any]], Awaitable[None]]) -> None:
    """A job waits for a key in the line, while another has the only permit; then something."""
    ready, busy = Gate(), Gate()

    async def parent() -> None:
        await ready()
        waits = asyncio.ensure_future(queue.push_and_wait(Job("busy", busy)))
        await busy.started.wait()  # on the permit lent by that wait
        wants = asyncio.ensure_future(queue.push_and_wait(Job("in line", value)))
        await turns(2)
        assert queue.state("in line") == Pending()
        await then(wants)
        busy.opened.set()
        await asyncio.wait((waits, wants))

    first = await handle_of(queue, Job("first", parent))
    await ready.started.wait()
    await queue.push(Job("busy", busy))
    pushes = [
        asyncio.create_task(queue.push(Job(key, value))) for key in ("takes the place", "in line")
    ]
    await turns(2)
    ready.opened.set()
    await first
    await asyncio.wait(pushes)
    await queue.push_and_wait(Job("last", value))


async def a_job_wanted_a_key_in_the_line(queue: Queue) -> None:
    async def go_on(wants: asyncio.Task[Any]) -> None:
        return

    await in_the_line(queue, go_on)


async def a_job_gave_up_wanting_a_key_in_the_line(queue: Queue) -> None:
    async def give_up(wants: asyncio.Task[Any]) -> None:
        wants.cancel()
        await asyncio.wait((wants,))

    await in_the_line(queue, give_up)


async def a_wanted_key_in_the_line_was_cancelled(queue: Queue) -> None:
    async def cancel(wants: asyncio.Task[Any]) -> None:
        assert queue.cancel("in line") is True
        with pytest.raises(JobFailed, match="cancelled"):
            await wants

    await in_the_line(queue, cancel)


@pytest.mark.parametrize(
    "history",
    [
        nothing,
        a_job_pushed_without_room,
        a_job_gave_up_its_push_without_room,
        a_job_left_a_push_behind_in_the_line,
        a_job_wanted_a_key_in_the_line,
        a_job_gave_up_wanting_a_key_in_the_line,
        a_wanted_key_in_the_line_was_cancelled,
    ],
)
async def test_a_lent_permit_runs_no_job_that_nobody_waits_for(
    history: Callable[[Queue], Awaitable[None]],
) -> None:
    child, unrelated = Gate(), Gate()

    async def parent() -> None:
        await queue.push_and_wait(Job("child", child, lane="other"))

    async with Queue({"normal": TIGHT, "other": TIGHT}) as queue:
        await history(queue)
        await queue.push(Job("parent", parent))
        await queue.push(Job("unrelated", unrelated))
        await child.started.wait()
        await turns(5)
        assert unrelated.runs == 0
        stats = queue.stats()["normal"]
        assert (stats.running, stats.lending, stats.waiting) == (0, 1, 1)
        child.opened.set()
        await unrelated.started.wait()
        unrelated.opened.set()


async def test_a_job_that_is_no_longer_waited_for_is_unwanted_again() -> None:
    here, there, unwanted = Gate(), Gate(), Gate()

    async def parent() -> None:
        waits = [
            asyncio.ensure_future(queue.push_and_wait(Job("here", here))),
            asyncio.ensure_future(queue.push_and_wait(Job("there", there, lane="other"))),
        ]
        await here.started.wait()
        await there.started.wait()
        wants = asyncio.ensure_future(queue.push_and_wait(Job("unwanted", unwanted)))
        await turns(2)
        wants.cancel()
        await asyncio.wait((wants,))
        here.opened.set()
        await waits[0]
        await turns(5)
        assert unwanted.runs == 0  # the permit is lent, but nobody waits for this job any more
        there.opened.set()
        await waits[1]

    async with Queue({"normal": LaneConfig(capacity=2, permits=1), "other": TIGHT}) as queue:
        handle = await handle_of(queue, Job("parent", parent))
        await here.started.wait()
        await queue.push(Job("unwanted", unwanted))
        unwanted.opened.set()
        assert await handle.result() is None
