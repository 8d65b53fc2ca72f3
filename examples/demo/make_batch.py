"""Writes batch.jsonl, the batch of the demo: tool calls as an agent makes them, retries included.

python examples/demo/make_batch.py > examples/demo/batch.jsonl
"""

import json

TEXTS = ["README.md", "LICENSE", "pyproject.toml"]
MODULES = [
    f"src/agentq/{name}.py"
    for name in ("core/job", "core/task", "core/retry", "core/keys", "cli/app", "cli/run")
]
QUESTIONS = [f"What does {name} do?" for name in [*TEXTS, *MODULES, "this repository"]]

Call = dict[str, object]


def program(key: str, *argv: str, **more: object) -> Call:
    """A program, run behind counted.sh."""
    return {
        "key": key,
        "lane": "files",
        "argv": ["sh", "examples/demo/counted.sh", key, *argv],
        **more,
    }


def calls() -> list[Call]:
    """Every call of the batch, in order."""
    batch: list[Call] = []
    for index, path in enumerate([*TEXTS, *MODULES]):
        batch.append(program(f"lines:{path}", "wc", "-l", path))
        batch.append({"task": "examples.demo.tasks:ask", "args": [QUESTIONS[index]]})
        batch.append(program(f"checksum:{path}", "cksum", path))
        if path in MODULES:
            batch.append({"task": "examples.demo.tasks:outline", "args": [path]})
            batch.append(program(f"imports:{path}", "grep", "-c", "import", path))
        else:
            batch.append({"task": "examples.demo.tasks:common_words", "args": [path]})
        if index % 2:
            # The agent did not see the answer and asks again: same content, same key.
            batch.append({"task": "examples.demo.tasks:ask", "args": [QUESTIONS[index - 1]]})
            batch.append({"task": "examples.demo.tasks:ask", "kwargs": {"question": QUESTIONS[0]}})
            batch.append(program(f"lines:{path}", "wc", "-l", path))
    batch += [
        {
            "key": f"project:{field}",
            "lane": "cpu",
            "task": "examples.demo.tasks:project_field",
            "args": ["pyproject.toml", field],
        }
        for field in ("name", "license", "requires-python")
    ]
    batch.append({"task": "examples.demo.tasks:flaky", "args": ["billing"]})
    batch.append(program("missing:notes.md", "wc", "-l", "notes.md"))
    batch.append(program("sorted:words", "sort", "-u", stdin="queue\nlane\npermit\nlane\n"))
    batch.append(
        {
            "key": "largest:modules",
            "lane": "files",
            "shell": 'echo "largest:modules $$" >>"${AGENTQ_DEMO_LOG:-/dev/null}"; '
            "wc -l src/agentq/*/*.py | sort -rn | sed -n 2,4p",
            "timeout": 10,
        }
    )
    batch.append({"task": "examples.demo.tasks:flaky", "args": ["billing"]})
    batch.append({"task": "examples.demo.tasks:ask", "args": [QUESTIONS[-1]]})
    batch += [{"task": "examples.demo.tasks:outline", "args": [path]} for path in MODULES[:3]]
    return batch


if __name__ == "__main__":
    for call in calls():
        print(json.dumps(call))
