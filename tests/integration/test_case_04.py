"""C04: SystemExit, KeyboardInterrupt or another BaseException from a job.

Right: `Failed` names the type, both waiters are told, the permit is back, the queue lives on. Only
an interrupt is passed on, after it was recorded: Ctrl-C still stops the program.
"""

import signal

import pytest
from conftest import RunProgram

REASONS = {
    "exit-0": "SystemExit: 0",
    "exit-text": "SystemExit: text",
    "odd": "OddError: odd",
    "generator-exit": "GeneratorExit",
    "cancelled": "CancelledError",
}


@pytest.mark.parametrize("kind", ["loop", "thread"])
@pytest.mark.parametrize("exit_name", REASONS)
def test_both_waiters_are_told_and_the_queue_lives_on(
    run_program: RunProgram, exit_name: str, kind: str
) -> None:
    run = run_program("one_exit.py", exit_name, kind, limit=5)
    reason = REASONS[exit_name]
    assert run.stdout.splitlines() == [reason, reason, "normal", "free 1"]
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["loop", "thread"])
def test_an_interrupt_is_recorded_and_then_stops_the_program(
    run_program: RunProgram, kind: str
) -> None:
    run = run_program("one_exit.py", "interrupt", kind, limit=5)
    assert run.stdout.splitlines() == ["recorded Failed(reason='KeyboardInterrupt')"]
    assert run.returncode == -signal.SIGINT
    assert run.stderr.splitlines()[-1] == "KeyboardInterrupt"
