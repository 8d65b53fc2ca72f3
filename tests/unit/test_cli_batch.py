"""What a line of a batch may be, and what is said about one that may not."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq import Retry, task
from agentq.cli.batch import BadLine, Line, Parser
from agentq.cli.programs import WORTH_RETRYING


@task(name="agentq.program")
async def program(
    argv: list[str] | None,
    shell: str | None,
    stdin: str | None,
    env: dict[str, str] | None,
    cwd: str | None,
) -> None:
    """Stand in for the task that runs programs."""


MODULE = """
from agentq import Retry, task

def plain(a, b=1): ...
async def later(a): ...
def endless(): yield

@task(key="of:{a}", lane="api", retry=Retry(attempts=7), timeout=9)
def keyed(a, b=1): ...

def with_default(a, b=object()): ...

@task
def unkeyed(a, b=object()): ...

class Holder:
    @staticmethod
    def inside(a): ...

no_function = 3

class Leaving:
    def __format__(self, spec):
        raise SystemExit("no text")

@task(key="of:{b}")
def leaving(a, b=Leaving()): ...

def __getattr__(name):
    if name == "exits":
        raise SystemExit("not that one")
    raise AttributeError(name)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "cli_calls.py").write_text(MODULE)
    (tmp_path / "cli_broken.py").write_text("raise SystemExit('no')")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("cli_calls", None)


@pytest.fixture
def parser() -> Parser:
    return Parser(program, ["high", "normal", "low", "api"])


def parsed(parser: Parser, record: Any, number: int = 1) -> Line:
    return parser.parse(number, json.dumps(record).encode())


def refused(parser: Parser, record: Any, number: int = 1) -> str:
    raw = record if isinstance(record, bytes) else json.dumps(record).encode()
    with pytest.raises(BadLine) as caught:
        parser.parse(number, raw)
    assert caught.value.number == number
    return caught.value.reason


def test_a_program(parser: Parser) -> None:
    line = parsed(
        parser,
        {
            "key": "k",
            "lane": "low",
            "argv": ["cat", "-n"],
            "stdin": "text",
            "env": {"A": "1"},
            "cwd": "/",
            "timeout": 1.5,
            "retry": 2,
        },
    )
    job = line.job
    assert (line.number, line.lane, line.label) == (1, "low", "k")
    assert (job.key, job.lane, job.timeout) == ("k", "low", 1.5)
    assert job.args == (["cat", "-n"], None, "text", {"A": "1"}, "/")
    assert job.retry == Retry(attempts=3, on=WORTH_RETRYING)


def test_a_call(parser: Parser) -> None:
    line = parsed(parser, {"task": "cli_calls:plain", "args": [1], "kwargs": {"b": [2]}})
    assert (line.job.args, line.label) == ((1, [2]), "plain(1, b=[2])")
    assert line.job.retry is None
    assert line.job.timeout is None
    assert line.job.key.startswith("cli_calls:plain:")


def test_a_retry_may_be_told_in_full(parser: Parser) -> None:
    retry = {"attempts": 4, "initial": 0.1, "maximum": 3, "factor": 1.5, "jitter": 0}
    line = parsed(parser, {"task": "cli_calls:plain", "args": [1], "retry": retry})
    assert line.job.retry == Retry(**retry)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record", "key", "lane", "attempts", "timeout"),
    [
        ({"args": [1]}, "of:1", "api", 7, 9.0),
        (
            {"args": [1], "key": "k", "lane": "low", "retry": 0, "timeout": 1},
            "k",
            "low",
            1,
            1.0,
        ),
    ],
)
def test_fields_of_a_line_go_before_what_its_task_declares(
    parser: Parser, record: Any, key: str, lane: str, attempts: int, timeout: float
) -> None:
    parser.timeout, parser.retry = 100.0, Retry(attempts=100)
    job = parsed(parser, {"task": "cli_calls:keyed", **record}).job
    assert job.retry is not None
    assert (job.key, job.lane, job.retry.attempts, job.timeout) == (key, lane, attempts, timeout)


def test_options_are_for_lines_that_say_nothing(parser: Parser) -> None:
    parser.timeout, parser.retry = 100.0, Retry(attempts=100)
    job = parsed(parser, {"task": "cli_calls:plain", "args": [1]}).job
    assert (job.retry, job.timeout) == (Retry(attempts=100), 100.0)


def test_the_same_call_has_the_same_key(parser: Parser) -> None:
    same = [
        {"argv": ["wc", "a"], "env": {"A": "1", "B": "2"}},
        {"env": {"B": "2", "A": "1"}, "argv": ["wc", "a"], "lane": "low", "timeout": 3},
    ]
    other = [
        {"argv": ["wc", "a"]},
        {"argv": ["wc a"]},
        {"shell": "wc a"},
        {"argv": ["wc", "a"], "stdin": ""},
        {"argv": ["wc", "a"], "cwd": "/"},
    ]
    assert len({parsed(parser, record).job.key for record in same}) == 1
    assert len({parsed(parser, record).job.key for record in same + other}) == 6


