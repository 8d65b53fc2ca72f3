"""A web service that shares one queue; the key of a request is its `Idempotency-Key` header.

    python examples/fastapi_app.py               shows it at work, without a server
    uvicorn --app-dir examples fastapi_app:app   serves it

Needs fastapi and httpx, and uvicorn to serve. A client that sends a request again, because the
connection broke or it lost patience, gets the answer of the first run.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import httpx
from fastapi import Body, FastAPI, Header, HTTPException

from agentq import InvalidKey, JobFailed, KeyConflict, LaneConfig, LaneStats, Queue, task


@task(lane="disk", timeout=60)
def digest(root: str, path: str) -> str:
    """The digest of a file below `root`."""
    file = Path(root, path).resolve()
    if not file.is_relative_to(root):
        raise PermissionError(f"{path} is not below the served directory")
    return hashlib.sha256(file.read_bytes()).hexdigest()


def create_app(root: str) -> FastAPI:
    """A service that makes digests of the files below `root`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with Queue({"disk": LaneConfig(permits=4)}) as app.state.queue:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/digests")
    async def make_digest(
        path: Annotated[str, Body(embed=True)], idempotency_key: Annotated[str, Header()]
    ) -> dict[str, str]:
        job = digest.job(root, path).with_key(idempotency_key)
        try:
            return {"path": path, "sha256": await app.state.queue.push_and_wait(job)}
        except InvalidKey as error:
            raise HTTPException(400, str(error)) from None
        except KeyConflict:
            raise HTTPException(409, "this key was used for another request") from None
        except JobFailed as failed:
            raise HTTPException(422, failed.reason) from None

    @app.get("/stats")
    async def stats() -> dict[str, int]:
        disk: LaneStats = app.state.queue.stats()["disk"]
        return {"ran": disk.completed, "joined": disk.joined, "cached": disk.cached}

    return app


app = create_app(str(Path(__file__).resolve().parents[1]))


async def main() -> None:
    """Send the same request twice, then another one under its key."""
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://example")
    async with app.router.lifespan_context(app), client:
        for path in ("README.md", "README.md", "LICENSE"):
            answer = await client.post(
                "/digests", json={"path": path}, headers={"Idempotency-Key": "request-1"}
            )
            print(path, answer.status_code)
        print((await client.get("/stats")).json())


if __name__ == "__main__":
    asyncio.run(main())
