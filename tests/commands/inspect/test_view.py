"""The page about a model: the verdict, the table of cards, and what was assumed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from gaudi_launch.commands.inspect import view
from gaudi_launch.commands.inspect.case import InspectedModel
from gaudi_launch.commands.inspect.fit import FitResult, InspectOptions
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.models.card_memory import FitRow, FitTable
from gaudi_launch.core.models.model import Model
from tests.support.views import views

pytestmark = pytest.mark.usefixtures("plain_english")

UNEVEN = FitRow(3, "bfloat16", False, message("fit.heads", heads=32, n=3))
TIGHT = FitRow(1, "bfloat16", False, message("common.interrupted"), weights_gib_per_card=150.0)
GOOD = FitRow(
    n=2,
    dtype="fp8",
    fits=True,
    reason=message("common.interrupted"),
    weights_gib_per_card=40.126,
    activations_gib_per_card=1.005,
    graphs_gib_per_card=2.349,
    kv_gib_per_card=30.5,
    states_gib_per_card=0.001,
    kv_bytes_per_token=131072,
    kv_blocks=1234,
    concurrency=5.678,
    longest_context=32768,
)
WOULD = (message("common.interrupted"), message("profiles.missing", where="a", name="b"))


def result(*rows: FitRow, smallest: int | None = None, **changes: object) -> FitResult:
    made = FitResult(
        Model("/m/x", "x"),
        "gaudi2",
        None,
        4096,
        FitTable(rows, smallest),
        ("bfloat16", "fp8"),
        numbers_given=False,
        usable_bytes=90 << 30,
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # as each test names them


CASES = (
    result(UNEVEN, TIGHT, GOOD, smallest=2),
    result(GOOD, smallest=2, numbers_given=True, profile="qwq-32b"),
    result(GOOD, smallest=2, usable_bytes=None, cores=24),
    # the first type fits nowhere, another does
    result(TIGHT, GOOD, assumed=("gaudi3.memory", "qwq-32b.architecture", "activations")),
    result(UNEVEN, replace(UNEVEN, reason=message("fit.kv_heads", heads=8, n=3))),
    result(
        TIGHT,
        replace(TIGHT, reason=message("fit.unknown", model="x")),
        unknown=WOULD[:1],
        profile="p",
    ),
    result(TIGHT, UNEVEN, would=WOULD),
)


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    pages = [
        InspectedModel(
            Model("/m/x", "x"), InspectOptions("/m/x"), "gaudi2", None, None, each, None, ()
        )
        for each in CASES
    ]
    views(capsys, "inspect", [partial(view.show, each, complete=True) for each in pages])
