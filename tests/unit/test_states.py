"""`state()` in every phase of a key's life, and the values it gives."""

import asyncio
from typing import Any

import pytest
from gates import Gate, turns, value

from agentq import (
    Completed,
    Failed,
    Job,
    JobFailed,
    JobHandle,
    LaneConfig,
    Pending,
    Processing,
    Queue,
    Queued,
    Retry,
    State,
    Transition,
)


async def test_every_phase_has_its_state() -> None:
    gate = Gate()
    runs: list[int] = []

    async def flaky() -> str:
        runs.append(1)
        if len(runs) == 1:
            raise ValueError
        return "second"

    async with Queue({"normal": LaneConfig(capacity=1, permits=1)}) as queue:
        assert queue.state("k") is None
        await queue.push(Job("running", gate))
        assert queue.state("running") == Processing()  # claimed, and its task is made
        await gate.started.wait()
        assert queue.state("running") == Processing()
        await queue.push(Job("waiting", value))
        assert queue.state("waiting") == Pending()
        push = asyncio.create_task(queue.push(Job("no room", value)))
        await turns(2)
        assert queue.state("no room") == Pending()
        retry = Retry(attempts=2, initial=0.02, jitter=0)
        accepted = await queue.push(Job("flaky", flaky, retry=retry, lane="high"))
        while not queue.stats()["high"].retrying:
            await turns(1)
        assert queue.state("flaky") == Pending()
        assert type(accepted) is Queued
        await accepted.handle
        assert queue.state("flaky") == Completed("second")
        with pytest.raises(JobFailed):
            await queue.push_and_wait(Job("failed", len, lane="high"))
        assert type(queue.state("failed")) is Failed
        queue.cancel("waiting")
        assert queue.state("waiting") == Failed("cancelled")
        gate.opened.set()
        await push
    assert queue.state("no room") == Completed(None)


async def test_state_takes_any_key_and_knows_only_its_own() -> None:
    anything: list[Any] = ["", "x" * 600, "\0", "é"]
    async with Queue() as queue:
        assert [queue.state(key) for key in anything] == [None] * 4


def test_states_are_values() -> None:
    assert Pending() == Pending()
    assert Completed([1]) == Completed([1])
    different: list[State] = [Completed(1), Failed("1"), Pending(), Processing(), Completed(None)]
    assert [different.count(state) for state in different] == [1] * 5
    assert repr(Completed("x")) == "Completed(output='x')"
    assert repr(Failed("no")) == "Failed(reason='no')"
    assert repr(Pending()) == "Pending()"
    match Completed(7):
        case Completed(output):
            assert output == 7


@pytest.mark.parametrize(
    "state",
    [Completed(1), Failed("no"), Transition("k", "normal", None, Pending()), LaneConfig()],
)
def test_states_do_not_change(state: Any) -> None:
    for name in ("output", "reason", "key", "capacity"):
        if hasattr(state, name):
            with pytest.raises(AttributeError):
                setattr(state, name, 2)


async def test_a_handle_shows_its_key_and_state() -> None:
    gate = Gate()
    async with Queue() as queue:
        accepted = await queue.push(Job("k", gate, args=(1,)))
        assert type(accepted) is Queued
        handle = accepted.handle
        assert type(handle) is JobHandle
        assert (handle.key, repr(handle)) == ("k", "<JobHandle 'k' Processing>")
        gate.opened.set()
        await handle
        assert repr(handle) == "<JobHandle 'k' Completed>"


async def test_a_completed_output_is_the_same_object_for_everyone() -> None:
    output = {"a": [1]}
    async with Queue() as queue:
        accepted = await queue.push(Job("k", value, args=(output,)))
        assert type(accepted) is Queued
        outcome = await accepted.handle
        assert isinstance(outcome, Completed)
        assert outcome.output is output
        state = queue.state("k")
        assert isinstance(state, Completed)
        assert state.output is output
