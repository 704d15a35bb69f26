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

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.plain_json import plain_json
from gaudi_launch.core.base.reader import BadDocument, parse_json, standalone
from gaudi_launch.core.base.yaml_reader import line_of, parse_yaml, read_text
from tests.support.places import PACKAGE, TOP
from tests.support.waiting import GENEROUS


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


# modules that read what others wrote, and what they have that reads nothing; None: nothing
_READING: dict[str, set[str] | None] = {
    "json": {"dump", "dumps", "JSONDecodeError"},
    "yaml": {
        *("dump", "safe_dump", "SafeDumper", "YAMLError"),
        *("CollectionStartEvent", "CollectionEndEvent"),
    },
    "csv": {"Error", "writer"},
    "configparser": {"Error"},
    **dict.fromkeys(
        (
            *("pickle", "marshal", "shelve", "tomllib", "tomli", "toml", "plistlib", "xml", "dill"),
            *("msgpack", "orjson", "ujson", "simplejson", "rapidjson", "ruamel", "cbor2", "bson"),
            *("cloudpickle", "joblib", "json5", "jsonlines", "_json", "_pickle", "yaml_loader"),
        )
    ),
}
# others have readers among much else
_SINGLE = {
    *("ast.literal_eval", "builtins.eval", "builtins.exec", "builtins.__import__"),
    *("numpy.load", "numpy.loadtxt", "numpy.genfromtxt", "torch.load", "pandas.read_json"),
    *("importlib.import_module", "sys.modules", "runpy.run_path"),
}
# where something else than core/base/reader.py reads, and why that is safe
_EXCEPTIONS = {
    "core/base/reader.py json.loads": "the one place for JSON",
    "core/base/yaml_reader.py yaml.SafeLoader yaml.load yaml.parse yaml": "the one place for YAML",
    "core/base/plain_json.py json.loads": "the short reader",
    "extensions/acceptance/runtime/gaudi_card_rates.py json.loads": "the job of its launcher",
    "extensions/bench/check/runtime/gaudi_reference.py json.load": "the programs of its launcher",
    "extensions/ray/runtime/gaudi_ray_slots.py json.loads": "its copy for Ray",
    "core/base/messages.py json.loads": "shipped with the program; core/base/reader.py needs it",
    "cli/translated.py json.loads": "shipped with the program",
    "core/services/state/service_files.py json.loads": (
        "a damaged record must still be read: it drops what is bad"
    ),
    "core/render/yaml_text.py yaml": "the faster writer, where there is one",
    "core/launch/chosen_engine.py json.loads": "a key that this process has quoted",
    "core/engines/runtime/ask_packages.py json.loads": "its launcher's question",
    "core/engines/runtime/ask_versions.py json.load": "the question of its launcher",
    "core/engines/runtime/ask_buckets.py importlib.import_module json.load json.loads sys.modules "
    "sys.modules.setdefault": ("the question of its launcher"),
    "extensions/vllm_cpu/runtime/make_demo.py json.loads": "what the tokenizer wrote just before",
    "extensions/vllm_cpu/inside_image.py json.loads": "the settings of its launcher",
    "extensions/simulated/runtime/gaudi_simulated_executor.py json.loads": "those of its launcher",
    "extensions/simulated/runtime/gaudi_simulated_faults.py json.loads": "what its launcher keeps",
    "core/host/stub_hl_smi.py json.loads": "the settings of its launcher",
    "core/models/hub/child.py json.loads": "the question of its launcher",
    "extensions/stack/gateway/running.py csv.DictReader": "HAProxy's own page",
    "commands/profiles/evidence.py csv.DictWriter": "shipped with the program",
    "core/predict/constants.py csv.DictReader": "shipped with the program",
    "core/predict/experts.py csv.DictReader": "shipped with the program",
    "core/predict/published.py csv.DictReader": "shipped with the program",
    "core/buckets/past_requests.py csv.DictReader": "a trace has no levels; each error is caught",
    "core/engines/install/pip_settings.py configparser.RawConfigParser": "pip's form; caught",
    "core/buckets/file_format.py ast.literal_eval": "the engine's form, limited",
    "core/engines/version_facts.py ast.literal_eval": "shipped with the program",
    "core/hosts/agent.py builtins.exec sys.modules": "the program that its launcher sends",
    "core/base/members.py importlib.import_module": "tables of names, and entry points",
    "core/engines/runtime/ask_options.py importlib.import_module": "the engine's parser",
}
_BUILTINS = ("eval", "exec", "__import__")


def readers_of(source: str) -> set[str]:
    """Return what a module reads with, by the full names, however it imports them."""
    nodes = [*ast.walk(ast.parse(source))]
    names = {each: f"builtins.{each}" for each in _BUILTINS}
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            for each in node.names:
                top = each.name.partition(".")[0]
                names[each.asname or top] = each.name if each.asname else top
                if top in _READING and _READING[top] is None:
                    found.add(top)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for each in node.names:
                names[each.asname or each.name] = f"{node.module}.{each.name}"
                found.add(f"{node.module}.{each.name}")
    inner: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "json":
            found.add("json.json")
        if id(node) in inner:
            continue
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
            inner.add(id(node))
        if isinstance(node, ast.Name) and node.id in names:
            found.add(".".join([names[node.id], *parts]))
    return {each for each in found if _reads(each)}


def _reads(name: str) -> bool:
    top, _, rest = name.partition(".")
    if top not in _READING:
        return any(f"{name}.".startswith(f"{single}.") for single in _SINGLE)
    return rest not in (_READING[top] or ())


def test_nothing_else_reads_json_or_yaml() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        readers = readers_of(path.read_text(encoding="utf-8"))
        if readers:
            found.add(" ".join([str(path.relative_to(PACKAGE)), *sorted(readers)]))
    expected = set()
    for each in _EXCEPTIONS:
        name, *known = each.split()
        expected.add(" ".join([name, *sorted(known)]))
    assert found == expected


@pytest.mark.parametrize(
    "source",
    [
        "import json\njson.loads(x)",
        "import json as own\nown.load(x)",
        "from json import loads as dumps\ndumps(x)",
        "from json import *",
        "import json.decoder\njson.decoder.JSONDecoder().decode(x)",
        "from json.decoder import JSONDecoder",
        "import json\nread = json.loads\nread(x)",
        "import json\ngetattr(json, 'loads')(x)",
        "import json\njson.JSONDecoder().raw_decode(x)",
        "def f():\n    from yaml import safe_load\n    safe_load(x)",
        "import yaml\nyaml.compose(x)",
        "import yaml\nyaml.CSafeLoader(x).get_data()",
        "import yaml\nyaml.safe_load_all(x)",
        "import requests\nrequests.get(x).json()",
        "import tomllib",
        "from ruamel.yaml import YAML",
        "import pickle as p",
        "from csv import reader",
        "import ast as a\na.literal_eval(x)",
        "eval(x)",
        "from builtins import eval as f",
        "__import__('json').loads(x)",
        "import importlib\nimportlib.import_module('json').loads(x)",
        "import sys\nsys.modules['json'].loads(x)",
        "import numpy as np\nnp.load(x)",
        "import xml.etree.ElementTree as tree",
    ],
)
def test_a_reader_is_found_under_every_name(source: str) -> None:
    assert readers_of(source) != set()


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
    slots = "extensions/ray/runtime/gaudi_ray_slots.py"
    assert short_reader("core/base/plain_json.py") == short_reader(slots)


@pytest.mark.parametrize(
    "path",
    ["core/services/probe.py", "core/hosts/agent.py", "extensions/kubernetes/pods/chat_page.py"],
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
