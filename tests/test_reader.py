"""JSON and YAML of others: what is refused, with the place, and that nothing else reads them."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.plain_json import plain_json
from gaudi_launch.reader import BadDocument, line_of, parse_json, parse_yaml, read_text, standalone
from tests.support.places import TOP
from tests.support.waiting import GENEROUS

PACKAGE = TOP / "gaudi_launch"


def refused(path: Path) -> tuple[str, ExitCode, dict[str, object]]:
    with pytest.raises(LaunchError) as caught:
        read_text(path, unreadable="plan.config_unreadable", bad="plan.config_text")
    return caught.value.id, caught.value.exit_code, dict(caught.value.text.values)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"

    def unreadable(why: str) -> tuple[str, ExitCode, dict[str, object]]:
        return "plan.config_unreadable", ExitCode.USAGE, {"path": str(path), "why": why}

    assert refused(path) == unreadable("No such file or directory")
    path.write_bytes(b"x" * ((1 << 20) + 1))
    assert refused(path) == unreadable("> 1 MiB")
    path.write_bytes(b"a: 1\nb: \xff\n")
    assert refused(path) == (
        "plan.config_text",
        ExitCode.USAGE,
        {"path": str(path), "line": 2, "why": "UTF-8"},
    )
    path.write_bytes("a: \u5361\n".encode() + b"#" * ((1 << 20) - 7))
    text = read_text(path, unreadable="x", bad="x")
    assert (text[:5], len(text.encode())) == ("a: \u5361\n", 1 << 20)


TEXT = """# head
models:
  - name: a
    cards: 1
  - name: b
name: first
other: {x: 1,
  y: 2}
name: second
"""


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ((), 2),
        (("models",), 2),
        (("models", 0), 3),
        (("models", 0, "cards"), 4),
        (("models", 1, "cards"), 5),
        (("models", 7, "cards"), 2),
        (("name",), 6),
        (("other", "y"), 8),
        (("other", "y", "deeper"), 8),
        (("none",), 2),
    ],
)
def test_a_part_has_its_line_or_that_of_what_contains_it(
    where: tuple[str | int, ...], line: int
) -> None:
    assert line_of(yaml.compose(TEXT), where) == line


def test_an_empty_file_has_no_line() -> None:
    assert line_of(yaml.compose(""), ("a",)) == 0


def bomb(levels: int) -> str:
    """Return YAML whose aliases stand for nine times as many values at each level."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for at in range(levels):
        lines.append(f"a{at + 1}: &a{at + 1} [{', '.join([f'*a{at}'] * 9)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": ', "Expecting value: line 1 column 7 (char 6)"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        ("[" * 100_000, "it has more than 64 levels"),
        ("[" * 70 + "]" * 70, "it has more than 64 levels"),
        ('{"a": {"b": 1, "b": 1}}', "the key b is repeated"),
        ('{"a": [0, NaN]}', "a.1 is not a finite number of at most 64 bits"),
        ('{"a": -Infinity}', "a is not a finite number of at most 64 bits"),
        ('{"a": 1e400}', "a is not a finite number of at most 64 bits"),
        (f'{{"a": 1{"0" * 400}}}', "a is not a finite number of at most 64 bits"),
        (f"[1{'0' * 5000}]", "- is not a finite number of at most 64 bits"),
        ('{"a": "x\\ud800"}', "a has half of a character (a lone surrogate)"),
        ('{"\\udfff": 1}', "\\udfff has half of a character (a lone surrogate)"),
        (" " * ((1 << 26) + 1), "it is larger than 65536 KiB"),
    ],
)
def test_json_that_would_break_its_reader_is_refused_with_the_place(
    text: str | bytes, why: str
) -> None:
    with pytest.raises(BadDocument) as caught:
        parse_json(text)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\nb: [", "line 3: did not find expected node content"),
        ("a: 1\nb: 2\na: 3\n", "line 3: the key a is in line 1, too"),
        ("a: 1\nb: {c: .nan}\n", "line 2: b.c is not a finite number of at most 64 bits"),
        ("a: &a [*a]", "line 1: it has too many parts, or aliases (*name) that repeat too much"),
        (bomb(20), "line 6: it has too many parts, or aliases (*name) that repeat too much"),
        ("[" * 100_000, "line 1: it has more than 64 levels"),
        ("a: 2026-02-31", "day is out of range for month"),
        ("x" * ((1 << 20) + 1), "it is larger than 1024 KiB"),
    ],
)
def test_yaml_that_would_break_its_reader_is_refused_with_the_line(text: str, why: str) -> None:
    with pytest.raises(BadDocument) as caught:
        parse_yaml(text)
    assert str(caught.value) == why


