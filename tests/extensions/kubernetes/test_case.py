"""render kubernetes: models that share a node."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import text
from tests.support.cli import output

pytestmark = pytest.mark.usefixtures("plain_english")

MODEL = "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("words", "code", "id", "values"),
    [
        (("-n", "8"), ExitCode.MACHINE, "kubernetes.cards", {"needed": 9, "there": 8}),
        (
            ("-n", "1", "--kind", "rayservice", "--image", "i:1"),
            ExitCode.USAGE,
            "kubernetes.not_with",
            {"one": "--with", "other": "--kind rayservice"},
        ),
    ],
)
def test_models_share_a_node_as_deployments_that_need_its_cards(
    words: tuple[str, ...],
    code: ExitCode,
    id: str,
    values: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = (MODEL, "--machine", "simulated:hls2", "--with", MODEL)
    shown = f"gaudi-launch: {text(id, 'en', **values)}\n"
    assert output(capsys, "render", "kubernetes", *base, *words) == (code, "", shown)
