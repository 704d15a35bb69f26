"""migrate: our command for every option, what is hidden, the machine, what auto changes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import migrate as cases
from gaudi_launch.app.migrate import SettingDifference
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import message, text
from gaudi_launch.planning.plan import Setting
from gaudi_launch.planning.request import Request
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

PLAIN = Request("/m", engine="vllm-fork@1.21", tuning="reference")
BEGIN = ["gaudi-launch", "serve", "--engine", "vllm-fork@1.21", "-w", "/m"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, []),
        ({"cards": 1}, []),
        ({"cards": 1, "modules": (3,)}, ["-n", "1", "-m", "3"]),
        ({"cards": 2, "modules": (3, 4)}, ["-n", "2", "-m", "3,4"]),
        (
            {"input_range": (1, 2), "output_range": (3, 4), "open_ranges": ("input",)},
            ["-i", "1", "-o", "3,4"],
        ),
        ({"reduce": (8, 24000)}, ["-r", "8,24000"]),
        ({"skip_warmup": True, "trust_remote_code": True}, ["-s", "--trust-remote-code"]),
        ({"extra": ("--seed", "1")}, ["--", "--seed", "1"]),
    ],
)
def test_each_kind_of_option_of_a_script_is_ours(given: dict[str, Any], words: list[str]) -> None:
    assert cases._our_command(replace(PLAIN, **given), {}) == [*BEGIN, *words]


def test_variables_precede_the_command_and_secrets_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cases._our_command(PLAIN, {"A": "1", "B": "2"}) == ["env", "A=1", "B=2", *BEGIN]
    monkeypatch.setattr("os.environ", {"HOME": "/h"})
    environment = {"HOME": "/h", "A": "1", "VLLM_API_KEY": "k"}
    moved = replace(PLAIN, environment=environment)
    assert cases._hidden(moved, {"A": "1", "HF_TOKEN": "t"}) == ["HF_TOKEN", "VLLM_API_KEY"]


def test_one_text_is_split_as_a_shell_does() -> None:
    assert cases._split(["bash", "a b"]) == ["bash", "a b"]
    assert cases._split(["bash a.sh \\\n -w 'x y'"]) == ["bash", "a.sh", "-w", "x y"]
    with refused("migrate.quoting", ExitCode.USAGE, found="a 'b", why="No closing quotation"):
        cases._split(["a 'b"])


def setting(name: str, value: str | None, *, kind: Any = "option", source: Any = "flag") -> Setting:
    return Setting(name, value, kind, source, message("services.drain", found=name))


def plan(*settings: Setting, cpus: tuple[int, ...] = (0, 1)) -> Any:
    return SimpleNamespace(settings=settings, placement=SimpleNamespace(cpus=cpus))


def test_each_setting_that_auto_changes_is_listed_with_its_reason() -> None:
    same, stated = setting("--same", "1"), setting("--stated", "1", source="engine")
    theirs = plan(same, setting("--old", "1"), setting("--gone", None), stated)
    mine = plan(
        same, setting("--old", "2"), setting("NEW", "3", kind="env"), stated, cpus=(0, 1, 2)
    )
    left = text("migrate.left_out")
    assert cases._differences(theirs.settings, mine, None, (0, 1)) == [
        SettingDifference("--old", "1", "2", mine.settings[1].reason.render()),
        SettingDifference("--gone", "", None, left),
        SettingDifference("NEW", None, "3", mine.settings[2].reason.render()),
        SettingDifference("cpus", "0-1", "0-2", text("migrate.cpus")),
    ]
    assert cases._differences(theirs.settings, theirs, None, (0, 1)) == []
    error = LaunchError("services.drain", ExitCode.USAGE, found=1)
    assert cases._differences(theirs.settings, error, None, ()) == [
        SettingDifference("plan", "", "", str(error))
    ]
