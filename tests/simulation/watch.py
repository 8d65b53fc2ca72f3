"""What a queue does, seen from outside: counted by the jobs themselves, told by `on_change`."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import NoneType
from typing import Any

from agentq import Completed, Failed, LaneConfig, Pending, Queue, State, Transition
from agentq.core.lifecycle import TRANSITIONS
from agentq.queue.context import running
from agentq.testing import SimulatedLoop, simulate_threads
from simulation.invariants import check_step


class Run:
    """One execution of a job's code. The code says when it waits in the queue."""

    def __init__(self, watch: "Watch", key: str, lane: str, number: int) -> None:
        self.key = key
        self.number = number
        self._watch = watch
        self._lane = lane
        self._waits = 0
        self._ended = False
        watch.change(lane, +1)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around every wait in the queue: the job does not execute its own code meanwhile."""
        self._count(+1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, by: int) -> None:
        executed = not self._waits
        self._waits += by
        if not self._ended and executed != (not self._waits):
            self._watch.change(self._lane, -by)

    def end(self) -> None:
        """The code stops here; tasks that it leaves behind are nobody's."""
        if not self._waits:
            self._watch.change(self._lane, -1)
        self._ended = True

    def output(self) -> tuple[str, int]:
        """An output that tells which run made it."""
        return self.key, self.number


class Watch:
    """Follows one queue. Raises `AssertionError` as soon as something is wrong."""

    def __init__(
        self,
        lanes: dict[str, LaneConfig],
        attempts: Callable[[str], int],
        *,
        forgets: bool = False,
    ) -> None:
        self.permits = {name: config.permits for name, config in lanes.items()}
        self.executing: Counter[str] = Counter()
        self.highest: Counter[str] = Counter()
        self.runs: Counter[str] = Counter()
        self.transitions: list[Transition] = []
        self.problems: list[str] = []
        self._attempts = attempts
        self._queue: Queue | None = None
        self._forgets = forgets
        self._current: dict[str, State | None] = {}
        self._running: dict[str, Run] = {}
        self._last: dict[str, Run] = {}
        self._runs_of_claim: defaultdict[str, int] = defaultdict(int)

    def _given_up(self) -> bool:
        return self._queue is not None and self._queue._scheduler.given_up

    def follow(self, queue: Queue) -> None:
        """Check `queue` after every step of the running simulated loop."""
        self._queue = queue
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.set_exception_handler(self._loop_problem)

        def check(_: object) -> None:
            check_step(queue)
            assert not self.problems, self.problems[0]

        loop.on_step = check

    def _loop_problem(self, _: object, context: dict[str, Any]) -> None:
        self.problems.append(f"{context['message']}: {context.get('exception')!r} {context}")

    def change(self, lane: str, by: int) -> None:
        """More or less jobs of `lane` execute their own code now."""
        now = self.executing[lane] = self.executing[lane] + by
        self.highest[lane] = max(self.highest[lane], now)
        if now > self.permits[lane] and not self._given_up():
            self.problems.append(f"lane {lane}: {now} jobs execute on {self.permits[lane]} permits")

    @contextmanager
    def run(self, key: str, lane: str) -> Iterator[Run]:
        """Around all the code of a job."""
        run = self.begin(key, lane)
        try:
            yield run
        finally:
            self.end(run)

    def begin(self, key: str, lane: str) -> Run:
        """A job's code starts."""
        self.runs[key] += 1
        run = Run(self, key, lane, self.runs[key])
        if key in self._running:
            self.problems.append(f"{key} executes twice at once")
        self._running[key] = self._last[key] = run
        self._runs_of_claim[key] += 1
        if self._runs_of_claim[key] > self._attempts(key):
            self.problems.append(f"{key} executed {self._runs_of_claim[key]} times in one claim")
        return run

    def end(self, run: Run) -> None:
        """A job's code has stopped."""
        del self._running[run.key]
        run.end()

    def last(self, key: str) -> Run:
        """The newest run of `key`."""
        return self._last[key]

    def on_change(self, transition: Transition) -> None:
        """Check one change of state against those before it."""
        self.transitions.append(transition)
        key, before, after = transition.key, transition.before, transition.after
        kinds = (type(before), type(after))
        if kinds not in TRANSITIONS:
            self.problems.append(f"{key}: {before} -> {after} is no transition")
        known = self._current.get(key)
        forgotten = self._forgets and before is None and isinstance(known, Completed | Failed)
        if known != before and not forgotten:
            self.problems.append(f"{key}: was {known}, told {transition}")
        self._current[key] = after
        if isinstance(after, Pending) and kinds[0] in (NoneType, Failed):
            self._runs_of_claim[key] = 0
        if isinstance(after, Completed) and not self._made_by_last_run(key, after.output):
            self.problems.append(f"{key}: {after.output} was not made by its last run")

    def _made_by_last_run(self, key: str, output: object) -> bool:
        last = self._last.get(key)
        return self._runs_of_claim[key] > 0 and last is not None and output == last.output()

    def check_states(self, queue: Queue) -> None:
        """Check that `state` says what `on_change` has told."""
        for key, state in self._current.items():
            assert queue.state(key) == state, f"{key}: {queue.state(key)} but told {state}"

    def simulate_threads(self, queue: Queue, delay: Callable[[], float]) -> None:
        """Have synchronous jobs called after a simulated while, and count them too."""
        simulate_threads(queue, delay)
        simulated = queue._scheduler.threads.start

        def start(call: Callable[[], None]) -> None:
            here = running.get()
            assert here is not None
            entry, _ = here
            run = self.begin(entry.key, entry.lane.name)

            def counted() -> None:
                call()
                self.end(run)

            simulated(counted)

        queue._scheduler.threads.start = start  # type: ignore[method-assign]


async def until(condition: Callable[[], bool]) -> None:
    """Wait, in virtual time, until `condition()` holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(1)
    raise AssertionError("it does not come to rest")
