"""No command prints a secret of the options after ``--``."""

from __future__ import annotations

import json
import shlex

import pytest

from gaudi_launch.core.base.errors import ExitCode
from tests.support.cli import output
from tests.support.every_case import EVERY_CASE

SECRET = "K9secretvalueK9"
MODEL = ("Qwen/Qwen3-8B", "--machine", "simulated:hls2", "-n", "1")
SPELLINGS = (
    ("--api-key", SECRET),
    (f"--api_key={SECRET}",),
    ("--hf-token", SECRET),
    ("--model-loader-extra-config", json.dumps({"auth_token": SECRET})),
    ("--otlp-traces-endpoint", f"http://user:{SECRET}@host/"),
    # as JSON objects are mistyped
    ("--model-loader-extra-config", f"{{'auth_token': '{SECRET}'}}"),
    ("--model-loader-extra-config", f'{{"a": {{"auth_token": "{SECRET}"'),
    ("--model-loader-extra-config", f"{{auth_token {SECRET}}}"),
    (f'--model-loader-extra-config={{"a" "api-key" "{SECRET}"}}',),
    ("--model-loader-extra-config", f"[auth_token,{SECRET}"),
    # without brackets, and names that only the log of a command knew
    ("--model-loader-extra-config", f"auth_token={SECRET}"),
    (f"--model-loader-extra-config=auth_token:{SECRET}",),
    ("--model-loader-extra-config", f"region=eu,hf_token={SECRET}"),
    ("--model-loader-extra-config", f"auth_token {SECRET}"),
    ("--model-loader-extra-config", "auth_token", SECRET),
    ("--model-loader-extra-config", json.dumps({"authkey": SECRET})),
    ("--model-loader-extra-config.aws.authkey", SECRET),
    ("--download-dir", f"hf_{SECRET}{SECRET}"),
    ("--otlp-traces-endpoint", f"http://host/?sig={SECRET}"),
    ("--foo-auth-token", SECRET),
    ("--middleware", f"Authorization: Bearer {SECRET}"),
)


@pytest.mark.parametrize(
    "command",
    [
        ("plan", *MODEL),
        ("plan", *MODEL, "--all"),
        ("plan", *MODEL, "--json"),
        ("recommend", *MODEL, "--for", "throughput"),
        ("recommend", *MODEL, "--for", "throughput", "--json"),
        ("render", "script", *MODEL),
        ("engines", "diff", "vllm-gaudi@0.24", "vllm-gaudi@0.26", *MODEL),
        ("warmup", *MODEL),
    ],
    ids=" ".join,
)
def test_a_secret_after_the_dashes_is_not_printed(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    codes = []
    # each command has the plan's arguments: the others print them in a few forms
    for words in SPELLINGS if EVERY_CASE or command[0] == "plan" else SPELLINGS[::5]:
        code, out, err = output(capsys, *command, "--", *words)
        codes.append(code)
        assert SECRET not in out + err
    # what a variable can have is planned, the rest is refused
    assert codes[0] == 0


@pytest.mark.parametrize("words", SPELLINGS, ids=" ".join)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_a_secret_of_another_command_is_not_printed(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], form: tuple[str, ...]
) -> None:
    given = (f"HF_TOKEN={SECRET}", f"VLLM_PLUGINS=auth_token={SECRET}")
    engine = ("vllm", "serve", "Qwen/Qwen3-8B")
    for line in (
        ("env", *given, *engine, *words),
        ("wrapper", *words, *engine),
        # they are refused: no model, no engine, no script
        ("vllm", "serve", *words[:2]),
        ("./x.sh", *words),
        ("run.py", *words),
    ):
        code, out, err = output(capsys, "migrate", shlex.join(line), *form)
        assert code != ExitCode.FAILED
        assert SECRET not in out + err, line
