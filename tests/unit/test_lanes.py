"""Lanes come from `Priority` by construction; their limits are checked by name and value."""

from enum import StrEnum
from typing import Any

import pytest
from gates import value

from agentq import BlockingQueue, Job, LaneConfig, Priority, Queue
from agentq.core import lanes


def test_every_priority_has_a_lane_with_the_default_limits() -> None:
    assert [str(priority) for priority in Priority] == ["high", "normal", "low"]
    stats = Queue().stats()
    assert list(stats) == ["high", "normal", "low"]
    assert {(lane.capacity, lane.permits) for lane in stats.values()} == {(100, 5)}


async def test_a_new_priority_has_its_lane_by_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wider(StrEnum):
        HIGH = "high"
        NORMAL = "normal"
        LOW = "low"
        URGENT = "urgent"

    monkeypatch.setattr(lanes, "Priority", Wider)
    async with Queue() as queue:
        assert await queue.push_and_wait(Job("k", value, args=(1,), lane=Wider.URGENT)) == 1
        assert queue.stats()["urgent"].completed == 1


async def test_further_lanes_are_added_by_name_and_defaults_can_be_changed() -> None:
    config = {"gpu": LaneConfig(capacity=3, permits=1), Priority.LOW: LaneConfig(permits=2)}
    async with Queue(config) as queue:
        stats = queue.stats()
        assert list(stats) == ["high", "normal", "low", "gpu"]
        assert (stats["gpu"].capacity, stats["gpu"].permits) == (3, 1)
        assert (stats["low"].capacity, stats["low"].permits) == (100, 2)
        assert await queue.push_and_wait(Job("a", value, args=(1,), lane="gpu")) == 1
        assert await queue.push_and_wait(Job("b", value, args=(2,), lane=Priority.LOW)) == 2
        stats = queue.stats()
        assert (stats["gpu"].completed, stats["low"].completed) == (1, 1)


@pytest.mark.parametrize("field", ["capacity", "permits"])
@pytest.mark.parametrize(
    ("number", "error"),
    [
        (0, ValueError),
        (-3, ValueError),
        (True, TypeError),
        (2.0, TypeError),
        ("5", TypeError),
        (None, TypeError),
        (float("nan"), TypeError),
    ],
)
def test_a_wrong_limit_is_refused_by_lane_and_value(
    field: str, number: Any, error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        Queue({"gpu": LaneConfig(**{field: number})})
    need = "1 or more" if error is ValueError else "a whole number"
    assert str(caught.value) == f"lane 'gpu': {field} must be {need}, not {number!r}"


@pytest.mark.parametrize("name", ["", None, 7, b"gpu"])
def test_a_lane_needs_a_name(name: Any) -> None:
    with pytest.raises(TypeError, match="a lane's name must be a non-empty string, not "):
        Queue({name: LaneConfig()})


@pytest.mark.parametrize("config", [None, 5, (100, 5), {"capacity": 100}, LaneConfig])
def test_a_lane_needs_a_lane_config(config: Any) -> None:
    with pytest.raises(TypeError, match="lane 'gpu' must be given a LaneConfig, not "):
        Queue({"gpu": config})


@pytest.mark.parametrize("given", ["gpu", ["gpu"], 7, LaneConfig()])
def test_lanes_are_a_mapping(given: Any) -> None:
    with pytest.raises(TypeError, match="lanes must map names to LaneConfig, not "):
        Queue(given)


@pytest.mark.parametrize("queue", [Queue, BlockingQueue])
def test_other_arguments_of_a_queue_are_checked_too(queue: Any) -> None:
    with pytest.raises(TypeError, match="retention must be a Retention, not 7"):
        queue(retention=7)
    with pytest.raises(TypeError, match="on_change needs a callable, not 7"):
        queue(on_change=7)
    with pytest.raises(TypeError, match="on_change is called, not awaited: give it a plain func"):
        queue(on_change=value)
