"""The output of a view for people, in both languages; and that for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from gaudi_launch.core.base.messages import LANGUAGES, set_language
from tests.support.cli import golden, stripped


def printed(capsys: pytest.CaptureFixture[str], show: Callable[[], object]) -> str:
    """Return what a view prints on both streams, without trailing blanks."""
    capsys.readouterr()
    show()
    out, err = capsys.readouterr()
    if not err:
        return stripped(out)
    return f"{stripped(out)}(stderr)\n{stripped(err)}"


def views(
    capsys: pytest.CaptureFixture[str],
    name: str,
    shows: Sequence[Callable[[], object]],
    documents: Sequence[Mapping[str, object]] = (),
) -> None:
    """Compare views in both languages, and documents, with a golden file."""
    parts = []
    for language in LANGUAGES:
        set_language(language)
        parts += [printed(capsys, show) for show in shows]
    set_language(None)
    parts += [json.dumps(each, indent=2, ensure_ascii=False) + "\n" for each in documents]
    golden(f"view-{name}.txt", "----\n".join(parts))


def for_programs(capsys: pytest.CaptureFixture[str], show: Callable[[], object]) -> dict[str, Any]:
    """Return the one object that a view prints on stdout."""
    capsys.readouterr()
    show()
    out, err = capsys.readouterr()
    assert err == ""
    document: dict[str, Any] = json.loads(out)
    return document
