"""`BlockingQueue`: the same verbs for code without an event loop."""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import signal
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from agentq.core.durations import seconds
from agentq.core.errors import JobLost, QueueClosed, WouldDeadlock
from agentq.core.job import Job
from agentq.core.lanes import LaneConfig, LaneStats
from agentq.core.retention import Retention
from agentq.core.states import Outcome, State, Transition
from agentq.queue.entry import SETTLED, Entry
from agentq.queue.handle import Cached, InFlight, Queued, outcome_of, output_of
from agentq.queue.queue import Queue
from agentq.queue.suspension import for_outcome

T = TypeVar("T")

_END: Any = object()


class BlockingHandle:
    """What `BlockingQueue.push` gives to wait for its job, from any thread."""

    __slots__ = ("_entry", "_queue")

    def __init__(self, queue: BlockingQueue, entry: Entry) -> None:
        self._queue = queue
        self._entry = entry

    @property
    def key(self) -> str:
        """The job's key."""
        return self._entry.key

    def outcome(self, timeout: float | timedelta | None = None) -> Outcome:
        """Wait for `Completed(output)` or `Failed(reason)`.

        Raises `TimeoutError` after `timeout`, in seconds or as a `timedelta`; the job runs on.
        Raises `JobLost` when the queue ends before the job does.
        """
        self._settle(timeout)
        return outcome_of(self._entry)

    def result(self, timeout: float | timedelta | None = None) -> Any:
        """Wait for the output. Raises `JobFailed`, and what `outcome` raises."""
        self._settle(timeout)
        return output_of(self._entry)

    def _settle(self, timeout: float | timedelta | None) -> None:
        entry = self._entry
        if entry.phase is SETTLED:
            return
        try:
            self._queue._call(lambda: for_outcome(entry), timeout)  # noqa: SLF001 (one module)
        except QueueClosed as error:
            if entry.phase is not SETTLED:
                raise JobLost(entry.key, str(error)) from None

    def __repr__(self) -> str:
        return f"<BlockingHandle {self._entry.key!r} {self._entry.state.__name__}>"


class _Inside(threading.local):
    """How many calls of a queue this thread is inside of."""

    calls = 0


