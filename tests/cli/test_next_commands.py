"""What to type after an error, with the user's own arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.cli.main import _launch_error, run
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.simulated import write_tree
from tests.support.machines import use
from tests.support.serve import write_model

pytestmark = pytest.mark.usefixtures("plain_english")
NO_ENGINE = LaunchError("serve.no_engine", ExitCode.MACHINE, engine="vllm-fork@1.22", python="PATH")


def test_serve_without_an_engine_offers_setup_and_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tree("hls2", tmp_path / "machine")
    use(monkeypatch, tmp_path / "machine")
    write_model(tmp_path / "my model")
    monkeypatch.setenv("PATH", str(tmp_path / "machine" / "bin"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    assert run(["serve", "my model", "-n", "1", "--engine", "vllm-fork@1.22", "--no-doctor"]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert "serve in a container" in lines[-2]
    assert lines[-1] == "  $ gaudi-launch setup vllm-fork@1.22"
    assert not (tmp_path / "state" / "gaudi-launch" / "services").exists()


def test_programs_get_the_commands_as_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert _launch_error(NO_ENGINE, True) == 3
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["id"], error["commands"]) == (
        "serve.no_engine",
        ["gaudi-launch setup vllm-fork@1.22"],
    )
