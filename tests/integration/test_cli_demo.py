"""The demo keeps its promises, from anywhere, and leaves nothing in the tree."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo"


def tree() -> list[Path]:
    return sorted(path for path in DEMO.rglob("*") if "__pycache__" not in path.parts)


def test_the_demo(tmp_path: Path) -> None:
    before = tree()
    ended = subprocess.run(
        [sys.executable, "-B", str(DEMO / "demo.py")],
        cwd=tmp_path,
        env={**os.environ, "AGENTQ_DEMO_CALL_SECONDS": "0.05"},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    verdict = ended.stdout.splitlines()[-6:]
    assert [line.split()[0] for line in verdict if line] == ["yes"] * 5
    assert "65 completed, 1 failed; 50 ran, 16 shared an earlier line's result" in ended.stdout
    assert "52  executions, counted from outside" in ended.stdout
    assert tree() == before
    assert list(tmp_path.iterdir()) == []


def test_the_batch_that_ships_is_the_one_that_is_made() -> None:
    made = subprocess.run(
        [sys.executable, "-B", str(DEMO / "make_batch.py")], capture_output=True, check=True
    )
    assert (DEMO / "batch.jsonl").read_bytes() == made.stdout
    assert len(made.stdout.splitlines()) >= 60


@pytest.mark.parametrize(
    "spoil",
    [
        lambda executions, _: executions.update(["lines:README.md"]),
        lambda executions, _: executions.pop("lines:README.md"),
        lambda _, ended: ended.pop(),
        lambda _, ended: ended[-1].update(output="something else"),
        lambda _, ended: ended[0].update(state="failed"),
    ],
)
def test_the_verdict_can_be_no(spoil: object) -> None:
    program = (
        "import json, sys; from collections import Counter; import demo\n"
        "status, executions, ended = json.load(sys.stdin)\n"
        "sys.exit(demo.verdict(status, Counter(executions), ended))"
    )
    executions, ended = whole_run()
    assert callable(spoil)
    assert judged(program, executions, ended) == 0
    spoil(executions, ended)
    assert judged(program, executions, ended) == 1


def judged(program: str, executions: dict[str, int], ended: list[dict[str, object]]) -> int:
    given = json.dumps([1, executions, ended])
    command = [sys.executable, "-B", "-c", program]
    return subprocess.run(
        command, input=given, text=True, cwd=DEMO, capture_output=True, check=False
    ).returncode


def whole_run() -> tuple[Counter[str], list[dict[str, object]]]:
    """A run as it should be."""
    keys: list[str] = []
    ended: list[dict[str, object]] = []
    for number, line in enumerate((DEMO / "batch.jsonl").read_text().splitlines(), 1):
        call = json.loads(line)
        key = call.get("key") or f"{call['task']}:{call.get('args') or call.get('kwargs')}"
        key = "flaky:billing" if "flaky" in key else key
        ended.append(
            {
                "line": number,
                "key": key,
                "ran": "joined" if key in keys else "ran",
                "state": "failed" if key == "missing:notes.md" else "completed",
                "output": key,
            }
        )
        keys.append(key)
    executions = Counter(dict.fromkeys(keys, 1))
    executions["flaky:billing"] = 3
    return executions, ended
