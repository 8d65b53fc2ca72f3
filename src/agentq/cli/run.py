"""Runs a batch: feeds its lines to a queue, lane by lane, and reports the end of every line."""

from __future__ import annotations

import asyncio
import time
from asyncio import Semaphore, Task, TaskGroup
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from agentq import (
    Accepted,
    Cached,
    Completed,
    Failed,
    InFlight,
    JobLost,
    LaneConfig,
    Outcome,
    Pending,
    Processing,
    Queue,
    QueueClosed,
    Transition,
)
from agentq.cli.batch import BadLine, Line, Parser
from agentq.cli.board import Board
from agentq.cli.history import NOT_STARTED, History
from agentq.cli.interrupts import Interrupts
from agentq.cli.lines import Stream
from agentq.cli.lineup import LineUp
from agentq.cli.processes import GRACE_SECONDS, PIPE_SECONDS, Processes
from agentq.cli.report import Reporter, say
from agentq.cli.results import Ran, Result, Shown, State, shown
from agentq.cli.results_file import ResultsFile

JOINED_AHEAD = 1000
"""How many lines of a lane may be outstanding beyond those that its queue holds."""

_PATIENCE = GRACE_SECONDS + PIPE_SECONDS + 1.0
"""How many seconds what was cancelled may take to end before it is given up."""

_PARSED_AT_ONCE = 50


