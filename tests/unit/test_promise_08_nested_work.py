"""Promise 8: nested work does not deadlock, and jobs running code of their own stay in bounds."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from gates import Gate, turns, value

from agentq import (
    Completed,
    Failed,
    InFlight,
    Job,
    JobFailed,
    JobHandle,
    LaneConfig,
    Queue,
    Queued,
    Retry,
)

TIGHT = LaneConfig(capacity=1, permits=1)


class OwnCode:
    """Counts the jobs that run code of their own, not waiting for another, in one lane."""

    def __init__(self) -> None:
        self.now = self.most = self.jobs = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        self.now += 1
        self.jobs += 1
        self.most = max(self.most, self.now)
        try:
            yield
        finally:
            self.now -= 1

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.now -= 1
        try:
            yield
        finally:
            self.now += 1
            self.most = max(self.most, self.now)


async def handle_of(queue: Queue, job: Job) -> JobHandle:
    accepted = await queue.push(job)
    assert type(accepted) is Queued or type(accepted) is InFlight
    return accepted.handle


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
        if joined_first:
            accepted = await queue.push(Job("child", value))
            assert type(accepted) is InFlight
        await gate()
        return await queue.push_and_wait(Job("child", value))

    async with Queue({"normal": TIGHT}) as queue:
        # Tasks made directly start in this order, with an eager task factory too.
        waiting = asyncio.Task(queue.push_and_wait(Job("parent", parent)))
        await turns(0 if joined_first else 1)
        child = asyncio.Task(queue.push_and_wait(Job("takes the place", value)))
        outside = asyncio.Task(queue.push_and_wait(Job("child", value, args=(7,))))
        await gate.started.wait()
        gate.opened.set()
        assert list(await asyncio.gather(waiting, outside, child)) == [7, 7, None]


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
