"""C14: closing does not wait for ever on a job stuck in a thread.

Right: closing returns within its grace and a little, the waiter is told, the process ends.
"""

import time

import pytest
from conftest import RunProgram


@pytest.mark.parametrize("kind", ["queue", "blocking"])
def test_a_job_stuck_in_a_call_holds_up_neither_closing_nor_the_interpreter(
    run_program: RunProgram, kind: str
) -> None:
    started = time.monotonic()
    run = run_program("stuck_in_a_call.py", kind, limit=10)
    assert run.stdout.splitlines() == [
        "stuck",
        "the queue closed before the job ended",
        "Failed(reason='lost: the queue closed before the job ended')",
        "closed",
    ]
    assert run.returncode == 0
    assert time.monotonic() - started < 4  # with the start and the end of the interpreter
