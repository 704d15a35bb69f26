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
from tests.support.cli import golden
from tests.support.places import TOP
from tests.support.whole_plans import shown

pytestmark = pytest.mark.usefixtures("plain_english")

ONE = "schema: 1\nmodels:\n- name: a\n  model: m\n"
PATH = Path("/etc/site.yaml")


MISTAKES = [
    "schema: 1\nmodels: [\n",
    "- 1\n",
    "",
    "schema: 2\nmodels: [{name: a, model: m}]\n",
    "schema: 1\nmodels: []\n",
    ONE + "  replicas: 0\n",
    ONE + "  options:\n    cards: [1]\n",
    ONE + "gateway:\n  prot: 1\n",
    ONE + "  for: throughput\n",
    ONE + "gateway:\n  users:\n    al: {rate: 1}\n",
    ONE + "  name: b\n",
    ONE + "- name: a\n  model: n\n",
    ONE + "- name: b\n  model: n\n  aliases: [a]\n",
    ONE + "- name: a+\n  model: n\n",
    ONE + "- name: gateway\n  model: n\n",
    ONE + "  after: [b]\n",
    ONE + "  after: [a]\n",
    ONE + "- name: '#b'\n  model: n\n",
    ONE + "  aliases: ['#b']\n",
    ONE + "gateway:\n  connections: 1\n",
    ONE + "gateway:\n  trusted-proxies: [proxy.example]\n",
    ONE + "gateway:\n  trusted-proxies: [10.0.0.300]\n",
    "a: \x01",
    "[" * 600,
    ONE + "  options: {a: {b: 1, b: 2}}\n",
    ONE + "- {name: b, model: n}\n- {name: c, model: n, after: [x]}\n",
    ONE + "  after: [b]\n- {name: b, model: n, after: [a]}\n- {name: c, model: n}\n",
]


def test_a_mistake_is_refused_with_its_line() -> None:
    lines = []
    for content in MISTAKES:
        with pytest.raises(LaunchError) as raised:
            parse_stack(content, PATH)
        name = raised.value.exit_code.name
        lines.append(f"{content[:99]!r}: ({name}) {shown(raised.value.text)}\n")
    golden("stack-mistakes.txt", "".join(lines))


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


def test_lists_and_numbers_of_options_are_texts() -> None:
    found = parse_stack(ONE + "  options: {fault: [a, b], cards: 2, skip-warmup: false}\n", PATH)
    expected = {"fault": ("a", "b"), "cards": "2", "skip-warmup": False}
    assert found.models[0].options == expected
