"""`agentq run FILE`: what runs, how often, and what is told about it."""

import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import Bench, Json, Line, end_of


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path) as bench:
        yield bench


CALLS = """
import asyncio, decimal, os
print("printed by a module")
from agentq import Retry, current, task

def add(a, b=1):
    return a + b

async def later(value):
    await asyncio.sleep(0)
    return value

@task(key="square:{n}", lane="math")
def square(n):
    return n * n

class Opaque:
    def __repr__(self):
        return "<opaque>"

def opaque():
    return Opaque()

def fail():
    raise LookupError("not there")

def leave():
    raise SystemExit(3)

def printing():
    print("printed by a function", flush=True)
    os.system("echo printed by its child")
    return "kept apart"

now = most = 0

async def overlapping(i):
    global now, most
    now += 1
    most = max(most, now)
    await asyncio.sleep(0.02)
    now -= 1
    return most
"""


def state_and_answer(result: Json) -> tuple[object, ...]:
    return result["state"], result.get("output", result.get("reason"))


def test_every_kind_of_call(bench: Bench) -> None:
    bench.module(CALLS)
    ended = bench.run_batch(
        [
            {"argv": ["printf", "%s-%s", "a b", "$HOME"]},
            {"shell": "echo $((1 + 1)) | cat"},
            {"task": "calls:add", "args": [2], "kwargs": {"b": 3}},
            {"task": "calls:later", "args": [{"a": [1, None]}]},
            {"task": "calls:square", "args": [4]},
            {"task": "calls:fail"},
            {"task": "calls:leave"},
            {"key": "own", "task": "math:sqrt", "args": [9]},
        ],
        "--lane",
        "math=1",
    )
    assert [state_and_answer(result) for result in ended.results] == [
        ("completed", "a b-$HOME"),
        ("completed", "2\n"),
        ("completed", 5),
        ("completed", {"a": [1, None]}),
        ("completed", 16),
        ("failed", "LookupError: not there"),
        ("failed", "SystemExit: 3"),
        ("completed", 3.0),
    ]
    assert [result["lane"] for result in ended.results][3:6] == ["normal", "math", "normal"]
    assert ended.results[4]["key"] == "square:4"
    assert ended.results[7]["key"] == "own"
    assert ended.status == 1


def test_an_empty_batch_exits_with_0(bench: Bench) -> None:
    ended = bench.run_batch(["", "   "])
    assert (ended.status, ended.stdout, ended.stderr) == (0, "", "")


def test_a_result_tells_everything_about_its_line(bench: Bench) -> None:
    ended = bench.run_batch([{"key": "k", "lane": "low", "argv": ["echo", "hi"]}])
    assert (ended.status, ended.stderr) == (0, "")
    [result] = ended.results
    assert 0 < result.pop("seconds") < 30
    assert result == {
        "line": 1,
        "key": "k",
        "lane": "low",
        "state": "completed",
        "output": "hi\n",
        "ran": "ran",
        "attempts": 1,
    }


def test_the_same_call_runs_once_and_every_line_is_answered(bench: Bench) -> None:
    hold = bench.pipe("hold")
    call = {"shell": f"echo once $$ >> {bench.log}; cat {hold}"}
    release = {"key": "release", "shell": f"echo done > {hold}"}
    ended = bench.run_batch([call, call, call, release])
    assert bench.executions() == {"once": 1}
    assert [(r["ran"], r["output"]) for r in ended.results] == [
        ("ran", "done\n"),
        ("joined", "done\n"),
        ("joined", "done\n"),
        ("ran", ""),
    ]
    assert len({r["key"] for r in ended.results[:3]}) == 1
    assert [r["attempts"] for r in ended.results] == [1, 0, 0, 1]


def one_behind_another(bench: Bench, first: Json) -> list[Json]:
    """Lines whose last repeats the first, which has ended by then: the lane takes two at most."""
    lines = [first, bench.counted("b"), bench.counted("c"), first]
    return [{**line, "lane": "one"} for line in lines]


