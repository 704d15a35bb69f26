"""What no recorded screen shows: our identifiers, and two notations of thousands."""

from __future__ import annotations

import re

import pytest

from gaudi_launch.core.base.messages import catalogue
from gaudi_launch.core.doctor.runner import CHECKS
from gaudi_launch.core.engines.entries import names
from tests.support.places import DATA

GOLDEN = DATA / "golden"
KINDS = ("screen-*", "whole-*", "view-*", "top-*", "plan-*", "devices*", "ray-check-*")
SCREENS = sorted(path.name for kind in KINDS for path in GOLDEN.glob(f"{kind}.txt"))

# names that users type or copy: engines, checks, keys of files, tags of packages
TYPED = {*names(), *(check.id.partition(".")[2] for check in CHECKS)}
TYPED |= {"http_options", "num_replica", "num_replicas", "route_prefix"}  # of a Ray file
TYPED |= {"qwen3_moe", "manylinux_2_28_x86_64", "api_server"}  # of the model, pip and vLLM
TYPED |= {"batch_size", "seq_len"}  # a shape, quoted from the engine's log
# variables, options, commands, paths, ports, and values to copy into a setting
COPIED = re.compile(
    r"^ *(?:\$|sudo|--|[A-Z][A-Z_]{4,}\b).*|gaudi-launch [a-z].*|--[\w-]+[ =]\S+|pid \d+| 8000 "
    r"|\S*nr_hugepages.*|memory\.hugepages.*|[\w.\[\]]*/[A-Za-z]\S+|\S+=\S*|\S+://\S+"
    r"|the scripts' 16384|不少于脚本的 16384"
)
IDENTIFIER = re.compile(r"(?<![\w-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?!\w)|\b(?:True|None)\b")
UNGROUPED = re.compile(r"(?<![\w.,/:=@+-])\d{4,}(?![\w/:@-]|\.\d)")


@pytest.mark.parametrize("name", SCREENS)
def test_no_screen_shows_an_identifier_or_ungrouped_thousands(name: str) -> None:
    shown = []
    views = (GOLDEN / name).read_text(encoding="utf-8").split("----\n")
    # a document for programs may follow a view
    texts = [each for each in views if not each.startswith("{")]
    for line in "".join(texts).splitlines():
        left = COPIED.sub(" ", line)
        shown += [word for word in IDENTIFIER.findall(left) if word not in TYPED]
        shown += [word for word in re.findall(r"[a-z_.]+", left) if word in catalogue("en")]
        shown += UNGROUPED.findall(left)
    assert shown == []
