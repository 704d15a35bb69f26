"""migrate: our command for every option, what is hidden, the machine, what auto changes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import machine
from gaudi_launch.app import migrate as cases
from gaudi_launch.app.migrate import SettingDifference
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.hardware import Host
from gaudi_launch.host.simulated import make
from gaudi_launch.messages import message, text
from gaudi_launch.models.model import Model
from gaudi_launch.planning.plan import Setting
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

PLAIN = Request("/m", engine="vllm-fork@1.21")
BEGIN = ["gaudi-launch", "serve", "--engine", "vllm-fork@1.21", "-w", "/m"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, []),
        ({"cards": 1}, []),
        ({"cards": 1, "modules": (3,)}, ["-n", "1", "-m", "3"]),
        ({"cards": 2, "modules": (3, 4)}, ["-n", "2", "-m", "3,4"]),
        ({"host": "0.0.0.0", "port": 9}, ["-u", "0.0.0.0", "-p", "9"]),
        ({"dtype": "fp8"}, ["-d", "fp8"]),
        ({"input_range": (1, 2), "output_range": (3, 4)}, ["-i", "1,2", "-o", "3,4"]),
        (
            {"input_range": (1, 2), "output_range": (3, 4), "open_ranges": ("input",)},
            ["-i", "1", "-o", "3,4"],
        ),
        (
            {"max_num_batched_tokens": 5, "max_model_len": 6, "max_num_seqs": 7},
            ["-t", "5", "-l", "6", "-b", "7"],
        ),
        ({"scheduler_steps": 8, "max_prefill_seqs": 9}, ["-e", "8", "--max-prefill-seqs", "9"]),
        ({"padding_limit": "10"}, ["--padding-limit", "10"]),
        ({"memory_utilization": "0.8"}, ["--memory-utilization", "0.8"]),
        ({"max_capture_len": 11}, ["--max-capture-len", "11"]),
        ({"quant_config": "/q", "cache_dir": "/c"}, ["--quant-config", "/q", "-c", "/c"]),
        ({"reduce": (8, 24000)}, ["-r", "8,24000"]),
        (
            {
                "skip_warmup": True,
                "profile": True,
                "no_zero_padding": True,
                "no_fused_sdpa": True,
                "inc_fp8": True,
                "trust_remote_code": True,
            },
            ["-s", "-f", "-z", "-a", "-q", "--trust-remote-code"],
        ),
        ({"extra": ("--seed", "1")}, ["--", "--seed", "1"]),
    ],
)
def test_every_option_of_a_script_is_one_of_ours(given: dict[str, Any], words: list[str]) -> None:
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


def test_a_machine_without_cards_is_replaced_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str | None, Host] = {
        None: Host(),
        "snapshot": Host(),
        "simulated:hls2": make("hls2"),
    }
    monkeypatch.setattr(machine, "load", lambda name=None: known[name])
    note = message("migrate.no_cards", machine="simulated:hls2")
    assert cases._machine(None) == (make("hls2"), (note,))
    assert cases._machine("snapshot") == (Host(), ())
    known[None] = make("gaudi2e-8")
    assert cases._machine(None) == (make("gaudi2e-8"), ())


def test_code_of_a_model_is_known_by_its_files_or_its_profile() -> None:
    assert cases._brings_code(Model("m", "m", remote_code=False)) is False
    assert cases._brings_code(Model("m", "m", remote_code=True)) is True
    assert cases._brings_code(Model("m", "nothing-known")) is None
    assert cases._brings_code(known_model("deepseek-ai/DeepSeek-R1", must_exist=False)) is True


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
    assert cases._differences(theirs, mine, None) == [
        SettingDifference("--old", "1", "2", mine.settings[1].reason.render()),
        SettingDifference("--gone", "", None, left),
        SettingDifference("NEW", None, "3", mine.settings[2].reason.render()),
        SettingDifference("cpus", "0-1", "0-2", text("migrate.cpus")),
    ]
    assert cases._differences(theirs, theirs, None) == []
    error = LaunchError("services.drain", ExitCode.USAGE, found=1)
    assert cases._differences(theirs, error, None) == [
        SettingDifference("plan", "", "", str(error))
    ]


@pytest.mark.parametrize(
    ("brings", "id"),
    [(None, "migrate.code_unknown"), (False, "migrate.code_unneeded")],
)
def test_consent_to_code_is_left_out_where_it_is_not_needed(brings: bool | None, id: str) -> None:
    theirs = plan(setting("--trust-remote-code", None))
    [found] = cases._differences(theirs, plan(), brings)
    assert found == SettingDifference("--trust-remote-code", "", None, text(id))
