"""An event loop that explores orders of events, and repeats any of them by its seed.

    @pytest.mark.parametrize("seed", range(1000))
    def test_it(seed):
        simulate(main(), seed=seed)

What differs from the loops of asyncio:

- Of the callbacks that are ready, the seed says which runs next. The order in which they became
  ready means nothing, so a program that relies on it is found out.
- Time is virtual. It stands still while anything is ready, then jumps to the next timer. A timer
  never fires early; timers that are due at one moment fire in any order.
- When nothing is ready and no timer is set, nothing can ever happen any more: `SimulationStuck`
  is raised and names the tasks that are left.
- There is no I/O. `run_in_executor` (and `asyncio.to_thread`) makes its call in a step of its own
  on the same thread; `simulate_threads` does the same for the synchronous jobs of a queue. A real
  thread may use `call_soon_threadsafe`, but the loop does not wait for
  it: unless the program joins the thread, the loop may find itself stuck first.

One seed gives one order as long as the program itself is deterministic: seed `random`, and do not
iterate over sets of objects that hash by their address. Futures and tasks made by this loop hash
by number, so sets of those are safe.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from heapq import heappop
from itertools import count
from random import Random
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

OnStep = Callable[[asyncio.Handle], object]

_TASKS_NAMED = 20


class SimulationStuck(RuntimeError):
    """The simulated program cannot go on: everything waits for ever, or it never ends."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop whose order of events comes from a seed and whose time is virtual.

    Args:
        seed: chooses among the possible orders.
        slow_chance: how likely it is, from 0 to 1, that before a step time moves on to the next
            timer although callbacks are ready, as on a machine that is too slow.
        max_steps: raise `SimulationStuck` after this many callbacks.

    Attributes:
        on_step: called with each callback's handle after the callback has run, to check what must
            hold at every moment. What it raises ends the run; it is not called again.
        steps: how many callbacks have run.
    """

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool
    _check_closed: Callable[[], None]

    def __init__(
        self, seed: int = 0, *, slow_chance: float = 0.0, max_steps: int = 1_000_000
    ) -> None:
        super().__init__()
        self.on_step: OnStep | None = None
        self.steps = 0
        self._random = Random(seed)  # noqa: S311 (it has to be repeatable)
        self._slow_chance = slow_chance
        self._max_steps = max_steps
        self._now = 0.0
        self._numbers = count()

    def time(self) -> float:
        """The virtual time in seconds. It starts at 0."""
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        """As every loop; the future hashes by its number."""
        return _NumberedFuture(next(self._numbers), loop=self)

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], **options: Any
    ) -> asyncio.Task[T]:
        """As every loop; the task hashes by its number, unless a task factory is set."""
        if self.get_task_factory() is not None:
            return super().create_task(coro, **options)
        self._check_closed()
        return _NumberedTask(next(self._numbers), coro, loop=self, **options)

    def start_thread(self, call: Callable[[], object]) -> None:
        """Make `call` as a thread would: soon, in a step of its own, with no loop running there.

        `call` must not wait for anything that happens on this loop.
        """
        self.call_soon(_outside_of, self, call, context=Context())

    def run_in_executor(
        self,
        executor: object,  # noqa: ARG002 (named as in asyncio)
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Make the call in a step of its own; `executor` is not used. Cannot be cancelled."""
        future: asyncio.Future[T] = self.create_future()

        def call() -> None:
            try:
                result = func(*args)
            except BaseException as error:  # whatever it is belongs to whoever awaits the future
                self.call_soon_threadsafe(_resolve, future, None, error)
            else:
                self.call_soon_threadsafe(_resolve, future, result, None)

        self.start_thread(call)
        return future

    def _run_once(self) -> None:
        ready = self._ready
        self._fire_timers()
        if not ready:
            if not self._stopping:
                raise SimulationStuck(f"deadlock: nothing can ever happen. {self._pending()}")
            return
        if self.steps >= self._max_steps:
            self._max_steps *= 2  # what is left still has to be ended
            raise SimulationStuck(f"no end after {self.steps} steps. {self._pending()}")
        chosen = int(self._random.random() * len(ready))
        handle = ready[chosen]
        del ready[chosen]
        if handle.cancelled():
            return
        self.steps += 1
        handle._run()  # noqa: SLF001 (what a loop does)
        if self.on_step is not None:
            on_step, self.on_step = self.on_step, None
            on_step(handle)
            self.on_step = on_step

    def _fire_timers(self) -> None:
        timers = self._scheduled
        while timers and timers[0].cancelled():
            heappop(timers)
        if not timers:
            return
        late = self._slow_chance and self._random.random() < self._slow_chance
        if not self._ready or late:
            self._now = max(self._now, timers[0].when())
        while timers and timers[0].when() <= self._now:
            self._ready.append(heappop(timers))

    def _pending(self) -> str:
        tasks = [_where(task) for task in asyncio.all_tasks(self)]
        shown = "; ".join(sorted(tasks)[:_TASKS_NAMED])
        more = f"; and {len(tasks) - _TASKS_NAMED} more" if len(tasks) > _TASKS_NAMED else ""
        return f"Pending tasks: {shown or 'none'}{more}"

    def _write_to_self(self) -> None:
        """Nothing sleeps here, so nothing has to be woken."""

    def _process_events(self, event_list: list[object]) -> None:
        """There is no I/O."""


def simulate(
    main: Coroutine[Any, Any, T],
    *,
    seed: int,
    slow_chance: float = 0.0,
    max_steps: int = 1_000_000,
    on_step: OnStep | None = None,
) -> T:
    """Run `main` on a `SimulatedLoop` and return its result, as `asyncio.run` does.

    Tasks that are left are cancelled and asynchronous generators closed, on the same loop.
    Arguments are those of `SimulatedLoop`. Raises what `main` or `on_step` raises, and
    `SimulationStuck`.
    """
    loop = SimulatedLoop(seed, slow_chance=slow_chance, max_steps=max_steps)
    loop.on_step = on_step
    try:
        result = loop.run_until_complete(main)
    except BaseException as error:
        try:
            _end(loop)
        except SimulationStuck as stuck:  # often for the same reason; it must not hide the error
            error.add_note(f"Then, while ending what was left: {stuck}")
        raise
    _end(loop)
    return result


def _end(loop: SimulatedLoop) -> None:
    try:
        _cancel_all_tasks(loop)
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _cancel_all_tasks(loop: SimulatedLoop) -> None:
    # asyncio.run cancels them in the order of a set, which is another one in every process.
    tasks = sorted(asyncio.all_tasks(loop), key=_in_order)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            loop.call_exception_handler(
                {"message": "a task failed while the loop ended", "exception": error, "task": task}
            )


class _NumberedFuture(asyncio.Future[Any]):
    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = number

    def __hash__(self) -> int:
        return self._number


class _NumberedTask(asyncio.Task[T]):
    # The number must be there before the task's own __init__, which puts the task into a set.
    def __init__(self, number: int, coroutine: Any, **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


def _in_order(task: asyncio.Task[Any]) -> tuple[int, str]:
    return (hash(task) if isinstance(task, _NumberedTask) else -1, task.get_name())


def _outside_of(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    _set_running_loop(None)
    try:
        call()
    finally:
        _set_running_loop(loop)


def _resolve(future: asyncio.Future[T], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _where(task: asyncio.Task[Any]) -> str:
    """The task's name, and what it awaits, down to the innermost function."""
    chain: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            chain.append(f"{awaited.__qualname__}:{frame.f_lineno}")
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return f"{task.get_name()!r} in {' > '.join(chain)}"
