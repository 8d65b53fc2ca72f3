"""Promise 8: a job that waits for others lends its permit, and has it back when it goes on."""

import asyncio
from typing import Any

from gates import Gate, OwnCode, handle_of, turns, value

from agentq import (
    Failed,
    Job,
    LaneConfig,
    Queue,
)

TIGHT = LaneConfig(capacity=1, permits=1)


async def test_a_waiting_job_lends_its_permit_and_has_it_back_when_it_goes_on() -> None:
    child, unrelated, parent_goes_on = Gate(), Gate(), Gate()

    async def parent() -> None:
        await queue.push_and_wait(Job("child", child))
        await parent_goes_on()

    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        await queue.push(Job("parent", parent))
        await queue.push(Job("unrelated", unrelated))
        await child.started.wait()  # ahead of the other one, on the permit of its parent
        stats = queue.stats()["normal"]
        assert (stats.running, stats.lending, stats.waiting) == (1, 1, 1)
        child.opened.set()
        await parent_goes_on.started.wait()
        stats = queue.stats()["normal"]
        assert (stats.running, stats.lending, stats.waiting) == (1, 0, 1)
        assert unrelated.runs == 0
        parent_goes_on.opened.set()
        await unrelated.started.wait()
        unrelated.opened.set()


async def test_a_lent_permit_is_not_for_jobs_that_nobody_waits_for() -> None:
    inside, child, unrelated = asyncio.Event(), Gate(), Gate()

    async def parent() -> None:
        inside.set()
        await queue.push_and_wait(Job("child", child, lane="other"))

    async with Queue({"normal": TIGHT, "other": TIGHT}) as queue:
        await queue.push(Job("parent", parent))
        await queue.push(Job("unrelated", unrelated))
        await child.started.wait()
        await turns(5)
        assert (inside.is_set(), unrelated.runs) == (True, 0)
        child.opened.set()
        await unrelated.started.wait()
        unrelated.opened.set()


async def test_a_parent_that_times_out_while_it_lends_gives_back_one_permit() -> None:
    child, after, cleaned = Gate(), Gate(), asyncio.Event()

    async def parent() -> None:
        try:
            await queue.push_and_wait(Job("child", child, args=(7,)))
        finally:
            cleaned.set()

    async with Queue({"normal": LaneConfig(capacity=5, permits=1)}) as queue:
        handle = await handle_of(queue, Job("parent", parent, timeout=0.02))
        await child.started.wait()
        assert await handle == Failed("timed out after 0.02 s")
        await queue.push(Job("after", after))
        await turns(5)
        # The child holds the only permit; what the parent has to clean up waits for it.
        assert (cleaned.is_set(), after.runs) == (False, 0)
        child.opened.set()
        await after.started.wait()
        assert cleaned.is_set()
        stats = queue.stats()["normal"]
        assert (stats.running, stats.lending, stats.waiting) == (1, 0, 0)
        after.opened.set()
        assert await queue.push_and_wait(Job("child", child)) == 7


async def test_a_parent_cancelled_while_it_lends_ends_with_a_permit_and_its_child_runs_on() -> None:
    child, after = Gate(), Gate()

    async def parent() -> None:
        await queue.push_and_wait(Job("child", child, args=(7,)))

    async with Queue({"normal": LaneConfig(capacity=5, permits=1)}) as queue:
        handle = await handle_of(queue, Job("parent", parent))
        await child.started.wait()
        assert queue.cancel("parent") is True
        await queue.push(Job("after", after))
        await turns(5)
        stats = queue.stats()["normal"]
        assert (stats.running, stats.lending, stats.waiting, after.runs) == (1, 1, 1, 0)
        child.opened.set()
        assert await handle == Failed("cancelled")
        await after.started.wait()
        stats = queue.stats()["normal"]
        assert (stats.running, stats.lending, stats.waiting) == (1, 0, 0)
        after.opened.set()
        assert await queue.push_and_wait(Job("child", child)) == 7


async def test_a_parent_that_stops_waiting_goes_on_only_with_a_permit() -> None:
    child, code = Gate(), OwnCode()

    async def wrapped() -> None:
        with code.running():
            await child()

    async def parent() -> str:
        with code.running():
            try:
                with code.waiting():
                    async with asyncio.timeout(0.01):
                        await queue.push_and_wait(Job("child", wrapped))
            except TimeoutError:
                return "gave up"
            return "unexpected"

    async with Queue({"normal": LaneConfig(permits=1)}) as queue:
        waiting = asyncio.create_task(queue.push_and_wait(Job("parent", parent)))
        await child.started.wait()
        await asyncio.sleep(0.03)  # its time is up, but the child runs on the only permit
        assert not waiting.done()
        child.opened.set()
        assert await waiting == "gave up"
    assert (code.most, code.jobs) == (1, 2)


async def test_a_job_of_which_one_task_waits_counts_as_waiting_whatever_its_others_do() -> None:
    child = Gate()
    own = Gate()

    async def parent() -> None:
        await asyncio.gather(queue.push_and_wait(Job("child", child)), own())

    async with Queue({"normal": TIGHT}) as queue:
        await queue.push(Job("parent", parent))
        await child.started.wait()
        await own.started.wait()
        stats = queue.stats()["normal"]
        assert (stats.running, stats.lending) == (1, 1)
        child.opened.set()
        await turns(5)
        stats = queue.stats()["normal"]
        assert (stats.running, stats.lending) == (1, 0)
        own.opened.set()


async def test_tasks_that_a_job_left_behind_still_get_their_answers() -> None:
    child = Gate()
    left: list[asyncio.Task[Any]] = []

    async def parent() -> None:
        left.append(asyncio.create_task(queue.push_and_wait(Job("child", child, args=(7,)))))
        await child.started.wait()

    async with Queue({"normal": TIGHT}) as queue:
        await queue.push_and_wait(Job("parent", parent))
        stats = queue.stats()["normal"]
        assert (stats.running, stats.lending) == (1, 0)
        child.opened.set()
        assert await left[0] == 7
        assert await queue.push_and_wait(Job("after", value, args=(1,))) == 1


async def test_a_job_may_give_up_and_wait_again_as_often_as_it_likes() -> None:
    others = [f"other {number}" for number in range(50)]
    ready, busy = Gate(), Gate()

    async def parent() -> list[Any]:
        await ready()
        waits = asyncio.ensure_future(queue.push_and_wait(Job("busy", busy)))
        await busy.started.wait()  # on the permit lent by that wait: the others have to wait
        last = asyncio.ensure_future(queue.push_and_wait(Job(others[-1], value)))
        for _ in range(5):
            wants = [asyncio.ensure_future(queue.push_and_wait(Job(key, value))) for key in others]
            await turns(2)
            for want in wants:
                want.cancel()
            await asyncio.wait(wants)
        busy.opened.set()
        await waits
        outputs = [await last]
        return outputs + [await queue.push_and_wait(Job(key, value)) for key in others[:-1]]

    async with Queue({"normal": LaneConfig(capacity=60, permits=1)}) as queue:
        handle = await handle_of(queue, Job("parent", parent))
        await ready.started.wait()
        await queue.push(Job("busy", busy))
        for number, key in enumerate(others):
            await queue.push(Job(key, value, args=(number,)))
        ready.opened.set()
        assert await handle.result() == [49, *range(49)]
