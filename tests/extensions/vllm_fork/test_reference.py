"""Reference tuning against every recorded start of the public scripts: env and argv compared
whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.machine import load
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.extensions.migrate.import_scripts import read_call, request_of
from tests.support.machines import make_recorded, recorded_hosts, use
from tests.support.reference_scripts import SCRIPTS, STAMP, asks_too_much, comparable, records


def plan_of(name: str, record: dict[str, Any]) -> Plan:
    """The plan of a recorded call, made as migrate makes it."""
    release, script = SCRIPTS[name]
    call = read_call(["bash", script, *record["args"]], release)
    request = request_of(call, record["env_in"], STAMP)
    engine = find(request.engine)
    return make_plan(request, load(None), known_model(request.model, must_exist=False), engine)


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