class BatchRun:
    """One run of one batch.

    Args:
        lanes: the lanes beside the default ones.
        max_output: how much of an output a result gives, in bytes.
        processes: where the programs of the batch run.
        reporter: shows results.
        board: the numbers of the run, for every lane there is.
        results: where results are recorded, if anywhere.

    Attributes:
        interrupts: what signals have asked for; to be installed around `run`.
        reporter, board: as given.
        broken_off: whether it has ended before its lines had, though no signal asked for it.
    """

    def __init__(
        self,
        lanes: Mapping[str, LaneConfig],
        *,
        max_output: int,
        processes: Processes,
        reporter: Reporter,
        board: Board,
        results: ResultsFile | None,
    ) -> None:
        self._queue = Queue(lanes, on_change=self._changed)
        self._max_output = max_output
        self._processes = processes
        self.reporter = reporter
        self._results = results
        self.board = board
        self._lineups = {name: LineUp() for name in board.lanes}
        self._reader: Task[None] | None = None
        self._stopped = False
        # Lines whose result is not recorded yet, by number.
        self._open: dict[int, Line] = {}
        self._recording = False
        self._leave: Callable[[], object] | None = None
        self._history = History()
        self.interrupts = Interrupts(self._interrupt, self._cancel, self._abort)
        self.broken_off = False
        self._trouble = False

    async def run(self, source: Iterable[Line] | tuple[Stream, Parser]) -> None:
        """Run every line of `source`, and return when all of them have ended.

        Lines that are parsed already are all taken at once; a stream is read as lanes have room.

        Nobody but a job can cancel this. Then it ends as when interrupted twice, does not raise,
        and is `broken_off`.
        """
        try:
            async with self._queue:
                try:
                    async with TaskGroup() as group:
                        self._start(group, source)
                finally:
                    await self._leave_nothing()
        except asyncio.CancelledError:
            self._break_off()
        if (trouble := await self.reporter.finish()) is not None:
            self._trouble = True
            say(trouble)

    def abandon(self) -> None:
        """Leave no program behind and the terminal usable, after an error that ends the run."""
        self._processes.kill()
        self.reporter.abort()

    def close(self) -> bool:
        """Close the file of results. Returns whether all that was to be read or written was."""
        trouble = None if self._results is None else self._results.close()
        if trouble is not None:
            self._trouble = True
            say(trouble)
        return not self._trouble

    def _start(self, group: TaskGroup, source: Iterable[Line] | tuple[Stream, Parser]) -> None:
        stats = self._queue.stats()
        if isinstance(source, tuple):
            self._reader = group.create_task(self._read(*source), name="agentq reader")
        else:
            for line in source:
                self._open[line.number] = line
                self.board.fed(line.lane)
                self._lineups[line.lane].add(line)
            for lineup in self._lineups.values():
                lineup.close()
        for name, lineup in self._lineups.items():
            ahead = stats[name].capacity + stats[name].permits + JOINED_AHEAD
            feeder = self._feed(group, lineup, Semaphore(ahead))
            group.create_task(feeder, name=f"agentq feeder {name}")

    async def _leave_nothing(self) -> None:
        """Wait for programs that are being ended; after an error, end those that run."""
        if self._open:
            self._break_off()
            self._stop()
            self._queue.close()
            self._processes.kill()
            for line in list(self._open.values()):
                self._tell(self._cut_short(line, "the run ended before it did"))
        if not await self._processes.gone(_PATIENCE):
            self._processes.kill()

    # ── feeding ──────────────────────────────────────────────────────────────────────────────

    async def _read(self, stream: Stream, parser: Parser) -> None:
        parsed = 0
        try:
            async for number, raw in stream.lines():
                try:
                    line = parser.parse(number, raw)
                except BadLine as bad:
                    self._bad(bad)
                    await self.reporter.room()
                    continue
                self._open[line.number] = line
                self.board.fed(line.lane)
                lineup = self._lineups[line.lane]
                lineup.add(line)
                await lineup.room()
                parsed += 1
                if parsed % _PARSED_AT_ONCE == 0:
                    await asyncio.sleep(0)
        except OSError as error:
            self._fault(f"cannot read standard input: {error.strerror}")
        finally:
            for lineup in self._lineups.values():
                lineup.close()

    async def _feed(self, group: TaskGroup, lineup: LineUp, window: Semaphore) -> None:
        await window.acquire()
        while (line := await lineup.take()) is not None:
            failure = self._history.failure(line.job.key)
            ran, accepted, began = Ran.CACHED, None, time.monotonic()
            try:
                # The queue would run a failed key again; within one batch a key runs once.
                if failure is None:
                    accepted = await self._queue.push(line.job)
            except QueueClosed as error:
                ran, failure = Ran.NO, (State.LOST, str(error))
            if accepted is not None:
                watcher = self._watch(line, accepted, began, window)
                group.create_task(watcher, name=f"agentq line {line.number}")
            elif failure is not None:
                window.release()
                self._end(line, ran, *failure)
                await self.reporter.room()
            await window.acquire()

    async def _watch(self, line: Line, accepted: Accepted, began: float, window: Semaphore) -> None:
        ran, seconds, attempts = Ran.CACHED, 0.0, 0
        outcome: Outcome | JobLost
        if isinstance(accepted, Cached):
            outcome = Completed(accepted.output)
        else:
            try:
                outcome = await accepted.handle
            except JobLost as lost:
                outcome = lost
            if isinstance(accepted, InFlight):
                ran, seconds = Ran.JOINED, time.monotonic() - began
            else:
                tries = self._history.tries(line.job.key)
                ran, seconds, attempts = Ran.RAN, tries.seconds, tries.count
        if isinstance(outcome, Completed):
            form = shown(outcome.output, self._max_output)
            self._tell(_result(line, State.COMPLETED, ran, seconds, attempts, output=form))
        elif isinstance(outcome, Failed):
            state, reason = self._history.failure(line.job.key) or (State.FAILED, outcome.reason)
            self._end(line, ran, state, reason, seconds, attempts)
        else:
            self._end(line, ran, State.LOST, outcome.reason, seconds, attempts)
        if ran is Ran.RAN:
            self._history.forget_tries(line.job.key)
        window.release()
        await self.reporter.room()

    def _changed(self, change: Transition) -> None:
        self._history.changed(change)
        counts = self.board.lanes[change.lane]
        counts.running += isinstance(change.after, Processing)
        counts.running -= isinstance(change.before, Processing)
        if self._stopped and isinstance(change.after, Pending):
            # Its try has failed; what was interrupted is not tried again.
            asyncio.get_running_loop().call_soon(self._drop, change.key)

    # ── the end of a line ────────────────────────────────────────────────────────────────────

    def _end(
        self,
        line: Line,
        ran: Ran,
        state: State,
        reason: str | None,
        seconds: float = 0.0,
        attempts: int = 0,
    ) -> None:
        if state is State.NOT_RUN:
            ran, seconds = Ran.NO, 0.0
        self._tell(_result(line, state, ran, seconds, attempts, reason=reason))

    def _bad(self, bad: BadLine) -> None:
        label = bad.key or "(bad line)"
        result = Result(bad.number, bad.key, None, label, State.FAILED, Ran.NO, reason=bad.reason)
        self._tell(result)

    def _tell(self, result: Result) -> None:
        self.board.ended(result)
        self.reporter.result(result)
        self._recording = True
        try:
            if self._results is not None:
                self._results.write(result)
        except OSError as error:
            self._results = None
            self._fault(f"cannot write results, so no more jobs are started: {error.strerror}")
        finally:
            self._open.pop(result.line, None)
            self._recording = False
            self._aborted()  # if an interrupt has asked for it meanwhile

    # ── stopping ─────────────────────────────────────────────────────────────────────────────

    def _fault(self, message: str) -> None:
        self._trouble = True
        self.reporter.notice(message)
        self._stop()

    def _break_off(self) -> None:
        if not self.broken_off:
            self.broken_off = True
            self._fault("a job has cancelled the tasks of the batch, so it ends here")
            self.reporter.hurry()

    def _interrupt(self) -> None:
        self._stop()
        running = sum(counts.running for counts in self.board.lanes.values())
        self.reporter.notice(
            f"interrupted: nothing more is started; waiting for {running} running "
            f"{'job' if running == 1 else 'jobs'}; interrupt again to cancel"
        )

    def _stop(self) -> None:
        """Start nothing more, and report at once what has not started."""
        if self._stopped:
            return
        self._stopped = True
        if self._reader is not None:
            self._reader.cancel()
        for lineup in self._lineups.values():
            for line in lineup.clear():
                if self._has_begun(line.job.key):
                    lineup.add(line)  # its call has happened or happens now, so it has an answer
                else:
                    self._end(line, Ran.NO, State.NOT_RUN, NOT_STARTED)
            lineup.close()
        for line in list(self._open.values()):
            if isinstance(self._queue.state(line.job.key), Pending):
                self._drop(line.job.key)

    def _has_begun(self, key: str) -> bool:
        return self._history.has_begun(key) or isinstance(self._queue.state(key), Completed)

    def _drop(self, key: str) -> None:
        self._history.drop(key)
        self._queue.cancel(key)

    def _cancel(self) -> None:
        """Cancel what runs. What does not end although it was cancelled is given up."""
        self._stop()
        self.reporter.notice("interrupted again: cancelling; once more to kill and leave")
        self.reporter.hurry()
        for key in {line.job.key for line in self._open.values()}:
            self._queue.cancel(key)
        asyncio.get_running_loop().call_later(_PATIENCE, self._queue.close)

    def _abort(self, leave: Callable[[], object]) -> None:
        """Kill everything and leave. Called by a signal handler, in the middle of anything."""
        if self._leave is not None:
            return
        self._leave = leave
        if self._results is not None:
            self._results.hurry()
        self._processes.kill(self._aborted)

    def _aborted(self) -> None:
        """Record what is left and leave, unless a result is half recorded: then soon."""
        if self._recording or self._leave is None:
            return
        if self._results is not None:
            with suppress(OSError):
                for line in list(self._open.values()):
                    self._results.write(self._cut_short(line, "killed by an interrupt"))
        self.reporter.abort()
        self._leave()

    def _cut_short(self, line: Line, reason: str) -> Result:
        """The end of a line whose own end cannot be waited for."""
        key = line.job.key
        if not self._has_begun(key):
            return _result(line, State.NOT_RUN, Ran.NO, reason=NOT_STARTED)
        state, reason = self._history.failure(key) or (State.LOST, reason)
        if not line.first:
            return _result(line, state, Ran.JOINED, reason=reason)
        tries = self._history.tries(key)
        return _result(line, state, Ran.RAN, tries.seconds, tries.count, reason=reason)


def _result(
    line: Line,
    state: State,
    ran: Ran,
    seconds: float = 0.0,
    attempts: int = 0,
    *,
    output: Shown | None = None,
    reason: str | None = None,
) -> Result:
    return Result(
        line=line.number,
        key=line.job.key,
        lane=line.lane,
        label=line.label,
        state=state,
        ran=ran,
        seconds=seconds,
        attempts=attempts,
        output=output,
        reason=reason,
    )
