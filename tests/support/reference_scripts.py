"""Reference tuning against every recorded start of the public scripts: env and argv compared whole."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.engines.registry import find
from gaudi_launch.engines.start_scripts import read_call, request_of
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.machine import load
from gaudi_launch.planning.plan import Plan
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.profiles import known_model
from tests.host.machines import make_recorded, recorded_hosts, use

DATA = Path(__file__).parent.parent / "data" / "parity" / "launch"
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
        rows = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
        found += [pytest.param(name, row, id=f"{name}-{number}") for number, row in enumerate(rows)]
    return found


def plan_of(name: str, record: dict[str, Any]) -> Plan:
    """The plan of a recorded call, made as migrate makes it."""
    release, script = SCRIPTS[name]
    call = read_call(["bash", script, *record["args"]], release)
    request = request_of(call, record["env_in"], STAMP)
    engine = find(request.engine)
    return make_plan(request, load(None), known_model(request.model, must_exist=False), engine)


def comparable(env: dict[str, str], record: dict[str, Any]) -> dict[str, str]:
    """Variables without what differs by design: addresses, cards nobody named, folders and timestamps."""
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
    """More cards wanted than the recorded host has free (and may be seen)."""
    host, words = recorded_hosts()[record["host"]], record["args"]
    flag = {"v1.21.0": "-n", "v1.22.0": "-t"}.get(record["version"])
    wanted = 8 if flag is None else int(words[words.index(flag) + 1]) if flag in words else 1
    free = set(host["idx2mod"]) - set(host["used"])
    visible = record["env_in"].get("HABANA_VISIBLE_MODULES", "all")
    if visible not in ("", "all") and flag is not None and "-m" not in words:
        free &= {int(module) for module in visible.split(",")}
    return wanted > len(free)


@pytest.mark.parametrize(("name", "record"), records())
def test_reference_tuning_is_what_the_scripts_did(
    name: str, record: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tmp_path, make_recorded(recorded_hosts()[record["host"]], tmp_path))
    if not record["launched"]:
        with pytest.raises(LaunchError) as refused:
            plan_of(name, record)
        assert refused.value.exit_code != 0
        return
    if asks_too_much(record):
        # the scripts start an engine that cannot come up; here it is refused before anything starts
        with pytest.raises(LaunchError) as refused:
            plan_of(name, record)
        assert refused.value.exit_code == ExitCode.MACHINE
        return
    plan = plan_of(name, record)
    assert list(plan.command.argv[1:]) == record["argv"]
    ours = {**record["env_in"], **plan.command.env}
    assert comparable(ours, record) == comparable(record["env"], record)
