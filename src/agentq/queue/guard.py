"""The job's task: runs the callable and records its end on every exit path.

Before its first step a task can be cancelled without running a line, so until then a done
callback guards it; from the first step on, the `try` below does.
"""

from __future__ import annotations

import inspect
from asyncio import CancelledError, Future, Task
from asyncio.events import _get_running_loop
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from agentq.queue.context import running_entry
from agentq.queue.entry import Entry

if TYPE_CHECKING:
    from agentq.queue.scheduler import Scheduler


def start(scheduler: Scheduler, entry: Entry) -> None:
    """Make the task of `entry`, guarded. No code of the job runs before this returns.

    The task is made directly, not by the loop's task factory: an eager factory would run the job
    inside whoever freed its permit.
    """
    context = entry.context if entry.job.retry is None else entry.context.copy()
    task = Task(run(scheduler, entry), loop=scheduler.home, name=entry.key, context=context)
    entry.task = task
    entry.guard = guard = partial(_never_started, scheduler, entry)
    task.add_done_callback(guard, context=context)


def _never_started(scheduler: Scheduler, entry: Entry, task: Task[None]) -> None:
    scheduler.ended_badly(entry, CancelledError())


async def run(scheduler: Scheduler, entry: Entry) -> None:
    """The body of a job's task."""
    task, guard = entry.task, entry.guard
    assert task is not None and guard is not None
    task.remove_done_callback(guard)
    entry.guard = None
    running_entry.set(entry)
    job = entry.job
    try:
        if job.on_loop:
            output = await job.func(*job.args, **job.kwargs)
        else:
            output = await _in_thread(scheduler, entry)
    except BaseException as error:
        if isinstance(error, GeneratorExit) and _get_running_loop() is not scheduler.home:
            raise  # collected with a loop that is gone; whoever asks next finds that out
        if error.__traceback__ is not None:
            error.__traceback__ = error.__traceback__.tb_next  # from the job's own frame on
        scheduler.ended_badly(entry, error)
        if isinstance(error, KeyboardInterrupt):
            task.add_done_callback(_retrieve)
            raise
        if isinstance(error, CancelledError):
            raise
    else:
        scheduler.ended_well(entry, output)


def _retrieve(task: Task[None]) -> None:
    if not task.cancelled():
        task.exception()


async def _in_thread(scheduler: Scheduler, entry: Entry) -> Any:
    job, home = entry.job, scheduler.home
    ended: Future[tuple[Any, BaseException | None]] = home.create_future()
    context = copy_context()

    def call() -> None:
        output: Any = None
        problem: BaseException | None = None
        try:
            output = context.run(job.func, *job.args, **job.kwargs)
        except BaseException as error:
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next
            problem = error
        try:
            home.call_soon_threadsafe(_thread_ended, scheduler, entry, ended, output, problem)
        except RuntimeError:  # the loop is closed: there is nothing left to tell
            return
        finally:
            del problem

    entry.thread = True
    try:
        scheduler.threads.start(call)
    except BaseException:
        entry.thread = False
        raise
    output, problem = await ended
    if problem is not None:
        try:
            raise problem
        finally:
            del problem
    if inspect.isawaitable(output):
        output = await output
    if inspect.isgenerator(output) or inspect.isasyncgen(output):
        raise TypeError(
            f"the job returned {type(output).__name__} {output.__name__!r}, which nobody would "
            "run; collect what it yields and return that"
        )
    return output


def _thread_ended(
    scheduler: Scheduler,
    entry: Entry,
    ended: Future[tuple[Any, BaseException | None]],
    output: Any,
    problem: BaseException | None,
) -> None:
    if not ended.done():
        entry.thread = False
        ended.set_result((output, problem))
        return
    # The run was cancelled meanwhile: what comes late is discarded, the permit comes back.
    if inspect.iscoroutine(output):
        output.close()
    scheduler.thread_ended(entry)
