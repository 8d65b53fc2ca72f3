"""Promise 8: any tree or fan-out of jobs completes, with one permit and one place.

How permits are lent is in `test_promise_08_lending.py`.
"""

import asyncio
from typing import Any

import pytest
from gates import Gate, OwnCode, handle_of, turns, value

from agentq import (
    Completed,
    InFlight,
    Job,
    JobFailed,
    LaneConfig,
    Pending,
    Queue,
    Queued,
    Retry,
)

TIGHT = LaneConfig(capacity=1, permits=1)


async def one_by_one(queue: Queue, jobs: list[Job]) -> list[Any]:
    return [await queue.push_and_wait(job) for job in jobs]


async def pushed_first(queue: Queue, jobs: list[Job]) -> list[Any]:
    handles = [await handle_of(queue, job) for job in jobs]
    return [await handle.result() for handle in handles]


async def gathered(queue: Queue, jobs: list[Job]) -> list[Any]:
    return list(await asyncio.gather(*(queue.push_and_wait(job) for job in jobs)))


async def in_a_task_group(queue: Queue, jobs: list[Job]) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(queue.push_and_wait(job)) for job in jobs]
    return [task.result() for task in tasks]


async def in_tasks_of_tasks(queue: Queue, jobs: list[Job]) -> list[Any]:
    async def inner(job: Job) -> Any:
        return await asyncio.create_task(queue.push_and_wait(job))

    return list(await asyncio.gather(*(asyncio.create_task(inner(job)) for job in jobs)))


async def mapped(queue: Queue, jobs: list[Job]) -> list[Any]:
    outputs = []
    async for _, outcome in queue.map(jobs):
        assert isinstance(outcome, Completed)
        outputs.append(outcome.output)
    return outputs


WAYS = [one_by_one, pushed_first, gathered, in_a_task_group, in_tasks_of_tasks, mapped]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lanes", [["normal"], ["one", "two"]])
async def test_a_tree_of_jobs_completes_with_one_permit_and_one_place(
    way: Any, lanes: list[str]
) -> None:
    ran: list[str] = []

    async def node(key: str, depth: int) -> int:
        await turns(1)
        ran.append(key)
        if depth == 0:
            return 1
        lane = lanes[depth % len(lanes)]
        children = [
            Job(f"{key}.{number}", node, args=(f"{key}.{number}", depth - 1), lane=lane)
            for number in range(3)
        ]
        return 1 + int(sum(await way(queue, children)))

    async with Queue(dict.fromkeys(lanes, TIGHT)) as queue:
        assert await queue.push_and_wait(Job("r", node, args=("r", 3), lane=lanes[0])) == 40
        for lane in lanes:
            stats = queue.stats()[lane]
            assert (stats.running, stats.lending, stats.waiting) == (0, 0, 0)
    assert len(ran) == len(set(ran)) == 40


@pytest.mark.parametrize("permits", [1, 2])
async def test_a_chain_as_deep_as_you_like_completes(permits: int) -> None:
    async def link(depth: int) -> int:
        if depth == 0:
            return 0
        return 1 + int(await queue.push_and_wait(Job(f"{depth - 1}", link, args=(depth - 1,))))

    async with Queue({"normal": LaneConfig(capacity=1, permits=permits)}) as queue:
        assert await queue.push_and_wait(Job("200", link, args=(200,))) == 200


@pytest.mark.parametrize("way", [one_by_one, pushed_first])
@pytest.mark.parametrize("permits", [1, 2, 3])
async def test_jobs_that_run_their_own_code_stay_within_the_permits(way: Any, permits: int) -> None:
    code = OwnCode()

    async def node(key: str, depth: int) -> None:
        with code.running():
            await turns(2)
            if depth:
                jobs = [Job(f"{key}.{n}", node, args=(f"{key}.{n}", depth - 1)) for n in range(2)]
                with code.waiting():
                    await way(queue, jobs)
                # From here on the job's own code runs again: its permit must be back.
            await turns(2)

    async with Queue({"normal": LaneConfig(capacity=2, permits=permits)}) as queue:
        await asyncio.gather(
            *(queue.push_and_wait(Job(f"r{n}", node, args=(f"r{n}", 3))) for n in range(4))
        )
    assert (code.jobs, code.most, code.now) == (60, permits, 0)


async def test_a_push_from_inside_a_job_that_finds_no_room_lends_as_well() -> None:
    ran: list[int] = []

    async def child(number: int) -> None:
        ran.append(number)

    async def parent() -> list[int]:
        for number in range(10):  # nobody else can make room: there is one permit, and it is ours
            assert type(await queue.push(Job(f"child {number}", child, args=(number,)))) is Queued
        return list(ran)

    async with Queue({"normal": TIGHT}) as queue:
        assert len(await queue.push_and_wait(Job("parent", parent))) == 9
    assert ran == list(range(10))