def test_what_is_plain_is_read_as_it_is() -> None:
    deep: object = [2**63, -(2**63), 1.5, "\u5361 \U0001f600", None, True]
    for _ in range(60):
        deep = {"a": deep}
    assert parse_json(json.dumps(deep)) == parse_json(json.dumps(deep).encode()) == deep
    merged = "a: &a {b: 1}\nc: {<<: *a, d: 2}\n"
    assert parse_yaml(merged) == {"a": {"b": 1}, "c": {"b": 1, "d": 2}}
    # config.json of Mamba models has infinities, and engines take the last of repeated keys
    assert parse_json('{"a": [0.0, Infinity], "b": 1, "b": 2}', as_engine=True) == {
        "a": [0.0, math.inf], "b": 2,
    }  # fmt: skip


# where json.loads and yaml.load are called themselves, and why that is safe
_EXCEPTIONS = {
    "reader.py": "the one place",
    "messages.py": "shipped with the program; reader.py needs it",
    "cli/translated.py": "shipped with the program",
    "services/state/state_fields.py": "a damaged record must still be read: it drops what is bad",
    "offline/pack_manifest.py": "what it wrote itself in the same expression",
    "app/prepare.py": "a key that this process has quoted",
    "engines/runtime/ask_packages.py": "in the engine's interpreter; any error is an answer",
    "engines/runtime/ask_versions.py": "the question of its launcher",
    "engines/runtime/ask_buckets.py": "the question of its launcher",
    "engines/vllm_cpu/runtime/make_demo.py": "what the tokenizer wrote just before",
    "engines/vllm_cpu/inside_image.py": "the settings of its launcher",
    "engines/simulated/runtime/gaudi_simulated_executor.py": "the settings of its launcher",
    "engines/simulated/runtime/gaudi_simulated_faults.py": "what its launcher keeps of itself",
    "host/stub_hl_smi.py": "the settings of its launcher",
    "models/hub/child.py": "the question of its launcher",
}
# the short reader, and its copy for Ray
_COPIES = (
    "plain_json.py",
    "engines/ray_serve/runtime/gaudi_ray_slots.py",
)
_READERS = {
    *("json.load", "json.loads", "yaml.load", "yaml.safe_load", "yaml.full_load", "yaml.compose"),
    *("yaml.load_all", "yaml.safe_load_all", "yaml.unsafe_load"),
}


def test_nothing_else_reads_json_or_yaml() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "json":
                found.add(f"{path.name}: {ast.unparse(node)}")
            if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
                continue
            if f"{node.value.id}.{node.attr}" in _READERS:
                found.add(str(path.relative_to(PACKAGE)))
    assert found == {*_EXCEPTIONS, *_COPIES}


def short_reader(path: str) -> str:
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    made = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    made = [each for each in made if each.name == "plain_json"]
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.load", "json.loads")
    ]
    assert len(calls) == 1
    return ast.unparse(ast.Module(made[0].body[1:], []))


def test_the_short_readers_are_equal() -> None:
    assert {short_reader(path) for path in _COPIES} == {short_reader(_COPIES[0])}


@pytest.mark.parametrize(
    "path", ["services/probe.py", "cluster/agent.py", "kubernetes/pods/chat_page.py"]
)
def test_a_program_that_is_sent_needs_no_package(path: str) -> None:
    tree = ast.parse(standalone(PACKAGE / path))
    modules = [each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    assert not [each for each in modules if str(each).startswith("gaudi_launch")]
    assert "plain_json" in [getattr(each, "name", "") for each in tree.body]
    compile(tree, path, "exec")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=3)
    | st.sampled_from([2**64, 2**64 - 1, "\ud800", "\U0001f600"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)  # fmt: skip


@given(VALUES, st.integers(0, 70), st.booleans())
def test_the_short_reader_accepts_what_the_reader_accepts(
    value: object, depth: int, twice: bool
) -> None:
    text = "[" * depth + json.dumps(value) + "]" * depth
    if twice:
        text = f'{{"a": 1, "a": {text}}}'

    def outcome(read: Callable[[str], object]) -> str:
        try:
            return repr(read(text))
        except ValueError:
            return "refused"

    assert outcome(plain_json) == outcome(parse_json)


def test_damaged_files_of_every_kind_end_in_a_sentence() -> None:
    """The short form of the acceptance script, which draws 5,000."""
    done = subprocess.run(
        [sys.executable, str(TOP / "scripts/acceptance/fuzz_readers.py"), "30", "35"],
        capture_output=True,
        text=True,
        timeout=GENEROUS * 3,
        check=False,
    )
    assert json.loads(done.stdout)["bad"] == [], done.stderr
    assert done.returncode == 0
