"""The job's task: runs the callable and records its end on every exit path.

A task that is cancelled before its first step never runs a line of its coroutine, so a `try` in it
would guard nothing. Here the coroutine is run up to a first, empty suspension inside its `try`
before the task is made: whatever then happens to the task happens inside the guard.
"""

from __future__ import annotations

import inspect
import types
from asyncio import CancelledError, Future, Task
from asyncio.events import _get_running_loop
from collections.abc import Generator
from contextvars import copy_context
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from agentq.queue.context import running
from agentq.queue.endings import ended_badly, ended_well, thread_ended
from agentq.queue.entry import Entry


def start(entry: Entry) -> None:
    """Give `entry` a permit and make its task, guarded.

    Its place in the lane is taken back before. Called on the queue's loop with the lock held; no
    code of the job runs before this returns: the task is made directly, not by the loop's task
    factory, since an eager factory would run the job inside whoever freed its permit.
    """
    scheduler, job, context = entry.scheduler, entry.job, entry.context
    assert context is not None
    entry.lane.running += 1
    entry.holding = True
    scheduler.ledger.start(entry)
    if job.retry is None:
        entry.context = None
    else:
        entry.stop = None
        context = context.copy()
    body = _run(entry)
    body.send(None)
    entry.task = Task(body, loop=scheduler.home, name=entry.key, context=context)
    if job.timeout is not None:
        scheduler.deadlines.set(entry, job.timeout)


@types.coroutine
def _armed() -> Generator[None, None, None]:
    yield


async def _run(entry: Entry) -> None:
    """The body of a job's task."""
    try:
        await _armed()
        running.set((entry, entry.attempt))
        job = entry.job
        if job.on_loop:
            if job.kwargs:
                output = await job.func(*job.args, **job.kwargs)
            else:
                output = await job.func(*job.args)
        else:
            output, problem = await _in_thread(entry)
            if problem is not None:
                raise problem
            if inspect.isawaitable(output):
                output = await output
        kind = type(output)
        if kind is GeneratorType or kind is AsyncGeneratorType:
            raise _nobody_runs(output)
    except BaseException as error:
        # The type is asked, not the exception: its attributes may be anything, and may raise.
        raised = type(error)
        if issubclass(raised, GeneratorExit) and _get_running_loop() is not entry.scheduler.home:
            raise  # collected with a loop that is gone; whoever asks next finds that out
        _leave_out_our_frame(error)
        task = entry.task
        ended_badly(entry, error)
        if issubclass(raised, KeyboardInterrupt):
            if task is not None:
                task.add_done_callback(_retrieve)
            raise
        if issubclass(raised, CancelledError):
            raise
    else:
        ended_well(entry, output)


def _nobody_runs(output: Any) -> TypeError:
    return TypeError(
        f"the job returned {type(output).__name__} {output.__name__!r}, which nobody would run; "
        "collect what it yields and return that"
    )


_traceback = vars(BaseException)["__traceback__"]


def _leave_out_our_frame(error: BaseException) -> None:
    """Have the traceback begin in the job's own frame."""
    traceback = _traceback.__get__(error)
    if traceback is not None:
        _traceback.__set__(error, traceback.tb_next)


def _retrieve(task: Task[None]) -> None:
    if not task.cancelled():
        task.exception()


async def _in_thread(entry: Entry) -> tuple[Any, BaseException | None]:
    job, home = entry.job, entry.scheduler.home
    ended: Future[tuple[Any, BaseException | None]] = home.create_future()
    context = copy_context()

    def call() -> None:
        output: Any = None
        problem: BaseException | None = None
        try:
            output = context.run(job.func, *job.args, **job.kwargs)
        except BaseException as error:
            _leave_out_our_frame(error)
            problem = error
        try:
            home.call_soon_threadsafe(_thread_ended, entry, ended, output, problem)
        except RuntimeError:  # the loop is closed: there is nobody left to tell
            _discard(output)
        finally:
            del problem

    entry.thread = True
    try:
        entry.scheduler.threads.start(call)
    except BaseException:
        entry.thread = False
        raise
    try:
        return await ended
    except BaseException:
        if ended.done() and not ended.cancelled():  # it ended in the same moment
            _discard(ended.result()[0])
        raise


def _discard(output: Any) -> None:
    """Let go of what comes late; a coroutine among it would complain that nobody awaited it."""
    if inspect.iscoroutine(output):
        output.close()


def _thread_ended(
    entry: Entry,
    ended: Future[tuple[Any, BaseException | None]],
    output: Any,
    problem: BaseException | None,
) -> None:
    if not ended.done():
        entry.thread = False
        ended.set_result((output, problem))
        return
    # The run was given up meanwhile: what comes late is discarded, the permit comes back.
    _discard(output)
    thread_ended(entry)
