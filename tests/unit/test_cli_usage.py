"""What the command line refuses before anything runs, and what it says about itself."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from agentq.cli.app import app


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), prog_name="agentq")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"]])
def test_help(arguments: list[str]) -> None:
    ended = run(*arguments)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert ended.stdout.lstrip().startswith("Usage: agentq")


def test_help_names_every_option_and_exit_status() -> None:
    told = run("run", "--help").stdout
    options = ["--lane", "--retry", "--timeout", "--results", "--json", "--quiet", "--max-output"]
    assert [option for option in options if option not in told] == []
    assert "130" in told


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "Usage: agentq"),
        (["walk"], "No such command 'walk'"),
        (["run"], "Missing argument"),
        (["run", "b", "--lane", "fast"], "must be NAME=PERMITS or NAME=PERMITS:CAPACITY"),
        (["run", "b", "--lane", "=3"], "must be NAME=PERMITS or NAME=PERMITS:CAPACITY"),
        (["run", "b", "--lane", "fast=-1"], "must be NAME=PERMITS or NAME=PERMITS:CAPACITY"),
        (["run", "b", "--lane", "fast=1:"], "must be NAME=PERMITS or NAME=PERMITS:CAPACITY"),
        (["run", "b", "--lane", "fast=0"], "permits and capacity must be 1 or more"),
        (["run", "b", "--lane", "fast=1:0"], "permits and capacity must be 1 or more"),
        (["run", "b", "--lane", "a=1", "--lane", "a=2"], "lane 'a' is given twice"),
        (["run", "b", "--retry", "-1"], "--retry"),
        (["run", "b", "--retry", "one"], "--retry"),
        (["run", "b", "--timeout", "0"], "timeout must be more than 0 seconds and finite"),
        (["run", "b", "--timeout", "nan"], "timeout must be more than 0 seconds and finite"),
        (["run", "b", "--timeout", "inf"], "timeout must be more than 0 seconds and finite"),
        (["run", "b", "--max-output", "-1"], "--max-output"),
    ],
)
def test_bad_usage_is_told_and_exits_with_2(arguments: list[str], problem: str) -> None:
    ended = run(*arguments)
    assert ended.exit_code == 2
    assert problem in " ".join(ended.output.split())


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing.jsonl", "No such file or directory"),
        (".", "Is a directory"),
        ("/proc/self/mem", "Input/output error"),
    ],
)
def test_a_batch_that_cannot_be_read(name: str, problem: str) -> None:
    ended = run("run", name)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr == f"agentq: cannot read {name!r}: {problem}\n"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no/where.jsonl", "cannot write results to 'no/where.jsonl': No such file or directory"),
        (".", "cannot write results to '.': Is a directory"),
        ("batch.jsonl", "'batch.jsonl' is the batch itself; write the results to another file"),
        ("link.jsonl", "'link.jsonl' is the batch itself; write the results to another file"),
    ],
)
def test_results_that_cannot_be_written_are_refused_first(
    here: Path, name: str, problem: str
) -> None:
    (here / "link.jsonl").symlink_to("batch.jsonl")
    batch = here / "batch.jsonl"
    batch.write_text('{"shell": "echo ran > ran"}\n')
    ended = run("run", "batch.jsonl", "--results", name)
    assert (ended.exit_code, ended.stderr) == (2, f"agentq: {problem}\n")
    assert not (here / "ran").exists()
    assert batch.read_text() == '{"shell": "echo ran > ran"}\n'


def test_many_bad_lines_are_counted(here: Path) -> None:
    (here / "batch.jsonl").write_text("[]\n" * 50)
    lines = run("run", "batch.jsonl").stderr.splitlines()
    assert lines[19] == "agentq: line 20: must be a JSON object, not an array"
    assert lines[20:] == ["agentq: and 30 more bad lines", "agentq: nothing was run"]
