"""A key never answers for a different call: task and arguments are compared by fingerprint."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gates import Gate, value

from agentq import Cached, Failed, InFlight, Job, KeyConflict, Queue, Queued, Retention, task
from agentq.core.fingerprint import fingerprint_of

LOCK = threading.Lock()
CONFLICT = r"^key 'k' belongs to a call of a different task or with different arguments; "


@task(name="charge", key="k")
async def charge(amount: int) -> int:
    if amount < 0:
        raise ValueError("negative")
    return amount


@task(name="refund", key="k")
async def refund(amount: int) -> int:
    return -amount


async def test_a_key_in_flight_conflicts_with_other_arguments_and_with_another_task() -> None:
    gate = Gate()

    @task(name="held", key="k")
    async def held(amount: int) -> Any:
        return await gate(amount)

    async with Queue() as queue:
        first = await queue.push(held.job(1))
        await gate.started.wait()
        for other in (held.job(2), refund.job(1)):
            with pytest.raises(KeyConflict, match=CONFLICT):
                await queue.push(other)
            with pytest.raises(KeyConflict, match=CONFLICT):
                await queue.push_and_wait(other)
            with pytest.raises(KeyConflict, match=CONFLICT):
                await anext(queue.map([other]))
        same = await queue.push(held.job(1))
        gate.opened.set()
        assert (type(first), type(same)) == (Queued, InFlight)
        assert await same.handle.result() == 1  # type: ignore[union-attr]
        assert gate.runs == 1


async def test_a_pending_key_conflicts_too() -> None:
    gate = Gate()
    async with Queue() as queue:
        for number in range(5):  # all permits
            await queue.push(Job(f"gate {number}", gate))
        await queue.push(charge.job(1))
        with pytest.raises(KeyConflict, match=CONFLICT):
            await queue.push(charge.job(2))
        gate.opened.set()


async def test_a_completed_key_never_answers_with_another_calls_output() -> None:
    async with Queue() as queue:
        assert await queue.push_and_wait(charge.job(1)) == 1
        for other in (charge.job(2), refund.job(1)):
            with pytest.raises(KeyConflict, match=CONFLICT):
                await queue.push(other)
        assert await queue.push(charge.job(1)) == Cached(1)
        assert queue.stats()["normal"].completed == 1


async def test_a_completed_key_is_checked_under_retention_as_well() -> None:
    async with Queue(retention=Retention(max_keys=5)) as queue:
        assert await queue.push_and_wait(charge.job(1)) == 1
        with pytest.raises(KeyConflict, match=CONFLICT):
            await queue.push(charge.job(2))
        assert await queue.push(charge.job(1)) == Cached(1)


async def test_a_forgotten_key_conflicts_with_nothing() -> None:
    async with Queue(retention=Retention(max_keys=1)) as queue:
        assert await queue.push_and_wait(charge.job(1)) == 1
        await queue.push_and_wait(Job("other", value))
        assert await queue.push_and_wait(charge.job(2)) == 2


async def test_a_failed_key_may_be_pushed_with_corrected_arguments() -> None:
    async with Queue() as queue:
        accepted = await queue.push(charge.job(-1))
        assert type(accepted) is Queued
        assert await accepted.handle == Failed("ValueError: negative")
        assert await queue.push_and_wait(charge.job(1)) == 1
        with pytest.raises(KeyConflict, match=CONFLICT):
            await queue.push(charge.job(-1))


async def test_a_job_without_a_fingerprint_makes_no_claim_about_its_arguments() -> None:
    async with Queue() as queue:
        assert await queue.push_and_wait(charge.job(1)) == 1
        assert await queue.push(Job("k", value, args=(9,))) == Cached(1)
        assert await queue.push_and_wait(Job("plain", value, args=(2,))) == 2
        assert await queue.push(charge.job(5).with_key("plain")) == Cached(2)


async def test_a_refused_push_leaves_the_key_as_it_was() -> None:
    async with Queue() as queue:
        await queue.push_and_wait(charge.job(1))
        before = queue.stats()
        with pytest.raises(KeyConflict):
            await queue.push(charge.job(2))
        assert queue.stats() == before


@dataclass
class Money:
    amount: int
    currency: str


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, 1.0),
        (1, True),
        (0, False),
        ("1", 1),
        ("a", b"a"),
        (None, 0),
        (None, ""),
        ("é", "e\u0301"),
        ([1, 2], [2, 1]),
        ([[1], 2], [[1, 2]]),
        ({"a": 1}, {"a": 2}),
        (Money(1, "EUR"), Money(1, "USD")),
        (2**70, 2**71),
        (2**70, -(2**70)),
        (1 + 2j, 2 + 1j),
        (Path("a"), Path("b")),
        ({1: 1, "a": 2}, {1: 2, "a": 1}),
        ({(1, 2): 3}, {(1, 3): 3}),
        ([2**70, "a"], ["a", 2**70]),
        ({2**70}, [2**70]),
        ("lone \ud800", "lone \ud801"),
        ({2**70: "\ud800"}, {2**70: "\ud801"}),
    ],
)
def test_different_arguments_differ(one: Any, other: Any) -> None:
    assert fingerprint_of("t", {"a": one}) != fingerprint_of("t", {"a": other})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2, 3}, {3, 2, 1}),
        ([1, 2], (1, 2)),
        (Money(1, "EUR"), Money(1, "EUR")),
        (float("nan"), float("nan")),
        (2**70, 2**70),
        ({1: 1, "a": 2}, {"a": 2, 1: 1}),
        ({2**70, 2**71}, {2**71, 2**70}),
        ([2**70], (2**70,)),
        (Path("a"), "a"),
    ],
)
def test_equal_arguments_are_equal_in_whatever_order_they_were_built(one: Any, other: Any) -> None:
    assert fingerprint_of("t", {"a": one}) == fingerprint_of("t", {"a": other})
    assert fingerprint_of("t", {"a": one})[1] == []


def test_names_and_boundaries_count() -> None:
    assert fingerprint_of("t", {"a": 1}) != fingerprint_of("u", {"a": 1})
    assert fingerprint_of("t", {"a": 1}) != fingerprint_of("t", {"b": 1})
    assert fingerprint_of("t", {"a": "bc"}) != fingerprint_of("t", {"ab": "c"})
    assert fingerprint_of("t", {"a": 1, "b": 2}) != fingerprint_of("t", {"a": 2, "b": 1})
    assert fingerprint_of("t", {"a": 98, "c": 1}) != fingerprint_of("t", {"abc": 1})  # 98 is a b
    assert len(fingerprint_of("t", {})[0]) == 16


def test_what_has_no_portable_form_counts_by_its_type() -> None:
    one, left_out = fingerprint_of("t", {"a": threading.Lock(), "b": 1})
    assert left_out == ["a"]
    assert one == fingerprint_of("t", {"a": threading.Lock(), "b": 1})[0]
    assert one != fingerprint_of("t", {"a": threading.Lock(), "b": 2})[0]
    assert one != fingerprint_of("t", {"a": threading.Event(), "b": 1})[0]


def test_arguments_that_can_be_read_once_are_not_read() -> None:
    numbers = iter([1, 2])
    assert fingerprint_of("t", {"a": numbers})[1] == ["a"]
    assert fingerprint_of("t", {"a": (number for number in numbers)})[1] == ["a"]
    assert list(numbers) == [1, 2]
    assert fingerprint_of("t", {"a": range(3)})[1] == ["a"]


def test_arguments_that_refer_to_themselves_count_by_their_type() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert fingerprint_of("t", {"a": loop})[1] == ["a"]


@dataclass
class Order:
    lock: threading.Lock
    amount: int


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"lock": LOCK, "amount": 5}, {"lock": LOCK, "amount": 900}),
        ([LOCK, 5], [LOCK, 6]),
        ((LOCK, (LOCK, {1: 2})), (LOCK, (LOCK, {1: 3}))),
        (Order(LOCK, 5), Order(LOCK, 6)),
        ([2**70, LOCK], [2**71, LOCK]),
    ],
)
def test_a_part_without_a_portable_form_hides_nothing_beside_it(one: Any, other: Any) -> None:
    first, left_out = fingerprint_of("t", {"a": one})
    assert left_out == ["a"]
    assert fingerprint_of("t", {"a": one}) == (first, ["a"])
    assert fingerprint_of("t", {"a": other})[0] != first


def test_further_arguments_are_told_apart_beside_one_without_a_portable_form() -> None:
    @task(key="k")
    def take(*args: Any, **kwargs: Any) -> None: ...

    prints = [
        take.job(LOCK, 5).fingerprint,
        take.job(LOCK, 6).fingerprint,
        take.job(LOCK, 6, more=1).fingerprint,
        take.job(LOCK, 6, more=2).fingerprint,
    ]
    assert len(set(prints)) == 4


def test_a_value_that_contains_itself_counts_by_type_where_it_does() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    assert fingerprint_of("t", {"a": ring})[1] == ["a"]
