"""Keys: what is one, what is none, and that they are compared exactly."""

from collections.abc import Callable
from typing import Any

import pytest
from gates import value

from agentq import Completed, InvalidKey, Job, Queue, Queued, UnknownLane

INVALID: list[tuple[Any, str]] = [
    ("", "a key must not be empty"),
    ("x" * 513, "at most 512 characters, this one has 513"),
    ("é" * 513, "at most 512 characters, this one has 513"),
    ("a\0b", "a key must not contain NUL"),
    ("é\0", "a key must not contain NUL"),
    ("lone \ud800", "a key must be encodable as UTF-8"),
    (None, "a key must be a str, not NoneType"),
    (7, "a key must be a str, not int"),
    (b"key", "a key must be a str, not bytes"),
    (("a",), "a key must be a str, not tuple"),
]


def made_with(key: Any) -> Job:
    return Job(key, value, args=(1,))


def made_over_to(key: Any) -> Job:
    return Job("another", value, args=(1,)).with_key(key)


WAYS = pytest.mark.parametrize("make", [made_with, made_over_to])


@WAYS
@pytest.mark.parametrize(("key", "message"), INVALID)
async def test_an_invalid_key_is_refused_at_push_and_the_queue_still_works(
    key: Any, message: str, make: Callable[[Any], Job]
) -> None:
    async with Queue() as queue:
        for verb in (queue.push, queue.push_and_wait):
            with pytest.raises(InvalidKey, match=message):
                await verb(make(key))
        with pytest.raises(InvalidKey, match=message):
            await anext(queue.map([make(key)]))
        assert await queue.push_and_wait(Job("good", value, args=(1,))) == 1
        stats = queue.stats()["normal"]
        assert (stats.waiting, stats.running, stats.completed) == (0, 0, 1)


@WAYS
@pytest.mark.parametrize("key", ["k", "x" * 512, "é" * 512, "🦀" * 512, " ", "\n", "a b"])
async def test_a_valid_key_runs(key: str, make: Callable[[Any], Job]) -> None:
    async with Queue() as queue:
        assert await queue.push_and_wait(make(key)) == 1
        assert queue.state(key) == Completed(1)


async def test_keys_are_compared_exactly() -> None:
    keys = ["caf\u00e9", "cafe\u0301", "Key", "key", "key ", " key", "\ufb01", "fi", "1", "1.0"]
    async with Queue() as queue:
        for key in keys:
            assert type(await queue.push(Job(key, value, args=(key,)))) is Queued
        for key in keys:
            assert await queue.push_and_wait(Job(key, value)) == key
        assert queue.stats()["normal"].completed == len(keys)


@WAYS
async def test_a_str_subclass_is_its_text_and_nothing_else(make: Callable[[Any], Job]) -> None:
    class Loud(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        def __hash__(self) -> int:
            raise AssertionError("hashed")

        def __str__(self) -> str:
            return "something else"

    async with Queue() as queue:
        accepted = await queue.push(make(Loud("key")))
        assert type(accepted) is Queued
        assert type(accepted.handle.key) is str
        assert accepted.handle.key == "key"
        assert await queue.push_and_wait(Job("key", value, args=(2,))) == 1


@pytest.mark.parametrize("lane", ["", "nowhere", "HIGH", "normal "])
async def test_an_unknown_lane_is_refused_and_nothing_is_left_of_the_key(lane: str) -> None:
    async with Queue() as queue:
        with pytest.raises(UnknownLane, match=r"names lane .*its lanes are high, normal, low"):
            await queue.push(Job("k", value, lane=lane))
        assert queue.state("k") is None
        assert await queue.push_and_wait(Job("k", value, args=(1,))) == 1


@pytest.mark.parametrize("job", [None, "k", value, ("k", value), Job])
async def test_only_a_job_can_be_pushed(job: Any) -> None:
    async with Queue() as queue:
        with pytest.raises(TypeError, match=r"a queue takes a Job.*make one with Job\(key, func\)"):
            await queue.push(job)
