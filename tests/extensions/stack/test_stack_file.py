"""stack.yaml: what it means, and each mistake with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.profiles_check import schema
from gaudi_launch.extensions.stack.stack_file import parse_stack, read_stack
from tests.support.places import TOP

pytestmark = pytest.mark.usefixtures("plain_english")

ONE = "schema: 1\nmodels:\n- name: a\n  model: m\n"
PATH = Path("/etc/site.yaml")


def refused(content: str) -> tuple[str, Any, ExitCode]:
    with pytest.raises(LaunchError) as raised:
        parse_stack(content, PATH)
    return raised.value.id, raised.value.text.values.get("line"), raised.value.exit_code


@pytest.mark.parametrize(
    ("content", "id", "line"),
    [
        ("schema: 1\nmodels: [\n", "stack.bad", 3),
        ("- 1\n", "stack.bad", 1),
        ("", "stack.bad", 1),
        ("schema: 2\nmodels: [{name: a, model: m}]\n", "stack.bad", 1),
        ("schema: 1\nmodels: []\n", "stack.bad", 2),
        (ONE + "  replicas: 0\n", "stack.bad", 5),
        (ONE + "  options:\n    cards: [1]\n", "stack.bad", 6),
        (ONE + "  options:\n    crads: 1\n", "stack.unknown_entry", 6),
        (ONE + "gateway:\n  prot: 1\n", "stack.unknown_entry", 6),
        (ONE + "  for: throughput\n", "stack.unknown_entry", 5),
        (ONE + "gateway:\n  users:\n    al: {rate: 1}\n", "stack.unknown_entry", 7),
        (ONE + "  name: b\n", "stack.bad", 5),
        (ONE + "- name: a\n  model: n\n", "stack.twice", 5),
        (ONE + "- name: b\n  model: n\n  aliases: [a]\n", "stack.twice", 5),
        (ONE + "- name: a+\n  model: n\n", "stack.same_service", 5),
        (ONE + "- name: gateway\n  model: n\n", "stack.same_service", 5),
        (ONE + "  after: [b]\n", "stack.unknown_after", 3),
        (ONE + "  after: [a]\n", "stack.circle", 3),
        # a comment in HAProxy's maps
        (ONE + "- name: '#b'\n  model: n\n", "stack.bad", 5),
        (ONE + "  aliases: ['#b']\n", "stack.bad", 5),
        (ONE + "gateway:\n  connections: 1\n", "stack.bad", 6),
        (ONE + "gateway:\n  trusted-proxies: [proxy.example]\n", "stack.bad", 6),
        (ONE + "gateway:\n  trusted-proxies: [10.0.0.300]\n", "stack.bad", 6),
    ],
)
def test_a_mistake_is_refused_with_its_line(content: str, id: str, line: int) -> None:
    assert refused(content) == (id, line, ExitCode.USAGE)


def test_an_unknown_option_lists_the_known_ones() -> None:
    with pytest.raises(LaunchError) as raised:
        parse_stack(ONE + "  options:\n    max-len: 1\n", PATH)
    assert str(raised.value).startswith(
        "/etc/site.yaml, line 6: the entry max-len is unknown. Known here: cards, "
    )


@pytest.mark.parametrize("content", [None, b"\xff", b"a" * (1 << 20) + b"b"])
def test_a_file_that_cannot_be_read_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "stack.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LaunchError) as raised:
        read_stack(path)
    expected = "stack.bad" if content == b"\xff" else "stack.unreadable"
    assert (raised.value.id, raised.value.exit_code) == (expected, ExitCode.USAGE)


def test_the_example_of_the_manual_is_a_stack() -> None:
    texts = [
        (TOP / "docs" / name).read_text(encoding="utf-8") for name in ("stack.md", "stack_zh.md")
    ]
    examples = [re.findall(r"(?s)```yaml\n(.*?)```", text)[0] for text in texts]
    english, chinese = (parse_stack(example, PATH) for example in examples)
    assert english == chinese
    assert [model.name for model in english.models] == ["embedding", "chat"]


def described(part: Mapping[str, Any], place: str) -> Iterator[str]:
    """Yield the places of a schema's entries that have no description."""
    for name, entry in part.get("properties", {}).items():
        if not entry.get("description"):
            yield f"{place}/{name}"
        yield from described(entry, f"{place}/{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(part.get(key), dict):
            yield from described(part[key], f"{place}/{key}")


def test_every_entry_has_a_description_for_editors() -> None:
    assert list(described(schema("stack"), "")) == []


def values(content: str) -> Mapping[str, object]:
    """Return the values of the error of a text but its file, which is always the same."""
    with pytest.raises(LaunchError) as raised:
        parse_stack(content, PATH)
    found = dict(raised.value.text.values)
    assert found.pop("path") == "/etc/site.yaml"
    return found


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("schema: 1\nmodels: [\n", {"line": 3, "why": "did not find expected node content"}),
        ("a: \x01", {"line": 1, "why": "YAML"}),
        ("[" * 600, {"line": 1, "why": "it has more than 64 levels"}),
        (ONE + "  name: b\n", {"line": 5, "why": "the key name is in line 3, too"}),
        (ONE + "  options: {a: {b: 1, b: 2}}\n", {"line": 5, "why": "the key b is in line 5, too"}),
        (ONE + "- name: a\n  model: n\n", {"line": 5, "name": "a", "first": 3}),
        (ONE + "- name: a+\n  model: n\n", {"line": 5, "name": "a+", "service": "site-a"}),
        (ONE + "- {name: b, model: n}\n- {name: c, model: n, after: [x]}\n",
         {"line": 6, "found": "x", "known": "a, b, c"}),
        (ONE + "  after: [b]\n- {name: b, model: n, after: [a]}\n- {name: c, model: n}\n",
         {"line": 3, "names": "a, b"}),
    ],
)  # fmt: skip
def test_a_mistake_is_described(content: str, expected: Mapping[str, object]) -> None:
    assert values(content) == expected


def test_lists_and_numbers_of_options_are_texts() -> None:
    found = parse_stack(ONE + "  options: {fault: [a, b], cards: 2, skip-warmup: false}\n", PATH)
    expected = {"fault": ("a", "b"), "cards": "2", "skip-warmup": False}
    assert found.models[0].options == expected
