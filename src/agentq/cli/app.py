"""The verbs of the command line, their options and their exit statuses."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from agentq import LaneConfig, Priority, Retry
from agentq._version import __version__
from agentq.cli import fields
from agentq.cli.batch import Line, Parser
from agentq.cli.board import Board
from agentq.cli.event_loop import run_to_its_end
from agentq.cli.lines import Stream
from agentq.cli.loading import BadBatch, load
from agentq.cli.output import Output, log_harmlessly, settle_standard_output
from agentq.cli.processes import Processes, expect_children
from agentq.cli.programs import program_task
from agentq.cli.report import say
from agentq.cli.results_file import ResultsFile
from agentq.cli.run import BatchRun
from agentq.cli.spool import Spool

OK, SOME_FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130

DEFAULT_MAX_OUTPUT = 1_000_000

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A job queue: each key runs once, each lane within its limits.",
)


def _version(wanted: bool) -> None:  # noqa: FBT001 (typer calls it)
    if wanted:
        typer.echo(f"agentq {__version__}")
        raise typer.Exit


@app.callback()
def _agentq(
    version: Annotated[  # noqa: FBT002 (an option)
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Take the options that belong to no verb."""


@app.command()
def run(
    batch: Annotated[
        str,
        typer.Argument(metavar="BATCH", help="A file with one JSON object a line; - for stdin."),
    ],
    lane: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PERMITS[:CAPACITY]",
            help="A lane: how many of its jobs may run, and how many may wait. Repeatable.",
        ),
    ] = None,
    retry: Annotated[
        int, typer.Option(min=0, metavar="N", help="Try a failed job up to N more times.")
    ] = 0,
    timeout: Annotated[
        float | None, typer.Option(metavar="S", help="End each try after S seconds.")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one line of JSON per line of the batch."),
    ] = None,
    as_json: Annotated[  # noqa: FBT002 (an option)
        bool, typer.Option("--json", help="Print these lines of JSON, and nothing else.")
    ] = False,
    quiet: Annotated[  # noqa: FBT002 (an option)
        bool, typer.Option("--quiet", "-q", help="Print only what failed, on stderr.")
    ] = False,
    max_output: Annotated[
        int,
        typer.Option(min=0, metavar="BYTES", help="How much of an output to keep."),
    ] = DEFAULT_MAX_OUTPUT,
) -> None:
    """Run a batch of programs and Python calls, each key once.

    Exits with 0 when every line has completed, 1 when some have not, 2 when nothing was run
    because something is wrong with the batch or the options, and 130 when interrupted (143 by
    SIGTERM, 129 by SIGHUP). The first Ctrl-C lets running jobs finish, the second cancels them,
    the third kills them; lines without a result by then get theirs in the results file only.
    """
    lanes = _lanes(lane or [])
    if timeout is not None:
        try:
            timeout = fields.timeout(timeout)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--timeout") from None
    processes, spool = Processes(), Spool()
    parser = Parser(
        program_task(processes, spool, max_output),
        list(dict.fromkeys([*map(str, Priority), *lanes])),
        timeout=timeout,
        retry=Retry(attempts=retry + 1) if retry else None,
    )
    sys.path.insert(0, str(Path.cwd()))
    log_harmlessly()
    expect_children()
    output = Output(as_json=as_json, quiet=quiet)
    try:
        source = _source(batch, parser)
        recorded = _results_file(results, batch)
        board = Board(parser.lanes)
        total = len(source) if isinstance(source, list) else None
        batch_run = BatchRun(
            lanes,
            max_output=max_output,
            processes=processes,
            reporter=output.reporter(board, total),
            board=board,
            results=recorded,
        )
        status = _run(batch_run, source)
    except KeyboardInterrupt:
        status = INTERRUPTED
    finally:
        spool.close()
    raise typer.Exit(status)


def _run(batch_run: BatchRun, source: list[Line] | tuple[Stream, Parser]) -> int:
    """Run a batch to its end. Returns the exit status, if the process should end as usual."""
    interrupts = batch_run.interrupts
    try:
        ended = run_to_its_end(batch_run.run(source), interrupts)
    except BaseException:
        batch_run.abandon()
        raise
    completed = batch_run.close() and batch_run.board.all_completed
    settle_standard_output()
    status = interrupts.status
    if status is None:
        status = OK if completed else SOME_FAILED
    if not ended or interrupts.cancelling or batch_run.broken_off:
        os._exit(status)  # threads that were given up must not hold up the end
    return status


def _lanes(options: list[str]) -> dict[str, LaneConfig]:
    lanes: dict[str, LaneConfig] = {}
    for option in options:
        try:
            name, config = fields.lane_option(option)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--lane") from None
        if name in lanes:
            raise typer.BadParameter(f"lane {name!r} is given twice", param_hint="--lane")
        lanes[name] = config
    return lanes


def _source(batch: str, parser: Parser) -> list[Line] | tuple[Stream, Parser]:
    if batch == "-":
        if sys.stdin is None:
            _refuse("standard input is closed")
        return Stream(sys.stdin.fileno()), parser
    try:
        return load(Path(batch), parser)
    except BadBatch as error:
        _refuse(*error.problems)


def _results_file(path: Path | None, batch: str) -> ResultsFile | None:
    """Open the file for results, unless that would destroy the batch."""
    if path is None:
        return None
    try:
        read = os.fstat(0) if batch == "-" else Path(batch).stat()
        if path.exists() and os.path.samestat(read, path.stat()):
            _refuse(f"{str(path)!r} is the batch itself; write the results to another file")
        return ResultsFile(path)
    except OSError as error:
        _refuse(f"cannot write results to {str(path)!r}: {error.strerror}")
    except ValueError as error:
        _refuse(f"cannot write results to {str(path)!r}: {error}")


def _refuse(*problems: str) -> NoReturn:
    for problem in problems:
        say(problem)
    raise typer.Exit(BAD_USAGE)
