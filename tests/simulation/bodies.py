"""Random jobs: what they do, how they wait for other jobs, how they end."""

import asyncio
from collections.abc import Awaitable, Generator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from typing import Any

from agentq import (
    Cached,
    Completed,
    Failed,
    Job,
    JobFailed,
    JobLost,
    Queue,
    QueueClosed,
    Retry,
    WouldDeadlock,
)
from simulation.watch import Run, Watch

EXPECTED = (JobFailed, JobLost, QueueClosed, WouldDeadlock)

UNANSWERED: Any = object()

# Jobs that fail and push one another again could go on for ever.
ENOUGH_RUNS = 200

WAYS = (
    "one by one",
    "by handle",
    "gather",
    "group",
    "map",
    "map, left early",
    "helper left behind",
    "with a time limit",
)
ENDINGS = ("value", "system exit", "generator exit", "cancelled", "strange", "hostile", "group")
WHEN_CANCELLED = (
    "stop",
    "clean up",
    "clean up slowly",
    "clean up for longer than closing allows",
    "return",
    "fail",
    "wait again",
)


class Strange(BaseException):
    """Not an `Exception`."""


class Hostile(Exception):
    """Cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no")


REASONS = (
    "cancelled",
    "timed out after ",
    "lost: ",
    "ValueError: on purpose",
    "SystemExit: 3",
    "GeneratorExit",
    "CancelledError",
    "Strange: on purpose",
    "Hostile: <no message",
    "ExceptionGroup: on purpose",
    "RuntimeError: after being cancelled",
    "TypeError: the job returned generator",
)
"""How every reason begins; another one means that the queue has a fault."""


def known_reason(reason: str) -> bool:
    """Tell whether a job of these can have failed so."""
    return reason.startswith(REASONS)


def fail(ending: str) -> None:
    """End a job in one of the ways in which a job can fail."""
    match ending:
        case "value":
            raise ValueError("on purpose")
        case "system exit":
            raise SystemExit(3)
        case "generator exit":
            raise GeneratorExit
        case "cancelled":
            raise asyncio.CancelledError
        case "strange":
            raise Strange("on purpose")
        case "hostile":
            raise Hostile
        case "group":
            raise ExceptionGroup("on purpose", [ValueError("on purpose")])


@dataclass
class Spec:
    """What the job under one key does, the same on every push of it."""

    key: str
    lane: str
    on_thread: bool = False
    returns_awaitable: bool = False
    yields: int = 0
    sleeps: float = 0
    waits: list[tuple[str, list[str]]] = field(default_factory=list)
    fails: list[str | None] = field(default_factory=list)
    when_cancelled: str = "stop"
    timeout: float | None = None
    attempts: int = 1
    backoff: float = 0


def random_spec(random: Random, key: str, lanes: Sequence[str], others: Sequence[str]) -> Spec:
    """A job that waits for some of `others`, if it waits at all."""
    spec = Spec(key, random.choice(lanes))
    spec.yields = random.choice((0, 0, 1, 2, 4))
    spec.sleeps = random.choice((0, 0, 0, 1, 2))
    if random.random() < 0.15:
        spec.on_thread = True
        spec.returns_awaitable = random.random() < 0.3
    elif others and random.random() < 0.6:
        for _ in range(random.choice((1, 1, 2))):
            several = random.choices(others, k=random.choice((1, 2, 3)))
            spec.waits.append((random.choice(WAYS), several))
    if random.random() < 0.25:
        spec.timeout = random.choice((1, 1, 2, 3))
    if random.random() < 0.25:
        spec.attempts = random.choice((2, 3))
        spec.backoff = random.choice((0, 1))
    for _ in range(spec.attempts):
        fails = random.random() < (0.6 if spec.attempts > 1 else 0.25)
        spec.fails.append(random.choice(("value", *ENDINGS)) if fails else None)
    spec.when_cancelled = random.choice(("stop", *WHEN_CANCELLED))
    return spec


class Bodies:
    """Makes the jobs of some specs, over one queue."""

    def __init__(self, queue: Queue, watch: Watch, specs: dict[str, Spec]) -> None:
        self._queue = queue
        self._watch = watch
        self._specs = specs
        self.refused = 0

    def job(self, key: str) -> Job:
        """The job under `key`."""
        spec = self._specs[key]
        retry = None
        if spec.attempts > 1:
            retry = Retry(attempts=spec.attempts, initial=spec.backoff, jitter=0, factor=1)
        return Job(
            key,
            self._on_thread if spec.on_thread else self._on_loop,
            args=(spec,),
            lane=spec.lane,
            timeout=spec.timeout,
            retry=retry,
        )

    def _on_thread(self, spec: Spec) -> Any:
        run = self._watch.last(spec.key)
        ending = self._ending(spec, run)
        if spec.returns_awaitable:
            return self._rest_of(run, ending)
        if ending == "hostile":
            return (number for number in range(3))
        if ending is not None:
            fail(ending)
        return run.output()

    async def _rest_of(self, run: Run, ending: str | None) -> Any:
        await asyncio.sleep(0)
        if ending is not None:
            fail(ending)
        return run.output()

    async def _on_loop(self, spec: Spec) -> Any:
        with self._watch.run(spec.key, spec.lane) as run:
            try:
                return await self._do(spec, run)
            except asyncio.CancelledError:
                return await self._when_cancelled(spec, run)

    async def _do(self, spec: Spec, run: Run) -> Any:
        for _ in range(spec.yields):
            await asyncio.sleep(0)
        for way, keys in spec.waits:
            await self._wait(run, way, keys)
        if spec.sleeps:
            await asyncio.sleep(spec.sleeps)
        ending = self._ending(spec, run)
        if ending is not None:
            fail(ending)
        return run.output()

    def _ending(self, spec: Spec, run: Run) -> str | None:
        return spec.fails[run.number % len(spec.fails)]

    async def _when_cancelled(self, spec: Spec, run: Run) -> Any:
        match spec.when_cancelled:
            case "clean up":
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            case "clean up slowly":
                await asyncio.sleep(0.5)
            case "clean up for longer than closing allows":
                await asyncio.sleep(3)
            case "return":
                return run.output()
            case "fail":
                raise RuntimeError("after being cancelled")
            case "wait again":
                for way, keys in spec.waits[:1]:
                    await self._wait(run, way, keys)
        raise asyncio.CancelledError

    async def _wait(self, run: Run, way: str, keys: list[str]) -> None:
        if self._watch.runs.total() >= ENOUGH_RUNS:
            return
        match way:
            case "one by one":
                for key in keys:
                    await self._push_and_wait(run, key)
            case "by handle":
                await self._by_handle(run, keys)
            case "gather":
                await asyncio.gather(*(self._push_and_wait(run, key) for key in keys))
            case "group":
                async with asyncio.TaskGroup() as group:
                    for key in keys:
                        group.create_task(self._push_and_wait(run, key))
            case "map":
                await self._map(run, keys, len(keys))
            case "map, left early":
                await self._map(run, keys, 1)
            case "helper left behind":
                task = asyncio.create_task(self._push_and_wait(run, keys[0]), name="helper")
                await asyncio.sleep(0)
                if len(keys) > 1:
                    task.cancel()
            case "with a time limit":
                try:
                    async with asyncio.timeout(1):
                        await self._push_and_wait(run, keys[0])
                except TimeoutError:
                    pass

    async def _push_and_wait(self, run: Run, key: str) -> None:
        output = await self._answer(run, self._queue.push_and_wait(self.job(key)))
        self._check_output(key, output)

    async def _by_handle(self, run: Run, keys: list[str]) -> None:
        handles = []
        for key in keys:
            accepted = await self._answer(run, self._queue.push(self.job(key)))
            if isinstance(accepted, Cached):
                self._check_output(key, accepted.output)
            elif accepted is not UNANSWERED:
                handles.append(accepted.handle)
        for handle in handles:
            self._check_output(handle.key, await self._answer(run, handle.result()))

    async def _answer(self, run: Run, answer: Awaitable[Any]) -> Any:
        try:
            with run.waiting():
                return await answer
        except WouldDeadlock:
            self.refused += 1
            return UNANSWERED
        except EXPECTED:
            return UNANSWERED

    async def _map(self, run: Run, keys: list[str], wanted: int) -> None:
        async with aclosing(_as_generator(self._queue, [self.job(key) for key in keys])) as items:
            for _ in range(wanted):
                item = await self._answer(run, anext(items, UNANSWERED))
                if item is UNANSWERED:
                    return
                key, outcome = item
                assert key in keys
                if isinstance(outcome, Completed):
                    self._check_output(key, outcome.output)

    def _check_output(self, key: str, output: Any) -> None:
        if output is not UNANSWERED and (type(output) is not tuple or output[0] != key):
            self._watch.problems.append(f"{key} was answered with {output}")


def _as_generator(queue: Queue, jobs: list[Job]) -> Any:
    return queue.map(jobs)


def failures(watch: Watch) -> Generator[Failed, None, None]:
    """Every failure that `watch` was told of."""
    for transition in watch.transitions:
        if isinstance(transition.after, Failed):
            yield transition.after
