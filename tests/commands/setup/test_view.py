"""Versions of an engine that were replaced, and a return to the one before."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from gaudi_launch.commands.setup import view as setup
from gaudi_launch.commands.setup.case import Leftovers, RollBack
from tests.support.views import for_programs, views

pytestmark = pytest.mark.usefixtures("plain_english")

OTHERS = (Path("/e/1"), Path("/e/2"))
RUNNING = Leftovers(Path("/e/3"), ("a", "b"), used=True, others=OTHERS)
USED = Leftovers(Path("/e/3"), (), used=True, others=())
FREE = Leftovers(Path("/e/3"), (), used=False, others=OTHERS[:1])


def back(left: Leftovers) -> RollBack:
    return RollBack("vllm-fork@1.21", Path("/e/4"), Path("/e/4/bin/python"), left)


def test_what_a_replaced_version_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    views(
        capsys,
        "setup",
        [
            *(partial(setup.show_leftovers, each) for each in (None, RUNNING, USED, FREE)),
            lambda: setup.show_rollback(back(RUNNING), True, False),
            lambda: setup.show_rollback(back(RUNNING), False, False),
        ],
        [
            for_programs(capsys, lambda: setup.show_rollback(back(RUNNING), True, True)),
            setup.leftovers_json(None),
        ],
    )
