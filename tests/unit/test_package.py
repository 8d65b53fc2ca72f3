"""What `import agentq` gives, and what it leaves alone."""

import ast
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import agentq

SOURCE = Path(agentq.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))


def test_the_public_names_are_these_and_no_others() -> None:
    assert sorted(agentq.__all__) == [
        "Accepted",
        "AgentqError",
        "BlockingQueue",
        "Cached",
        "Completed",
        "Failed",
        "InFlight",
        "InvalidKey",
        "Job",
        "JobContext",
        "JobFailed",
        "JobHandle",
        "JobLost",
        "KeyConflict",
        "LaneConfig",
        "LaneStats",
        "Outcome",
        "Pending",
        "Priority",
        "Processing",
        "Queue",
        "QueueClosed",
        "Queued",
        "Retention",
        "Retry",
        "State",
        "Transition",
        "UnknownLane",
        "WouldDeadlock",
        "current",
        "task",
    ]
    for name in agentq.__all__:
        assert getattr(agentq, name) is not None


def test_no_other_name_is_visible_in_the_package() -> None:
    visible = {
        name
        for name, value in vars(agentq).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert visible == set(agentq.__all__)


def test_importing_it_loads_no_driver_and_no_command_line() -> None:
    script = (
        "import sys; before = set(sys.modules); import agentq; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=15, check=True
    )
    loaded = set(run.stdout.split())
    assert "agentq" in loaded
    assert loaded & {"typer", "rich", "click", "sqlite3", "_sqlite3", "psycopg", "uvloop"} == set()


def test_it_says_that_it_is_typed() -> None:
    assert (SOURCE / "py.typed").is_file()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_small_enough_to_hold_in_mind(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_everything_public_has_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module itself"
    missing = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            members = [node, *node.body]
        elif node is tree:
            members = tree.body
        else:
            continue
        missing += [
            member.name
            for member in members
            if isinstance(member, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and not member.name.startswith("_")
            and not ast.get_docstring(member)
            and not any(
                isinstance(mark, ast.Name) and mark.id == "overload"
                for mark in member.decorator_list
            )
        ]
    assert missing == []


def test_every_error_is_an_agentq_error() -> None:
    errors = [
        agentq.InvalidKey,
        agentq.JobFailed,
        agentq.JobLost,
        agentq.KeyConflict,
        agentq.QueueClosed,
        agentq.UnknownLane,
        agentq.WouldDeadlock,
    ]
    assert all(issubclass(error, agentq.AgentqError) for error in errors)
    assert issubclass(agentq.InvalidKey, ValueError)
    assert not issubclass(agentq.AgentqError, ValueError)


def test_errors_about_a_job_name_it_and_survive_pickling() -> None:
    failed = agentq.JobFailed("charge:7", "ValueError: no")
    lost = agentq.JobLost("charge:8", "the queue closed")
    assert str(failed) == "job 'charge:7' failed: ValueError: no"
    assert str(lost) == "job 'charge:8' is lost: the queue closed"
    for error in (failed, lost):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.key, copy.reason) == (type(error), error.key, error.reason)
