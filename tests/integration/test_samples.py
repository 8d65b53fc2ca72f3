"""Every sample on every page runs and prints what the page says; every reference leads somewhere.

What counts as a sample, in README.md and docs/**/*.md:

- A ```python block is run. The blocks of a page share one namespace and one directory, in order;
  `await` may stand outside of functions. A ```text block that follows it under the same heading is
  what it must print.
- A ```console or ```sh block holds `$ command` lines, which are run, and what they print, which
  must match if it is shown at all. There, `...` stands for anything on its line, and alone for any
  lines.
- A block after `<!-- file: NAME -->` is written to that file, for the samples that follow.
- A block after `<!-- not run: reason -->` is not run. Nothing else is left out.
"""

import ast
import itertools
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).with_name("run_blocks.py")
SAMPLE_PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
ALL_PAGES = sorted({*SAMPLE_PAGES, *ROOT.glob("*.md"), *ROOT.glob("[a-z]*/**/*.md")})

SHOWN = {"text", "json", "jsonl", "toml", "yaml", "ini", "mermaid"}
MARK = "--- end of block ---"
HARD_LIMIT_SECONDS = 50


@dataclass
class Block:
    """One fenced block."""

    line: int
    language: str
    source: str
    note: str = ""
    section: int = 0

    @property
    def kind(self) -> str:
        """What to do with it: python, console, a file to write, or empty for nothing."""
        if self.note.startswith("file:"):
            return self.note
        if self.note or self.language in SHOWN:
            return ""
        return "console" if self.language == "sh" else self.language


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page, each with the HTML comment right before it."""
    blocks: list[Block] = []
    block: Block | None = None
    note = ""
    section = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if block is None and (opened := re.fullmatch(r"\s*```(\w*)\s*", line)):
            block = Block(number, opened[1], "", note, section)
            note = ""
        elif block is not None and line.strip() == "```":
            blocks.append(block)
            block = None
        elif block is not None:
            block.source += line + "\n"
        elif comment := re.fullmatch(r"\s*<!-- ((?:not run|file)\b.*?) -->\s*", line):
            note = comment[1]
        elif line.strip():
            note = ""
            section += line.startswith("#")
    assert block is None, f"line {block and block.line}: the block does not end"
    return blocks


def prose_of(text: str) -> str:
    """A page without its blocks and inline code."""
    return re.sub(r"`[^`\n]+`", "", re.sub(r"(?ms)^\s*```.*?^\s*```$", "", text))


# ── what is wrong with a page ────────────────────────────────────────────────────────────────


def misuse(page: Path) -> list[str]:
    """Blocks that would silently not be checked."""
    wrong = []
    for block in blocks_of(page.read_text()):
        if block.language not in {"python", "console", "sh", *SHOWN}:
            known = ", ".join(sorted(SHOWN))
            wrong.append(
                f"line {block.line}: {block.language!r} is neither run (python, console, sh) "
                f"nor data ({known})"
            )
        if block.note and not re.fullmatch(r"not run: \S.{9,}|file: [\w.-]+", block.note):
            wrong.append(f"line {block.line}: the note gives no reason or no file name")
        if block.kind == "console" and not block.source.startswith("$ "):
            wrong.append(
                f"line {block.line}: a command begins with '$ '; if the block cannot be run, put "
                "<!-- not run: reason --> before it"
            )
    return wrong


def differences(page: Path, directory: Path) -> list[str]:
    """Run a page's blocks in `directory`; tell what fails or prints something else."""
    blocks = blocks_of(page.read_text())
    run = [block for block in blocks if block.kind]
    if not run:
        return []
    for name in ("README.md", "docs", "examples", "pyproject.toml", "src"):
        (directory / name).symlink_to(ROOT / name)
    order = {
        "mark": MARK,
        "blocks": [
            {"page": page.name, "line": b.line, "kind": b.kind, "source": b.source} for b in run
        ],
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    ended = subprocess.run(
        [sys.executable, "-u", "-W", "error", RUNNER],
        input=json.dumps(order),
        cwd=directory,
        env={**os.environ, "PATH": path, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=HARD_LIMIT_SECONDS,
        check=False,
    )
    if ended.returncode:
        return [ended.stderr]
    outputs = ended.stdout.split(MARK + "\n")
    printed = {block.line: output for block, output in zip(run, outputs[:-1], strict=True)}
    return [
        f"line {block.line}: the page says\n{shown}\nbut it prints\n{printed[block.line]}"
        for block, shown in expectations(blocks)
        if not matches(shown, printed[block.line], wildcards=block.kind == "console")
    ]


def expectations(blocks: list[Block]) -> list[tuple[Block, str]]:
    """The blocks whose output the page shows, and what it shows."""
    expected = []
    for block in blocks:
        if block.kind == "console":
            lines = block.source.splitlines(keepends=True)
            shown = "".join(line for line in lines if not line.startswith("$ "))
            if shown:
                expected.append((block, shown))
    for block, following in itertools.pairwise(blocks):
        is_output = following.language == "text" and not following.note
        if block.kind == "python" and is_output and block.section == following.section:
            expected.append((block, following.source))
    return expected


def matches(shown: str, output: str, *, wildcards: bool) -> bool:
    """Tell whether an output is the one shown; empty lines at its ends do not count."""
    pattern = ""
    for line in shown.strip("\n").splitlines():
        text = re.escape(line)
        if wildcards and line == "...":
            pattern += r"(?:.*\n)*"
        elif wildcards:
            pattern += text.replace(r"\.\.\.", ".*") + r"\n"
        else:
            pattern += text + r"\n"
    return re.fullmatch(pattern, output.strip("\n") + "\n") is not None


def broken_links(page: Path) -> list[str]:
    """Relative links whose file or heading does not exist."""
    broken = []
    for target in re.findall(r"\]\(<?([^)>\s]+)>?\)", prose_of(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, heading = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (heading and heading not in anchors_of(file)):
            broken.append(target)
    return broken


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"(?ms)^\s*```.*?^\s*```$", "", page.read_text())
    headings = re.findall(r"(?m)^#+ +(.+?) *$", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def unknown_tests(page: Path, root: Path = ROOT) -> list[str]:
    """Tests that a page names and that do not exist."""
    unknown = []
    for file, names in re.findall(r"(tests/[\w/.-]+\.py)((?:::\w+)*)", page.read_text()):
        if not (root / file).is_file():
            unknown.append(file)
            continue
        body: list[ast.stmt] = ast.parse((root / file).read_text()).body
        for name in names.split("::")[1:]:
            named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            found = [node for node in body if isinstance(node, named) and node.name == name]
            if not found:
                unknown.append(file + names)
                break
            body = found[0].body
    return unknown


# ── the pages ────────────────────────────────────────────────────────────────────────────────


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_the_pages_are_found() -> None:
    names = {name_of(page) for page in SAMPLE_PAGES}
    assert {"README.md", "docs/quickstart.md", "docs/queue.md", "docs/glossary.md"} <= names
    assert "CONTRIBUTING.md" in {name_of(page) for page in ALL_PAGES}
    guide = blocks_of((ROOT / "docs/queue.md").read_text())
    assert sum(block.kind == "python" for block in guide) >= 10
    assert len(expectations(guide)) >= 10


@pytest.mark.parametrize("page", SAMPLE_PAGES, ids=name_of)
def test_no_block_is_left_out_silently(page: Path) -> None:
    assert misuse(page) == []


@pytest.mark.parametrize("page", SAMPLE_PAGES, ids=name_of)
def test_samples_run_and_print_what_the_page_says(page: Path, tmp_path: Path) -> None:
    assert "\n".join(differences(page, tmp_path)) == ""


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_links_and_named_tests_exist(page: Path) -> None:
    assert broken_links(page) == []
    assert unknown_tests(page) == []


# ── the checks themselves notice what is wrong ───────────────────────────────────────────────


def written(directory: Path, text: str) -> Path:
    page = directory / "page.md"
    page.write_text(text)
    return page


GOOD = """
# Page
```python
import asyncio
answer = 6 * 7
```
<!-- file: numbers.txt -->
```text
1
2
```
```python
async def read():
    return open("numbers.txt").read().split()

print(answer, await read())
```
It prints:
```text
42 ['1', '2']
```
<!-- not run: it would never end -->
```python
while True: pass
```
```console
$ python -c "print(1); print(2); print(3)"
1
...
3
$ python -c "print('took 0.12 s')"
took ... s
```
"""


def test_a_good_page_passes(tmp_path: Path) -> None:
    page = written(tmp_path, GOOD)
    assert misuse(page) == []
    assert differences(page, tmp_path) == []


@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        ("42 ['1', '2']", "42 ['1']", "line 12: the page says"),
        ("answer = 6 * 7", "answer = 6 * seven", 'File "page.md", line 5, in <module>'),
        ("1\n...\n3", "1\n...\n4", "line 26: the page says"),
        ("took ... s", "took ... ms", "line 26: the page says"),
        ("asyncio\n", "asyncio, warnings\nwarnings.warn('old')\n", "UserWarning: old"),
    ],
)
def test_a_wrong_sample_is_noticed(right: str, wrong: str, complaint: str, tmp_path: Path) -> None:
    assert right in GOOD
    page = written(tmp_path, GOOD.replace(right, wrong))
    (found,) = differences(page, tmp_path)
    assert complaint in found


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```\nx\n```", "line 1: '' is neither run"),
        ("```pycon\n>>> 1\n```", "line 1: 'pycon' is neither run"),
        ("<!-- not run: no -->\n```python\n1\n```", "line 2: the note gives no reason"),
        ("<!-- not run -->\n```python\n1\n```", "line 2: the note gives no reason"),
        ("<!-- file: ../x -->\n```text\n1\n```", "line 2: the note gives no reason"),
        ("```console\nmake test\n```", "line 1: a command begins with '$ '"),
        ("```sh\nmake test\n```", "line 1: a command begins with '$ '"),
    ],
)
def test_a_block_that_would_not_be_checked_is_noticed(
    text: str, complaint: str, tmp_path: Path
) -> None:
    (found,) = misuse(written(tmp_path, text))
    assert found.startswith(complaint)


def test_references_that_lead_nowhere_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# The `other` page, here\n```text\n# no heading\n```\n")
    tests = tmp_path / "tests" / "unit"
    tests.mkdir(parents=True)
    (tests / "test_x.py").write_text("class TestX:\n    def test_y(self): ...\n")
    page = written(
        tmp_path,
        "[a](other.md) [b](other.md#the-other-page-here) [c](https://example.org) [d](#top)\n"
        "[e](other.md#no-heading) [f](missing.md) `[g](code.md)`\n# Top\n"
        "`tests/unit/test_x.py::TestX::test_y` `tests/unit/test_x.py::test_y`\n"
        "`tests/unit/test_x.py` `tests/unit/test_z.py::test_y`\n",
    )
    assert broken_links(page) == ["other.md#no-heading", "missing.md"]
    assert unknown_tests(page, tmp_path) == [
        "tests/unit/test_x.py::test_y",
        "tests/unit/test_z.py",
    ]
