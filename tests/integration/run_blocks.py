"""Runs the blocks of one page in order, in one namespace and one directory.

Reads `{"mark": …, "blocks": [{"page", "line", "kind", "source"}, …]}` from standard input, and
prints the mark on a line of its own after each block, so that one block's output can be told from
the next one's. A block that raises ends the run; its traceback has the page's line numbers.
"""

import ast
import asyncio
import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any


def run_python(block: dict[str, Any], space: dict[str, Any], runner: asyncio.Runner) -> None:
    """Run a block; one with a top-level `await` runs on the page's event loop."""
    source = "\n" * block["line"] + block["source"]
    code = compile(source, block["page"], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    awaitable = eval(code, space)
    if awaitable is not None:
        runner.run(awaitable)


def run_console(block: dict[str, Any]) -> None:
    """Run each line that begins with `$ `; the others are the output that the page shows."""
    for line in block["source"].splitlines():
        if line.startswith("$ "):
            subprocess.run(line[2:], shell=True, stderr=subprocess.STDOUT, check=False)


def main() -> None:
    """Run everything that standard input names."""
    order = json.load(sys.stdin)
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    with asyncio.Runner() as runner:
        for block in order["blocks"]:
            if block["kind"] == "python":
                run_python(block, vars(module), runner)
            elif block["kind"] == "console":
                run_console(block)
            else:
                Path(block["kind"].removeprefix("file: ")).write_text(block["source"])
            print(order["mark"], flush=True)


if __name__ == "__main__":
    main()
