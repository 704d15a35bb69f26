"""The file of secret options: only its owner can read it, and a plan names it where the engine
finds it."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.secret_args import with_secret_moved
from gaudi_launch.core.services.state.secret_file import SecretFile

S = "hunter2-SECRET"
WORDS = ("--model-loader-extra-config.aws_secret_access_key", S, "--seed", "1")


def moved() -> Request:
    return with_secret_moved(
        Request("/m/x", cards=1, engine="vllm-gaudi", extra=WORDS), into_file=True
    )


def test_it_is_written_for_its_owner_only(tmp_path: Path) -> None:
    secret = SecretFile(tmp_path, moved().secret_options)
    secret.write()
    assert secret.path.read_text() == f'"model-loader-extra-config.aws_secret_access_key": "{S}"\n'
    assert stat.S_IMODE(secret.path.stat().st_mode) == 0o600
    # a launch without secrets leaves none of an earlier one
    SecretFile(tmp_path, "").write()
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "theirs"
    target.write_text("untouched")
    (tmp_path / "secret-options.yaml").symlink_to(target)
    SecretFile(tmp_path, "a: b\n").write()
    assert target.read_text() == "untouched"


def test_a_folder_that_is_gone_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LaunchError) as refused:
        SecretFile(tmp_path / "gone", "a: b\n").write()
    path = str(tmp_path / "gone" / "secret-options.yaml")
    assert (refused.value.exit_code, refused.value.text) == (
        ExitCode.MACHINE,
        message("services.secret_unwritten", path=path, why="No such file or directory"),
    )


def test_the_plan_names_its_path_and_never_its_text(tmp_path: Path) -> None:
    request = moved()
    plan = make_plan(request, make("hls2"), Model("/m/x", "x"), find("vllm-gaudi", None))
    named = SecretFile(tmp_path, request.secret_options).named_in(plan)
    path = str(tmp_path / "secret-options.yaml")
    assert named.command.argv[-4:] == ("--seed", "1", "--config", path)
    assert named.command.user == ("--seed", "1", "--config", path)
    expected = tuple(
        replace(setting, value=path) if setting.name == "--config" else setting
        for setting in plan.settings
    )
    assert named.settings == expected
    assert replace(named, command=plan.command, settings=plan.settings) == plan
    (row,) = [setting for setting in named.settings if setting.name == "--config"]
    assert (row.value, row.reason.id) == (path, "plan.secret_file")
    assert S not in str(named.to_json())
    assert SecretFile(tmp_path, "").named_in(plan) is plan
