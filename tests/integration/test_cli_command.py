"""The `agentq` command itself: how it is found, and what it says about its use."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import Bench

import agentq
from agentq._version import __version__


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path) as bench:
        yield bench


def test_version(bench: Bench) -> None:
    ended = bench.run("--version")
    assert (ended.status, ended.stdout, ended.stderr) == (0, f"agentq {__version__}\n", "")


def test_the_installed_script_is_the_same_command(bench: Bench) -> None:
    script = Path(sys.executable).with_name("agentq")
    if not script.exists():
        pytest.skip("agentq is not installed beside this interpreter")
    ended = subprocess.run([script, "--version"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, f"agentq {__version__}\n")


def test_a_default_lane_can_be_given_other_limits(bench: Bench) -> None:
    ended = bench.run_batch([{"argv": ["true"], "lane": "high"}], "--lane", "high=1:1")
    assert ended.status == 0


@pytest.mark.parametrize("library", ["typer", "rich"])
def test_without_its_libraries_it_says_how_to_get_them(tmp_path: Path, library: str) -> None:
    # As on a machine where only the base package is installed.
    (tmp_path / f"{library}.py").write_text(
        f"raise ModuleNotFoundError(\"No module named '{library}'\", name='{library}')\n"
    )
    program = "import sys; sys.path.insert(0, sys.argv.pop()); from agentq.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program, "run", "b", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if library == "typer":
        assert ended.stderr == (
            "agentq: the command line needs typer, which is not installed; "
            "install it with: pip install 'agentq-py[cli]'\n"
        )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr


def test_the_library_does_not_load_the_command_line() -> None:
    program = (
        "import sys, agentq; "
        "print([m for m in sys.modules if m.split('.')[0] in ('typer', 'rich', 'click')"
        " or m.startswith('agentq.cli')])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "[]\n"
    assert agentq.__all__
