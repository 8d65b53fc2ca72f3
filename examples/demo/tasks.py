"""The Python calls of the demo batch. Each notes in a log that it is executed."""

import ast
import asyncio
import hashlib
import os
import tomllib
from collections import Counter
from pathlib import Path

from agentq import Retry, current, task

CALL_SECONDS = float(os.environ.get("AGENTQ_DEMO_CALL_SECONDS", "0.5"))
"""How long one call of the metered API takes."""


def note_execution() -> int:
    """Append "key pid" to the demo's log, which the queue knows nothing of.

    Returns how often the key has been executed, this time included.
    """
    path = os.environ.get("AGENTQ_DEMO_LOG")
    if path is None:
        return current().attempt
    key = current().key
    log = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        os.write(log, f"{key} {os.getpid()}\n".encode())
        lines = os.pread(log, os.fstat(log).st_size, 0).decode().splitlines()
    finally:
        os.close(log)
    return sum(line.rpartition(" ")[0] == key for line in lines)


@task(key="outline:{path}", lane="cpu")
def outline(path: str) -> dict[str, int]:
    """Count what a Python module defines."""
    note_execution()
    tree = ast.parse(Path(path).read_text())
    kinds = Counter(type(node).__name__ for node in ast.walk(tree))
    return {
        "classes": kinds["ClassDef"],
        "functions": kinds["FunctionDef"] + kinds["AsyncFunctionDef"],
    }


@task(key="words:{path}", lane="cpu")
def common_words(path: str, count: int = 3) -> list[str]:
    """Find the most common long words of a text."""
    note_execution()
    words = Path(path).read_text().lower().split()
    longer = Counter(word for word in words if len(word) > 4 and word.isalpha())
    return [word for word, _ in longer.most_common(count)]


def project_field(path: str, field: str) -> object:
    """Read one field of a pyproject.toml."""
    note_execution()
    return tomllib.loads(Path(path).read_text())["project"][field]


@task(lane="api")
async def ask(question: str) -> str:
    """Stand in for a metered API: slow, and one call at a time."""
    note_execution()
    await asyncio.sleep(CALL_SECONDS)
    digest = hashlib.sha256(question.encode()).hexdigest()
    return f"answer {digest[:8]}"


@task(key="flaky:{service}", lane="api", retry=Retry(attempts=4, initial=0.2))
async def flaky(service: str) -> str:
    """Fail twice, then work, as services do."""
    executions = note_execution()
    await asyncio.sleep(0.1)
    if executions < 3:
        raise ConnectionError(f"{service} hung up")
    return f"{service} answered on try {executions}"
