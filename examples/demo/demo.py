"""Runs the demo batch with `agentq run`, then counts from outside how often each key was executed.

Every call appends a line to a log file when it is executed. The queue knows nothing of that file,
so what it says cannot be made to look better than it was.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
BATCH = HERE / "batch.jsonl"
LANES = {"files": 6, "cpu": 2, "api": 1}
FAILING = "missing:notes.md"
FLAKY = "flaky:billing"
FLAKY_TRIES = 3


def main() -> int:
    """Run, count, give the verdict. Returns the exit status: 0 when all was as promised."""
    with tempfile.TemporaryDirectory(prefix="agentq-demo-") as directory:
        log, results = Path(directory, "executions.log"), Path(directory, "results.jsonl")
        print(f"agentq run {BATCH.relative_to(REPOSITORY)}", *lane_options(), flush=True)
        status = subprocess.run(
            [
                *(sys.executable, "-m", "agentq", "run", str(BATCH)),
                *(*lane_options(), "--results", str(results)),
            ],
            cwd=REPOSITORY,
            env={**os.environ, "AGENTQ_DEMO_LOG": str(log), "PYTHONDONTWRITEBYTECODE": "1"},
            check=False,
        ).returncode
        if not (log.exists() and results.exists()):
            print(f"\nthe batch did not run; agentq run exited with {status}")
            return status or 1
        executions = Counter(line.rpartition(" ")[0] for line in log.read_text().splitlines())
        ended = [json.loads(line) for line in results.read_text().splitlines()]
    if status == 130:
        print("\ninterrupted, so there is nothing to judge")
        return status
    return verdict(status, executions, ended)


def lane_options() -> list[str]:
    """The lanes of the demo, as options."""
    return [part for name, permits in LANES.items() for part in ("--lane", f"{name}={permits}")]


def verdict(status: int, executions: Counter[str], ended: list[dict[str, Any]]) -> int:
    """Hold what was counted against what was promised."""
    lines = len(BATCH.read_text().splitlines())
    keys = {result["key"] for result in ended}
    ran = {result["key"]: result for result in ended if result["ran"] == "ran"}
    failed = {result["key"] for result in ended if result["state"] != "completed"}
    repeated = {key: count for key, count in executions.items() if count > 1}
    print()
    show("lines in the batch", lines)
    show("distinct keys", len(keys))
    show("lines that shared an earlier line's result", lines - len(ran))
    show("executions, counted from outside", executions.total())
    show(f"  of them retries of {FLAKY}, which fails twice and then works", FLAKY_TRIES - 1)
    show(f"calls that failed: {FAILING}, which is meant to", len(failed))
    print()
    promises = {
        "every line has a result": sorted(result["line"] for result in ended)
        == list(range(1, lines + 1)),
        "every key was executed once, but for the retries": set(executions) == keys
        and repeated == {FLAKY: FLAKY_TRIES},
        "every line has the result of its key's execution": all(
            answer(result) == answer(ran[result["key"]]) for result in ended
        ),
        "one call failed, and it is the one that is meant to": failed == {FAILING},
        "the exit status says that something failed": status == 1,
    }
    for promise, kept in promises.items():
        print(f"{'yes' if kept else 'NO':>5}  {promise}")
    return 0 if all(promises.values()) else 1


def show(what: str, number: int) -> None:
    """Print one row."""
    print(f"{number:>5}  {what}")


def answer(result: dict[str, Any]) -> tuple[Any, ...]:
    """What a line was answered with."""
    return result["state"], result.get("output"), result.get("reason")


if __name__ == "__main__":
    sys.exit(main())