def test_arguments_may_be_given_by_place_or_by_name(parser: Parser) -> None:
    first = parsed(parser, {"task": "cli_calls:plain", "args": [1]})
    second = parsed(parser, {"task": "cli_calls:plain", "kwargs": {"a": 1, "b": 1}})
    assert first.job.key == second.job.key


def test_functions_without_a_signature(parser: Parser) -> None:
    job = parsed(parser, {"task": "builtins:min", "args": [2, 1]}).job
    assert job.func(*job.args, **job.kwargs) == 1
    assert job.fingerprint is not None
    assert parsed(parser, {"key": "k", "task": "builtins:min", "args": [1]}).job.key == "k"


def test_a_key_answers_for_one_call(parser: Parser) -> None:
    parsed(parser, {"key": "k", "argv": ["a"]}, 3)
    parsed(parser, {"key": "k", "argv": ["a"], "retry": 1}, 4)
    said = "key 'k' stands for another call on line 3; a key answers for one call only"
    assert refused(parser, {"key": "k", "argv": ["b"]}, 5) == said
    assert refused(parser, {"key": "k", "shell": "a"}, 6) == said
    parsed(parser, {"task": "cli_calls:keyed", "args": [1]}, 7)
    assert "on line 7" in refused(parser, {"task": "cli_calls:keyed", "args": [1, 2]}, 8)


def test_a_later_line_goes_where_its_key_went(parser: Parser) -> None:
    assert parsed(parser, {"argv": ["a"], "lane": "low"}).lane == "low"
    later = parsed(parser, {"argv": ["a"], "lane": "high"})
    assert (later.lane, later.job.lane) == ("low", "high")


def test_an_explicit_key_does_without_a_portable_form(parser: Parser) -> None:
    call = {"task": "cli_calls:with_default", "args": [1]}
    assert "no key can be derived" in refused(parser, call)
    assert parsed(parser, {"key": "k", **call}).job.key == "k"


def test_a_label_is_short(parser: Parser) -> None:
    assert parsed(parser, {"argv": ["a b", "c"]}).label == "'a b' c"
    assert parsed(parser, {"shell": "x" * 100}).label == "x" * 59 + "…"


