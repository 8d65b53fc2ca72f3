"""Do something with every supported Python that this machine has, besides the default one.

    python scripts/interpreters.py list
    python scripts/interpreters.py test          the test suite, each in a venv of its own, and
                                                 the unit tests with eager tasks
    python scripts/interpreters.py bench-eager   the benchmark with eager tasks, on the newest

Looked for: `python3.X` on the path, and what pyenv has installed. One that does not run, or is
older than 3.11, is left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
Version = tuple[int, int]


def found() -> dict[Version, Path]:
    """The interpreters by version, one each, without the running one's version."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [
        Path(name) for minor in range(11, 20) if (name := shutil.which(f"python3.{minor}"))
    ]
    candidates += sorted(pyenv.glob("versions/*/bin/python"))
    interpreters: dict[Version, Path] = {}
    for path in candidates:
        version = version_of(path)
        if version is not None and version >= OLDEST and version != sys.version_info[:2]:
            interpreters.setdefault(version, path)
    return dict(sorted(interpreters.items()))


def version_of(path: Path) -> Version | None:
    """Its version, or None when it does not run or cannot make a venv."""
    code = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
    ran = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
    if ran.returncode:
        return None
    major, minor = ran.stdout.split()
    return int(major), int(minor)


def environment(interpreter: Path, name: str, extras: str, group: str) -> Path:
    """The Python of a venv in the clone, made or renewed when pyproject.toml is newer."""
    venv = ROOT / name
    ready = venv / ".ready"
    python = venv / "bin" / "python"
    if not ready.exists() or ready.stat().st_mtime < (ROOT / "pyproject.toml").stat().st_mtime:
        subprocess.run([interpreter, "-m", "venv", "--clear", venv], check=True)
        install = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*install, "--upgrade", "pip"], check=True)
        subprocess.run([*install, "--editable", f"{ROOT}{extras}", "--group", group], check=True)
        ready.touch()
    return python


def main() -> int:
    """Do what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["list", "test", "bench-eager"])
    what = parser.parse_args().what
    interpreters = found()
    if what == "list":
        for version, path in interpreters.items():
            print("{}.{}".format(*version), path)
        return 0
    if what == "bench-eager":
        eager = [version for version in interpreters if version >= (3, 12)]
        if not eager:
            print("the eager task factory needs Python 3.12 or newer, and none was found")
            return 0
        python = environment(interpreters[eager[-1]], ".venv-bench-eager", "", "bench")
        command = [str(python), "benchmarks/in_process.py", "--eager", "--no-memory"]
        return subprocess.run(command, cwd=ROOT, check=False).returncode
    failed: list[str] = []
    runs: list[list[str]]
    for version, path in interpreters.items():
        name = "{}.{}".format(*version)
        print(f"\nPython {name}", flush=True)
        python = environment(path, f".venv-{name}", "[cli]", "test")
        runs = [[], ["tests/unit", "--loop", "eager"]] if version >= (3, 12) else [[]]
        for arguments in runs:
            command = [str(python), "-m", "pytest", *arguments]
            if subprocess.run(command, cwd=ROOT, check=False).returncode:
                failed.append(name)
    if failed:
        print(f"\nfailed on Python {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