class BlockingQueue:
    """A `Queue` with a loop and a thread of its own, for synchronous code.

    Use it as a context manager; its verbs work from any thread, also from inside its jobs that
    run in threads. Arguments are those of `Queue`; `on_change` is called on the queue's thread.
    """

    def __init__(
        self,
        lanes: Mapping[str, LaneConfig] | None = None,
        *,
        retention: Retention | None = None,
        on_change: Callable[[Transition], object] | None = None,
    ) -> None:
        self._queue = Queue(lanes, retention=retention, on_change=on_change)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        # Reentrant: a signal handler may close the queue inside a call of the same thread.
        self._lock = threading.RLock()
        self._inside = _Inside()
        self._calls: set[concurrent.futures.Future[Any]] = set()
        self._ended = False

    def __enter__(self) -> Self:
        """Start the thread and open the queue. Raises `QueueClosed` when entered before."""
        with self._lock:
            if self._thread is not None or self._ended:
                before = "closed" if self._thread is None else "entered"
                raise QueueClosed(
                    f"this queue was {before} before; a queue is used once, so make a new one"
                )
            ready = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(ready,), name="agentq loop", daemon=True
            )
            self._thread.start()
        try:
            ready.wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain; on an interrupt, close instead. The thread has ended when this returns."""
        try:
            if error is None or isinstance(error, Exception):
                self.drain()
        finally:
            self.close()

    def push(
        self, job: Job, *, timeout: float | timedelta | None = None
    ) -> Queued[BlockingHandle] | InFlight[BlockingHandle] | Cached:
        """As `Queue.push`; the handle's `outcome()` and `result()` block.

        Raises `TimeoutError` when the lane has no room within `timeout`, and leaves nothing
        behind; and what `Queue.push` raises.
        """
        accepted = self._call(lambda: self._queue.push(job), timeout)
        if isinstance(accepted, Cached):
            return accepted
        handle = BlockingHandle(self, accepted.handle._entry)  # noqa: SLF001 (its other face)
        return Queued(handle) if isinstance(accepted, Queued) else InFlight(handle)

    def push_and_wait(self, job: Job, *, timeout: float | timedelta | None = None) -> Any:
        """As `Queue.push_and_wait`. Raises `TimeoutError` after `timeout`; the job runs on."""
        return self._call(lambda: self._queue.push_and_wait(job), timeout)

    def map(self, jobs: Iterable[Job]) -> Generator[tuple[str, Outcome], None, None]:
        """As `Queue.map`, from an iterable, which is read on the queue's thread."""
        outcomes = self._queue.map(jobs)
        try:
            while True:
                item = self._call(lambda: _next(outcomes))
                if item is _END:
                    return
                yield item
        finally:
            # Collected by the garbage collector on the loop's own thread, it is closed by asyncio.
            if not self._ended and threading.current_thread() is not self._thread:
                self._call(outcomes.aclose)

    def state(self, key: str) -> State | None:
        """As `Queue.state`."""
        return self._queue.state(key)

    def stats(self) -> dict[str, LaneStats]:
        """As `Queue.stats`."""
        return self._queue.stats()

    def cancel(self, key: str) -> bool:
        """As `Queue.cancel`."""
        return self._queue.cancel(key)

    def drain(self, timeout: float | timedelta | None = None) -> None:
        """As `Queue.drain`."""
        limit = None if timeout is None else seconds(timeout, "timeout", zero=True)
        if self._thread is None:
            self.close()
            return
        with suppress(QueueClosed):  # closed already, or meanwhile: nothing is left to drain
            self._call(lambda: self._queue.drain(limit))

    def close(self) -> None:
        """As `Queue.close`, and end the thread.

        Waits for the thread, unless called from it, from a job, or by a signal handler inside
        another call; may be repeated.
        """
        self._queue.close()
        with self._lock:
            loop, leave, thread = self._loop, self._leave, self._thread
            if thread is None:
                self._ended = True
        if loop is not None and leave is not None:
            with suppress(RuntimeError):  # the loop has ended already
                loop.call_soon_threadsafe(leave.set)
        if thread is None or thread is threading.current_thread():
            return
        in_job = self._queue._scheduler.owner() is not None  # noqa: SLF001 (its other face)
        if in_job or self._inside.calls:
            return
        thread.join()

    def _call(
        self, verb: Callable[[], Coroutine[Any, Any, T]], timeout: float | timedelta | None = None
    ) -> T:
        """Run a verb on the queue's loop, wait until it has ended, and return its result.

        On `timeout` it is cancelled there and this raises `TimeoutError`. The limit is kept on the
        loop, so that what is told here is what has happened there.
        """
        limit = None if timeout is None else seconds(timeout, "timeout", zero=True)
        self._inside.calls += 1
        try:
            future = self._hand_over(verb, limit)
            try:
                result, error = future.result()
            finally:
                future.cancel()
        except concurrent.futures.CancelledError:
            raise QueueClosed("the queue was closed meanwhile") from None
        finally:
            self._inside.calls -= 1
        if error is not None:
            raise error
        return cast("T", result)

    def _hand_over(
        self, verb: Callable[[], Coroutine[Any, Any, T]], limit: float | None
    ) -> concurrent.futures.Future[tuple[Any, Exception | None]]:
        if threading.current_thread() is self._thread:
            raise WouldDeadlock(
                "a BlockingQueue was called on its own loop's thread, which it would block; "
                "inside a coroutine job or on_change, start a thread or use a synchronous job"
            )
        with self._lock:
            if self._loop is None or self._thread is None:
                raise QueueClosed("the queue is not open yet; use it inside 'with queue:'")
            if self._ended:
                raise QueueClosed("the queue is closed and takes no more work")
            if not self._thread.is_alive():
                raise QueueClosed(
                    "the queue's thread is not in this process, which was forked; make a queue here"
                )
            call = _caught(verb, limit)
            try:
                future = asyncio.run_coroutine_threadsafe(call, self._loop)
            except RuntimeError:  # the loop was broken off
                call.close()
                raise QueueClosed("the queue's event loop has ended") from None
            self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return future

    def _run(self, ready: threading.Event) -> None:
        try:
            asyncio.run(self._main(ready))
        except KeyboardInterrupt:  # raised by a job, and passed on to the program
            _interrupt_the_program()
        finally:
            with self._lock:
                self._ended = True
            # Only a loop that was broken off leaves calls behind.
            for future in list(self._calls):
                future.cancel()
            ready.set()

    async def _main(self, ready: threading.Event) -> None:
        self._leave = asyncio.Event()
        async with self._queue:
            with self._lock:
                self._loop = asyncio.get_running_loop()
            ready.set()
            await self._leave.wait()
            await self._queue.close()
        with self._lock:
            self._ended = True
        # What was handed over before that has its turn now, and an answer before the loop ends.
        await asyncio.sleep(0)


async def _caught(
    verb: Callable[[], Coroutine[Any, Any, T]], limit: float | None
) -> tuple[Any, Exception | None]:
    """Give an error back as a value: a caller that has gone would not take it."""
    try:
        async with asyncio.timeout(limit) as scope:
            return await verb(), None
    except Exception as error:
        if scope.expired() and isinstance(error, TimeoutError):
            return None, TimeoutError(f"not there within {limit:g} s")
        return None, error


def _interrupt_the_program() -> None:
    """As Ctrl-C does: in the main thread, also when it is waiting for something."""
    main = threading.main_thread().ident
    if main is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGINT)
    else:
        _thread.interrupt_main()


async def _next(outcomes: Any) -> Any:
    return await anext(outcomes, _END)