async def test_many_parents_pushing_into_a_full_lane_all_get_through() -> None:
    async def parent(key: str) -> int:
        return sum([await queue.push_and_wait(Job(f"{key}.{n}", value, args=(n,))) for n in (1, 2)])

    async with Queue({"normal": LaneConfig(capacity=1, permits=2)}) as queue:
        sums = await asyncio.gather(
            *(queue.push_and_wait(Job(f"p{n}", parent, args=(f"p{n}",))) for n in range(20))
        )
    assert sums == [3] * 20


@pytest.mark.parametrize("joined_first", [True, False])
async def test_a_key_that_waits_for_room_outside_is_reached_by_a_job_that_waits_for_it(
    joined_first: bool,
) -> None:
    gate = Gate()

    async def parent() -> Any:
        await gate()
        if joined_first:
            accepted = await queue.push(Job("child", value))
            assert type(accepted) is InFlight
            return await accepted.handle.result()
        return await queue.push_and_wait(Job("child", value))

    async with Queue({"normal": TIGHT}) as queue:
        waiting = asyncio.create_task(queue.push_and_wait(Job("parent", parent)))
        await gate.started.wait()
        await queue.push(Job("takes the place", value))
        outside = asyncio.create_task(queue.push_and_wait(Job("child", value, args=(7,))))
        await turns(2)
        assert queue.state("child") == Pending()
        gate.opened.set()
        assert list(await asyncio.gather(waiting, outside)) == [7, 7]


async def test_a_child_whose_next_try_finds_no_room_is_reached() -> None:
    runs = 0
    failed = asyncio.Event()

    async def child() -> int:
        nonlocal runs
        runs += 1
        if runs == 1:
            failed.set()
            raise ValueError
        return runs

    async def parent() -> Any:
        job = Job("child", child, retry=Retry(attempts=2, initial=0.01, jitter=0))
        return await queue.push_and_wait(job)

    async with Queue({"normal": TIGHT}) as queue:
        waiting = asyncio.create_task(queue.push_and_wait(Job("parent", parent)))
        await failed.wait()
        await turns(3)
        assert queue.stats()["normal"].retrying == 1
        await queue.push(Job("takes the place", value))
        assert await waiting == 2


async def test_a_diamond_runs_its_bottom_once() -> None:
    bottom = Gate()
    bottom.opened.set()

    async def side() -> Any:
        return await queue.push_and_wait(Job("bottom", bottom, args=(1,)))

    async def top() -> list[Any]:
        return await gathered(queue, [Job("left", side), Job("right", side)])

    async with Queue({"normal": TIGHT}) as queue:
        assert await queue.push_and_wait(Job("top", top)) == [1, 1]
    assert bottom.runs == 1


async def test_a_child_that_fails_is_the_parents_to_handle() -> None:
    async def child() -> None:
        raise ValueError("no")

    async def parent() -> str:
        try:
            await queue.push_and_wait(Job("child", child))
        except JobFailed as error:
            return error.reason
        return "unexpected"

    async with Queue({"normal": TIGHT}) as queue:
        assert await queue.push_and_wait(Job("parent", parent)) == "ValueError: no"


async def test_a_child_in_backoff_is_waited_for() -> None:
    runs = 0

    async def child() -> int:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise ValueError
        return runs

    async def parent() -> Any:
        retry = Retry(attempts=3, initial=0.001)
        return await queue.push_and_wait(Job("child", child, retry=retry))

    async with Queue({"normal": TIGHT}) as queue:
        assert await queue.push_and_wait(Job("parent", parent)) == 3


async def test_work_given_to_another_queue_is_no_nested_work() -> None:
    async def parent() -> Any:
        return await other.push_and_wait(Job("k", value, args=(7,)))

    async with Queue({"normal": TIGHT}) as queue, Queue({"normal": TIGHT}) as other:
        assert await queue.push_and_wait(Job("k", parent)) == 7


async def test_nested_work_is_finished_while_the_queue_drains() -> None:
    gate = Gate()

    async def parent() -> int:
        await gate()
        return sum(await gathered(queue, [Job(f"c{n}", value, args=(n,)) for n in range(5)]))

    async with Queue({"normal": TIGHT}) as queue:
        handle = await handle_of(queue, Job("parent", parent))
        await gate.started.wait()
        drained = asyncio.create_task(queue.drain())
        await turns(2)
        gate.opened.set()
        await drained
        assert await handle == Completed(10)
