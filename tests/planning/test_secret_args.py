"""No secret of an option's value reaches a plan, a file or a command line."""

from __future__ import annotations

import json

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.errors import ExitCode

S = "hunter2-SECRET"


REFUSED = [
    ("--ssl-keyfile-password", S),
    ("--model-loader-extra-config", json.dumps({"aws_secret_access_key": S})),
    ("--model_loader_extra_config=" + json.dumps({"s3": [{"token": S}]}),),
    ("--model-loader-extra-config.aws_secret_access_key", S),
    ("--hf-overrides", json.dumps({"token": S})),
    ("--otlp-traces-endpoint", f"http://user:{S}@host/"),
    ("--api-key", S, "second"),
]


@pytest.mark.parametrize("command", [("plan", "--json"), ("render", "script")])
@pytest.mark.parametrize("words", REFUSED[:2])
def test_no_command_shows_it(
    command: tuple[str, ...], words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    line = (
        *command,
        "-w",
        "/m/q",
        "--engine",
        "vllm-fork@1.22",
        "--machine",
        "simulated:hls2",
        "--",
        *words,
    )
    assert run([*line]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert S not in captured.out + captured.err


SCRIPT = "bash start_vllm_server.sh -w /m/q -t 1"


@pytest.mark.parametrize(
    "words",
    [
        (f"{SCRIPT} -e '--api-key {S}'", "--release", "1.22"),
        (f"VLLM_API_KEY={S} {SCRIPT}", "--release", "1.22"),
        (f"HF_TOKEN={S} {SCRIPT}", "--release", "1.22"),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_migrate_names_the_variable_and_never_the_value(
    words: tuple[str, ...],
    form: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_LANG", "en")
    assert run(["migrate", *words, "--machine", "simulated:hls2", *form]) == 0
    captured = capsys.readouterr()
    assert S not in captured.out + captured.err
    assert "Export HF_TOKEN" in captured.out or "Export VLLM_API_KEY" in captured.out
