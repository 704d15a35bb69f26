"""Recorded calls of the public start scripts, and the comparison with plans."""

from __future__ import annotations

import gzip
import json
import re
from itertools import pairwise
from typing import Any

import pytest

from tests.support.machines import recorded_hosts
from tests.support.places import DATA

LAUNCHES = DATA / "parity" / "launch"


SCRIPTS = {
    "v1.21.0": ("1.21", "scripts/start_gaudi_vllm_server.sh"),
    "v1.22.0": ("1.22", "scripts/start_gaudi_vllm_server.sh"),
    "deepseek_r1": ("deepseek_r1", "scripts/quickstart/start_vllm.sh"),
}


STAMP = "2026-01-02-03-04-05"


# names of this machine's network, not of a rule
NETWORK = ("VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")


def records() -> list[Any]:
    found = []
    for name in SCRIPTS:
        text = gzip.decompress((LAUNCHES / f"{name}.json.gz").read_bytes()).decode()
        # the folder that was recorded as @TMP@ was an absolute one
        rows = json.loads(text.replace("@TMP@", "/@TMP@"))
        found += [pytest.param(name, row, id=f"{name}-{number}") for number, row in enumerate(rows)]
    return found


def traits(case: Any) -> list[tuple[str, ...]]:
    """Return what is special in a recorded call.

    Each option, also with its value where that is a name, each variable, the host and the outcome.
    """
    name, record = case.values
    found: list[tuple[str, ...]] = [
        (name, "host", record["host"]),
        (name, "launched", str(record["launched"])),
    ]
    found.append((name, "too much", str(asks_too_much(record))))
    found += [(name, "variable", variable) for variable in record["env_in"]]
    for word, following in pairwise([*record["args"], "-"]):
        if not word.startswith("-"):
            continue
        found.append((name, word))
        if following.isalnum() and not following.isdecimal():
            found.append((name, word, following))
    return found


def comparable(env: dict[str, str], record: dict[str, Any]) -> dict[str, str]:
    """Return variables without what differs by design.

    Those are addresses, cards that were not named, folders and timestamps.
    """
    given = record["env_in"]
    kept = {name: value for name, value in env.items() if name not in NETWORK or name in given}
    if "-m" not in record["args"] and record["version"] != "deepseek":
        kept.pop("HABANA_VISIBLE_MODULES", None)
    for name in ("QUANT_CONFIG", "INC_MEASUREMENT_DUMP_PATH_PREFIX"):
        if name in kept and name not in given and "-q" in [*record["args"], "-q"]:
            kept[name] = re.sub(r"^.*?(quantization/|quant_configs/|$)", r"\1", kept[name])
    if "VLLM_PROFILE_FILE" in kept:
        kept["VLLM_PROFILE_FILE"] = kept["VLLM_PROFILE_FILE"].replace(STAMP, "@TIME@")
    return kept


def asks_too_much(record: dict[str, Any]) -> bool:
    """Return True if more cards are requested than the recorded host has free.

    Busy ones must be visible.
    """
    host, words = recorded_hosts()[record["host"]], record["args"]
    flag = {"v1.21.0": "-n", "v1.22.0": "-t"}.get(record["version"])
    wanted = 8 if flag is None else int(words[words.index(flag) + 1]) if flag in words else 1
    free = set(host["idx2mod"]) - set(host["used"])
    visible = record["env_in"].get("HABANA_VISIBLE_MODULES", "all")
    if visible not in ("", "all") and flag is not None and "-m" not in words:
        free &= {int(module) for module in visible.split(",")}
    return wanted > len(free)
