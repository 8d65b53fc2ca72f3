"""The examples do what they say: each is run as a user would run it."""

import asyncio
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SOURCES = sorted(ROOT.glob("src/agentq/**/*.py"))
HARD_LIMIT_SECONDS = 40


def lines_of(name: str, directory: Path) -> list[str]:
    """Run an example somewhere else than in the repository; the lines it prints."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=HARD_LIMIT_SECONDS,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def test_agent_loop(tmp_path: Path) -> None:
    assert lines_of("agent_loop.py", tmp_path) == [
        "mail:ann@example.org:invoice 7: no answer, asking again",
        "mail:ann@example.org:invoice 7: sent to ann@example.org",
        "python:print(sum(range(1000))): no answer, asking again",
        "python:print(sum(range(1000))): 499500",
        "mail:bob@example.org:invoice 8: no answer, asking again",
        "mail:bob@example.org:invoice 8: sent to bob@example.org",
        "mail:ann@example.org:invoice 7: sent to ann@example.org",
        "python:print(sum(range(1000))): 499500",
        "mail:bob@example.org:invoice 8: sent to bob@example.org",
        "9 requests, 3 runs",
        "mails in the outbox: 2",
    ]


def test_fan_out(tmp_path: Path) -> None:
    files = len(SOURCES)
    digests = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in SOURCES)
    assert lines_of("fan_out.py", tmp_path) == [
        f"{files} files, {2 * files} answers, {files} runs",
        "most at once: 4 of 4 permits",
        f"digest of all: {hashlib.sha256(''.join(digests).encode()).hexdigest()}",
    ]


def test_nested_jobs(tmp_path: Path) -> None:
    found = [path for path in ROOT.glob("src/**/*") if "__pycache__" not in path.parts]
    files = sum(path.is_file() for path in found)
    directories = sum(path.is_dir() for path in found) + 1
    *counts, digest = lines_of("nested_jobs.py", tmp_path)
    assert counts == [
        f"{files} files in {directories} directories",
        f"{files + directories} jobs, most executing at once: 1",
    ]
    assert re.fullmatch(r"digest of src: [0-9a-f]{64}", digest)


def test_blocking(tmp_path: Path) -> None:
    files = len(SOURCES)
    assert lines_of("blocking.py", tmp_path) == [
        "missing: FileNotFoundError after 3 tries",
        f"8 threads asked for {files} files each",
        f"{files} reads, {7 * files} answers from other reads",
        "all agree: True",
    ]


# ── the web service, through a real ASGI client ──────────────────────────────────────────────


def test_fastapi_app(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    assert lines_of("fastapi_app.py", tmp_path) == [
        "README.md 200",
        "README.md 200",
        "LICENSE 409",
        "{'ran': 1, 'joined': 0, 'cached': 1}",
    ]


class Service:
    """The example's application, serving a directory, with a client."""

    def __init__(self, app: Any, client: Any) -> None:
        self.app = app
        self._client = client

    async def request(self, key: str, path: str) -> tuple[int, Any]:
        answer = await self._client.post(
            "/digests", json={"path": path}, headers={"Idempotency-Key": key}
        )
        return answer.status_code, answer.json()

    async def stats(self) -> dict[str, int]:
        stats: dict[str, int] = (await self._client.get("/stats")).json()
        return stats


def serve(root: Path, scenario: Callable[[Service], Awaitable[None]]) -> None:
    """Run a scenario against the service that serves `root`."""
    pytest.importorskip("fastapi")
    import httpx

    spec = importlib.util.spec_from_file_location("fastapi_app", EXAMPLES / "fastapi_app.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)

    async def main() -> None:
        app = example.create_app(str(root.resolve()))
        transport = httpx.ASGITransport(app)
        async with (
            asyncio.timeout(HARD_LIMIT_SECONDS),
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://test") as client,
        ):
            await scenario(Service(app, client))

    asyncio.run(main())


async def until(condition: Callable[[], T]) -> T:
    """Wait until something is so, and return it."""
    while not (value := condition()):
        await asyncio.sleep(0)
    return value


class SlowFile:
    """A named pipe: who reads it gets no further until the test has written."""

    CONTENT = b"slow"
    DIGEST = hashlib.sha256(CONTENT).hexdigest()

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    async def being_read(self) -> int:
        """Wait until a job has opened it; returns a descriptor to write to."""
        return await until(self._open)

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads it yet
            return 0

    def finish(self, descriptor: int) -> None:
        """Let the reader have it all."""
        os.write(descriptor, self.CONTENT)
        os.close(descriptor)


def test_two_requests_at_once_with_one_key_run_once(tmp_path: Path) -> None:
    async def scenario(service: Service) -> None:
        slow = SlowFile(tmp_path / "slow")
        first = asyncio.create_task(service.request("k", "slow"))
        descriptor = await slow.being_read()
        second = asyncio.create_task(service.request("k", "slow"))
        await until(lambda: service.app.state.queue.stats()["disk"].joined)
        assert not first.done()
        slow.finish(descriptor)
        answer = (200, {"path": "slow", "sha256": slow.DIGEST})
        assert [await first, await second] == [answer, answer]
        assert await service.stats() == {"ran": 1, "joined": 1, "cached": 0}

    serve(tmp_path, scenario)


def test_a_client_that_gives_up_does_not_stop_the_job(tmp_path: Path) -> None:
    async def scenario(service: Service) -> None:
        slow = SlowFile(tmp_path / "slow")
        request = asyncio.create_task(service.request("k", "slow"))
        descriptor = await slow.being_read()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        slow.finish(descriptor)
        slow.path.unlink()
        assert await service.request("k", "slow") == (200, {"path": "slow", "sha256": slow.DIGEST})
        stats = await service.stats()
        assert (stats["ran"], stats["joined"] + stats["cached"]) == (1, 1)

    serve(tmp_path, scenario)


def test_requests_that_cannot_be_served(tmp_path: Path) -> None:
    async def scenario(service: Service) -> None:
        (tmp_path / "a").write_text("a")
        used = (409, {"detail": "this key was used for another request"})
        assert (await service.request("k", "a"))[0] == 200
        assert await service.request("k", "b") == used
        assert await service.request("", "a") == (400, {"detail": "a key must not be empty"})
        assert await service.request("outside", "../a") == (
            422,
            {"detail": "PermissionError: ../a is not below the served directory"},
        )
        (tmp_path / "late").mkdir()
        assert (await service.request("retried", "late"))[0] == 422
        (tmp_path / "late").rmdir()
        (tmp_path / "late").write_text("late")
        assert (await service.request("retried", "late"))[0] == 200

    serve(tmp_path, scenario)