def test_a_line_whose_key_has_completed_is_answered_from_the_cache(bench: Bench) -> None:
    lines = one_behind_another(bench, bench.counted("a", "echo out"))
    ended = bench.run_batch(lines, "--lane", "one=1:1")
    assert bench.executions() == {"a": 1, "b": 1, "c": 1}
    last = ended.results[3]
    assert (last["ran"], last["output"], last["seconds"], last["attempts"]) == (
        "cached",
        "out\n",
        0.0,
        0,
    )


def test_a_key_that_has_failed_is_not_run_again_in_the_same_batch(bench: Bench) -> None:
    lines = one_behind_another(bench, bench.counted("a", "exit 7"))
    ended = bench.run_batch(lines, "--lane", "one=1:1")
    assert bench.executions() == {"a": 1, "b": 1, "c": 1}
    first, last = ended.results[0], ended.results[3]
    assert (first["ran"], last["ran"]) == ("ran", "cached")
    assert first["reason"] == last["reason"] == "ProgramFailed: exit status 7"
    assert ended.status == 1


def test_the_first_line_of_a_key_runs_in_its_lane_and_later_ones_share_it(bench: Bench) -> None:
    # Fed to its own lane, the third line would be there before the first one.
    lines = [
        {**bench.counted("first"), "lane": "one"},
        {**bench.counted("twice"), "lane": "one"},
        {**bench.counted("twice"), "lane": "high"},
    ]
    ended = bench.run_batch(lines, "--lane", "one=1:1")
    assert [r["ran"] for r in ended.results] == ["ran", "ran", "joined"]
    assert [r["lane"] for r in ended.results] == ["one", "one", "one"]


def fails_until(bench: Bench, key: str, tries: int) -> str:
    return f'test "$(grep -c {key} {bench.log})" -ge {tries}'


def test_retry_heals_a_flaky_call(bench: Bench) -> None:
    quick = {"initial": 0.01}
    ended = bench.run_batch(
        [
            bench.counted("heals", fails_until(bench, "heals", 3), retry={"attempts": 3, **quick}),
            bench.counted("short", fails_until(bench, "short", 3), retry={"attempts": 2, **quick}),
            bench.counted("never", "exit 1", retry=0),
            bench.counted("default", fails_until(bench, "default", 2)),
        ],
        "--retry",
        "1",
    )
    assert bench.executions() == {"heals": 3, "short": 2, "never": 1, "default": 2}
    assert [(r["key"], r["state"], r["attempts"]) for r in ended.results] == [
        ("heals", "completed", 3),
        ("short", "failed", 2),
        ("never", "failed", 1),
        ("default", "completed", 2),
    ]


def test_what_a_task_declares_stands_between_its_line_and_the_options(bench: Bench) -> None:
    bench.module(
        "from agentq import Retry, current, task\n"
        "@task(retry=Retry(attempts=2, initial=0))\n"
        "def declared(n):\n    raise ValueError(n)\n"
    )
    ended = bench.run_batch(
        [
            {"task": "calls:declared", "args": [1]},
            {"task": "calls:declared", "args": [2], "retry": 0},
        ],
        "--retry",
        "5",
    )
    assert [r["attempts"] for r in ended.results] == [2, 1]


def test_a_timeout_of_the_line_goes_before_that_of_the_options(bench: Bench) -> None:
    hold = bench.pipe("hold")
    ended = bench.run_batch(
        [
            {"argv": ["cat", str(hold)]},
            {"argv": ["sleep", "0.3"], "timeout": 25},
            {"argv": ["cat", str(hold)], "timeout": 0.05},
        ],
        "--timeout",
        "0.1",
    )
    assert [state_and_answer(r) for r in ended.results] == [
        ("failed", "timed out after 0.1 s"),
        ("completed", ""),
        ("failed", "timed out after 0.1 s"),  # the same call as line 1
    ]


def test_a_lane_never_runs_more_than_its_permits(bench: Bench) -> None:
    bench.module(CALLS)
    lines = [{"task": "calls:overlapping", "args": [i], "lane": "three"} for i in range(12)]
    ended = bench.run_batch(lines, "--lane", "three=3")
    assert max(r["output"] for r in ended.results) == 3