TASK = "cli_calls:plain"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"\xff{}", "not UTF-8: byte 0xff at position 1"),
        (b"{'a': 1}", "not JSON: Expecting property name enclosed in double quotes at column 2"),
        (b'{"argv": ["a"]} x', "not JSON: Extra data at column 17"),
        (b'{"argv": ["a"], "timeout": NaN}', "not JSON: NaN is no JSON value"),
        (b"[" * 100_000, "not usable: its JSON is nested too deeply"),
        (b'{"task": "a:b", "args": [' + b"9" * 5000 + b"]}", "not usable: Exceeds the limit"),
        (b'{"key": "a", "key": "b", "argv": ["a"]}', "field 'key' is given twice"),
        ([], "must be a JSON object, not an array"),
        (None, "must be a JSON object, not null"),
        ({}, "a line needs exactly one of argv, shell and task; it has none"),
        ({"argv": ["a"], "task": "b:c"}, "it has argv and task"),
        ({"argv": ["a"], "argvs": []}, "unknown field 'argvs' in a line with argv; it may have"),
        ({"argv": ["a"], "args": []}, "unknown field 'args' in a line with argv"),
        ({"task": TASK, "stdin": ""}, "unknown field 'stdin' in a line with task"),
        ({"argv": "ls"}, 'argv must be an array of strings such as ["wc", "-l"], not a string'),
        ({"argv": []}, "argv must begin with a program's name"),
        ({"argv": [""]}, "argv must begin with a program's name"),
        ({"argv": ["a", 1]}, "argv[1] must be a string, not a number"),
        ({"argv": ["a\0"]}, "argv[0] must not contain NUL"),
        ({"argv": ["\ud800"]}, "argv[0] has half of a surrogate pair"),
        ({"shell": ["a"]}, "shell must be a string, not an array"),
        ({"shell": "a\0"}, "shell must not contain NUL"),
        ({"argv": ["a"], "stdin": 1}, "stdin must be a string, not a number"),
        ({"argv": ["a"], "cwd": None}, "cwd must be a string, not null"),
        ({"argv": ["a"], "env": []}, "env must be an object of strings, not an array"),
        ({"argv": ["a"], "env": {"A": 1}}, "env['A'] must be a string, not a number"),
        ({"argv": ["a"], "env": {"": "x"}}, "env cannot have a variable named ''"),
        ({"argv": ["a"], "env": {"A=B": "x"}}, "env cannot have a variable named 'A=B'"),
        ({"argv": ["a"], "key": 7}, "key must be a string, not a number"),
        ({"argv": ["a"], "key": ""}, "a key must not be empty"),
        ({"argv": ["a"], "key": "a\0b"}, "a key must not contain NUL"),
        ({"argv": ["a"], "key": "k" * 513}, "a key may have at most 512 characters"),
        ({"argv": ["a"], "key": "\udcff"}, "key has half of a surrogate pair"),
        ({"argv": ["a"], "lane": 1}, "lane must be a string, not a number"),
        (
            {"argv": ["a"], "lane": "no such"},
            (
                "unknown lane 'no such'; the lanes are high, normal, low, api; "
                "add one with --lane 'no such'=PERMITS"
            ),
        ),
        ({"argv": ["a"], "timeout": "1"}, "timeout must be a number of seconds, not a string"),
        ({"argv": ["a"], "timeout": True}, "timeout must be a number of seconds, not true or fal"),
        ({"argv": ["a"], "timeout": 0}, "timeout must be more than 0 seconds and finite, not 0"),
        ({"argv": ["a"], "timeout": 10**400}, "timeout must be a number of seconds that can be"),
        (b'{"argv": ["a"], "timeout": 1e999}', "timeout must be more than 0 seconds and finite"),
        ({"argv": ["a"], "retry": -1}, "retry must be 0 or more extra tries, not -1"),
        ({"argv": ["a"], "retry": 1.5}, "retry must be a whole number of extra tries, or an obj"),
        ({"argv": ["a"], "retry": True}, "retry must be a whole number of extra tries, or an obj"),
        ({"argv": ["a"], "retry": {"on": 1}}, "unknown field 'on' in retry; it may have attempts"),
        ({"argv": ["a"], "retry": {"attempts": 0}}, "retry: Retry.attempts counts tries in all"),
        ({"argv": ["a"], "retry": {"initial": "x"}}, "retry: Retry.initial must be seconds"),
        ({"task": 1}, "task must be a string, not a number"),
        ({"task": "plain"}, "task must name a function as module:function, not 'plain'"),
        ({"task": ":plain"}, "task must name a function as module:function, not ':plain'"),
        ({"task": "cli_calls:"}, "task must name a function as module:function"),
        ({"task": "no_such:f"}, "task 'no_such:f': cannot import 'no_such': ModuleNotFoundError"),
        ({"task": "cli_broken:f"}, "cannot import 'cli_broken': SystemExit: no"),
        ({"task": ".:f"}, "task '.:f': cannot import '.'"),
        ({"task": "cli_calls:none"}, "task 'cli_calls:none': module 'cli_calls' has no 'none'"),
        ({"task": "cli_calls:exits"}, "task 'cli_calls:exits': SystemExit: not that one"),
        ({"task": "cli_calls:leaving", "args": [1]}, "SystemExit: no text"),
        ({"task": "cli_calls:no_function"}, "a job needs a callable, not 3"),
        ({"task": "cli_calls:endless"}, "is a generator function: calling it runs nothing"),
        ({"task": TASK, "args": {}}, "args must be an array, not an object"),
        ({"task": TASK, "kwargs": []}, "kwargs must be an object, not an array"),
        ({"task": TASK}, "task 'cli_calls:plain': missing a required argument: 'a'"),
        ({"task": TASK, "args": [1, 2, 3]}, "task 'cli_calls:plain': too many positional arg"),
        ({"task": "cli_calls:unkeyed", "args": [1]}, "no key can be derived from these arguments"),
    ],
)
def test_bad_lines(parser: Parser, record: Any, reason: str) -> None:
    assert reason in refused(parser, record)


def test_a_bad_line_tells_its_key_when_that_is_usable(parser: Parser) -> None:
    for record, key in (
        ({"key": "k", "argv": []}, "k"),
        ({"key": "k" * 600, "argv": ["a"]}, None),
        ({"argv": ["a"], "lane": "x"}, None),
    ):
        with pytest.raises(BadLine) as caught:
            parsed(parser, record)
        assert caught.value.key == key


def test_a_line_that_was_too_long(parser: Parser) -> None:
    with pytest.raises(BadLine, match="line 9: longer than 16777216 bytes"):
        parser.parse(9, None)


def test_a_bad_line_does_not_take_its_key(parser: Parser) -> None:
    refused(parser, {"key": "k", "argv": ["a"], "lane": "x"})
    assert parsed(parser, {"key": "k", "argv": ["b"]}).job.key == "k"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    ["key", "lane", "argv", "shell", "task", "args", "kwargs", "stdin", "env", "cwd", "retry"]
)


@given(st.dictionaries(names | st.text(), values, max_size=5) | values)
def test_any_line_is_a_job_or_refused_with_its_number(record: Any) -> None:
    parser = Parser(program, ["high", "normal", "low"])
    raw = json.dumps(record).encode()
    try:
        assert parser.parse(5, raw).job.key
    except BadLine as error:
        told = (error.number, bool(error.reason))
    else:
        return
    assert told == (5, True)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_with_their_number(raw: bytes) -> None:
    parser = Parser(program, ["high", "normal", "low"])
    with pytest.raises(BadLine, match=r"^line 5: "):
        parser.parse(5, raw)
