"""An agent that retries tool calls, and tools that must not run twice.

    python examples/agent_loop.py

The first answer to every call gets lost on its way back. The agent does what agents do: it asks
again. The key of a call is made of the tool and its arguments, so asking again joins the first run
or gets its output. The outbox file shows what really happened.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from agentq import Job, Queue, task


@task(key="mail:{to}:{subject}")
def send_mail(to: str, subject: str, outbox: str) -> str:
    """Append a mail to the outbox. To run this twice would be to send it twice."""
    with Path(outbox).open("a") as file:
        file.write(f"to {to}: {subject}\n")
    return f"sent to {to}"


@task(key="python:{code}", timeout=30)
async def run_python(code: str) -> str:
    """Run a program and return what it prints."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await program.communicate()
    return printed.decode().strip()


class Agent:
    """Makes tool calls in turn, and repeats those that get no answer."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.asked: list[str] = []

    async def request(self, call: Job) -> object:
        """Send one request. The first one of each call is carried out, but never answered."""
        await self.queue.push(call)
        self.asked.append(call.key)
        if self.asked.count(call.key) == 1:
            raise TimeoutError("no answer")
        return await self.queue.push_and_wait(call)

    async def carry_out(self, plan: list[Job]) -> None:
        """Make every call of the plan until it is answered."""
        for call in plan:
            for _ in range(3):
                try:
                    print(f"{call.key}: {await self.request(call)}")
                    break
                except TimeoutError as error:
                    print(f"{call.key}: {error}, asking again")


async def main(outbox: Path) -> None:
    """Let an agent carry out a plan, twice, and count what ran."""
    plan = [
        send_mail.job("ann@example.org", "invoice 7", str(outbox)),
        run_python.job("print(sum(range(1000)))"),
        send_mail.job("bob@example.org", "invoice 8", str(outbox)),
    ]
    async with Queue() as queue:
        agent = Agent(queue)
        await agent.carry_out(plan)
        await agent.carry_out(plan)
        print(f"{len(agent.asked)} requests, {queue.stats()['normal'].completed} runs")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "outbox.txt")
        asyncio.run(main(file))
        print(f"mails in the outbox: {len(file.read_text().splitlines())}")