def test_a_saturated_lane_holds_up_no_other(bench: Bench) -> None:
    hold = bench.pipe("hold")
    lines: list[Json] = [{"key": "held", "lane": "one", "argv": ["cat", str(hold)]}]
    lines += [bench.counted(f"k{i}", lane="one") for i in range(30)]
    lines += [{"key": "release", "lane": "high", "shell": f"echo go > {hold}"}]
    ended = bench.run_batch(lines, "--lane", "one=1:1")
    assert ended.status == 0
    assert ended.results[0]["output"] == "go\n"
    assert bench.executions() == {f"k{i}": 1 for i in range(30)}


def test_results_are_written_as_they_come(bench: Bench) -> None:
    results, hold = bench.pipe("results"), bench.pipe("hold")
    lines: list[Json] = [
        {"key": "slow", "argv": ["cat", str(hold)]},
        {"key": "quick", "lane": "one", "argv": ["echo", "quick"]},
        {"key": "bad", "lane": "one", "shell": "exit 1"},
    ]
    batch = str(bench.write(lines))
    process = bench.start("run", batch, "--lane", "one=1", "--results", str(results))
    with results.open() as written:
        assert json.loads(written.readline())["key"] == "quick"
        assert json.loads(written.readline())["key"] == "bad"
        hold.write_text("done")
        assert json.loads(written.readline())["output"] == "done"
        assert written.readline() == ""
    assert end_of(process).status == 1


def test_results_replace_what_the_file_had(bench: Bench) -> None:
    bench.results_file.write_text("left from before\n")
    ended = bench.run_batch([{"key": "k", "argv": ["true"]}], "--results", str(bench.results_file))
    assert bench.results_file.read_text() == ended.stdout
    assert [r["key"] for r in bench.results()] == ["k"]


def test_bad_lines_are_all_named_and_nothing_runs(bench: Bench) -> None:
    lines: list[Line] = [
        bench.counted("fine"),
        "{",
        {"argv": ["true"], "shell": "true"},
        "",
        {"key": "fine", "argv": ["true"]},
        {"task": "nowhere:f"},
        {"argv": ["true"], "lane": "none"},
    ]
    ended = bench.run_batch(lines, "--results", str(bench.results_file))
    assert ended.stdout == ""
    assert ended.stderr.splitlines() == [
        "agentq: line 2: not JSON: Expecting property name enclosed in double quotes at column 2",
        "agentq: line 3: a line needs exactly one of argv, shell and task; it has argv and shell",
        (
            "agentq: line 5: key 'fine' stands for another call on line 1; "
            "a key answers for one call only"
        ),
        (
            "agentq: line 6: task 'nowhere:f': cannot import 'nowhere': "
            "ModuleNotFoundError: No module named 'nowhere'"
        ),
        (
            "agentq: line 7: unknown lane 'none'; the lanes are high, normal, low; "
            "add one with --lane none=PERMITS"
        ),
        "agentq: nothing was run",
    ]
    assert ended.status == 2
    assert bench.executions() == {}
    assert not bench.results_file.exists()


def test_when_results_cannot_be_kept_nothing_more_is_started(bench: Bench) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    lines = [bench.counted(f"k{i}", lane="one") for i in range(5)]
    ended = bench.run_batch(lines, "--lane", "one=1:1", "--results", "/dev/full")
    assert ended.status == 1
    assert ended.stderr == (
        "agentq: cannot write results, so no more jobs are started: No space left on device\n"
    )
    assert 1 <= bench.executions().total() <= 2
    assert [r["line"] for r in ended.results] == [1, 2, 3, 4, 5]


def test_nothing_but_results_is_on_standard_output(bench: Bench) -> None:
    bench.module(CALLS)
    ended = bench.run_batch([{"task": "calls:printing"}, {"task": "calls:opaque"}])
    assert [r["output"] for r in ended.results] == ["kept apart", "<opaque>"]
    assert ended.results[1]["output_form"] == "repr"
    assert ended.stderr.splitlines() == [
        "printed by a module",
        "printed by a function",
        "printed by its child",
    ]


def test_ten_thousand_lines_take_a_few_seconds(bench: Bench) -> None:
    bench.module("async def none(i):\n    return i\n")
    lines = [json.dumps({"task": "calls:none", "args": [i]}) for i in range(10_000)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = bench.run_batch(lines)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert [r["output"] for r in ended.results] == list(range(10_000))
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 15
