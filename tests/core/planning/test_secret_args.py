"""No secret of an option's value reaches a plan, a file or a command line."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.redact_values import reveals_secret
from gaudi_launch.core.planning.engine_args import engine_args
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.secret_args import (
    SECRET_FILE,
    is_secret_file,
    refuse_secret_args,
    with_secret_moved,
)

S = "hunter2-SECRET"


@pytest.mark.parametrize(
    ("words", "variable"),
    [
        (("--api-key", S), "VLLM_API_KEY"),
        (("--api_key=" + S,), "VLLM_API_KEY"),
        (("--api-k", S), "VLLM_API_KEY"),
        (("--hf-token", S), "HF_TOKEN"),
        (("--hf_token=" + S,), "HF_TOKEN"),
    ],
)
def test_a_secret_option_becomes_the_engines_variable(
    words: tuple[str, ...], variable: str
) -> None:
    made = with_secret_moved(Request("/m", extra=("--seed", "1", *words, "--enforce-eager")))
    assert made.extra == ("--seed", "1", "--enforce-eager")
    assert dict(made.environment) == {variable: S}


REFUSED = [
    ("--ssl-keyfile-password", S),
    ("--model-loader-extra-config", json.dumps({"aws_secret_access_key": S})),
    ("--model_loader_extra_config=" + json.dumps({"s3": [{"token": S}]}),),
    ("--model-loader-extra-config.aws_secret_access_key", S),
    ("--hf-overrides", json.dumps({"token": S})),
    ("--otlp-traces-endpoint", f"http://user:{S}@host/"),
    ("--api-key", S, "second"),
]


@pytest.mark.parametrize("words", REFUSED)
def test_a_secret_without_a_variable_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(LaunchError) as caught:
        with_secret_moved(Request("/m", extra=words))
    name = re.sub(r"[=.].*", "", words[0]).replace("_", "-")
    expected = message("plan.secret_argument", option=name)
    if words[0] == "--api-key":
        expected = message("plan.secret_several", option="--api-key", variable="VLLM_API_KEY")
    assert (caught.value.exit_code, caught.value.text) == (ExitCode.USAGE, expected)
    assert S not in str(caught.value)


@pytest.mark.parametrize("command", [("plan", "--json"), ("render", "script")])
@pytest.mark.parametrize("words", REFUSED[:2])
def test_no_command_shows_it(
    command: tuple[str, ...], words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    line = "-w /m/q --engine vllm-fork@1.22 --machine simulated:hls2 --"
    assert run([*command, *line.split(), *words]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert S not in captured.out + captured.err


def test_what_is_no_secret_stays() -> None:
    words = (
        "--hf-token", "--seed", "1", "--tokenizer", "t", "--ssl-keyfile", "/k",
        "--hf-overrides", '{"eos_token": "x", "max_tokens": 3}', "--served-model-name", "token",
    )  # fmt: skip
    assert with_secret_moved(Request("/m", extra=words)).extra == words


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


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("words", [("--api-key", S), ("--otlp-endpoint", f"http://user:{S}@host/")])
def test_tgi_is_given_no_secret(
    words: tuple[str, ...], force: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    line = "plan -w Qwen/Qwen3-8B --engine tgi --machine simulated:hls2 --json"
    assert run([*line.split(), *force, "--", *words]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert S not in captured.out + captured.err


@pytest.mark.parametrize("words", REFUSED[1:6])
def test_an_engine_that_reads_a_file_gets_it_there(words: tuple[str, ...]) -> None:
    made = with_secret_moved(Request("/m", extra=("--seed", "1", *words)), into_file=True)
    assert made.extra == ("--seed", "1", "--config", SECRET_FILE)
    ((name, value),) = yaml.safe_load(made.secret_options).items()
    assert "--" + name == words[0].partition("=")[0].replace(
        "model_loader_extra_config", "model-loader-extra-config"
    )
    assert value == (words[1] if len(words) > 1 else words[0].partition("=")[2])


@pytest.mark.parametrize(
    "words",
    [
        REFUSED[0],  # an option that no engine has
        REFUSED[6],
        (*REFUSED[1], *REFUSED[1]),  # a file has one value for a name
        (*REFUSED[1], "--config", "own.yaml"),  # the engine reads one file only
    ],
)
def test_what_no_file_can_say_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(LaunchError) as caught:
        with_secret_moved(Request("/m", extra=words), into_file=True)
    assert S not in str(caught.value)


def test_plan_names_the_file_and_render_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    words = "-w /m/q -n 1 --engine vllm-gaudi --machine simulated:hls2 --"
    line = (*words.split(), *REFUSED[1])
    assert run(["plan", "--json", *line]) == 0
    shown = capsys.readouterr().out
    assert S not in shown
    assert json.loads(shown)["argv"][-2:] == ["--config", SECRET_FILE]
    assert run(["render", "script", *line]) == ExitCode.USAGE
    assert S not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("words", "secret"),
    [
        # in any case, in a list, in an unknown option
        (("--x", '{"PASSWORD": "a"}'), True),
        (("--x", ' [{"a": {"Api-Key": "a"}}]'), True),
        (("--x", '{"b": [{"s3_SECRET": 1}]}'), True),
        (("--my-Auth-Token", "a"), True),
        (("--x.hf_token", "a"), True),
        (("--x", "redis://:secret@host"), True),
        # nothing below the key, no JSON, another key
        (("--x", '{"password": ""}'), False),
        (("--x", '{"password": '), False),
        (("--x", "password"), False),
        (("--hf-overrides", '{"classifier_from_token": ["no", "yes"]}'), False),
        (("--hf-overrides", '{"architectures": ["Qwen3ForTokenClassification"]}'), False),
        (("--x", '{"passwords_file": "a"}'), False),
        (("--x", "http://host:80/a@b"), False),
        (("token",), False),
        (("--seed", "1"), False),
    ],
)
def test_a_secret_is_known_by_its_key_or_its_url(words: tuple[str, ...], secret: bool) -> None:
    args = engine_args(user=words)
    assert reveals_secret(args.user[0].words) is secret
    if secret:
        with pytest.raises(LaunchError) as caught:
            refuse_secret_args(args)
        expected = message("plan.secret_argument", option=words[0].partition(".")[0])
        assert (caught.value.exit_code, caught.value.text) == (ExitCode.USAGE, expected)
    else:
        refuse_secret_args(args)


def test_a_secret_among_the_files_options_is_refused_too() -> None:
    with pytest.raises(LaunchError):
        refuse_secret_args(engine_args(user=("--seed", "1"), file=("--my-password", S)))


def test_the_file_of_secrets_is_known_by_its_name_in_any_folder() -> None:
    names = (SECRET_FILE, f"/state/{SECRET_FILE}", "my.yaml", f"/{SECRET_FILE}/my.yaml", None)
    assert [is_secret_file(name) for name in names] == [True, True, False, False, False]


def test_what_the_user_wrote_stays_as_the_same_request_without_a_secret() -> None:
    request = Request("/m", extra=("--seed", "1"))
    assert with_secret_moved(request, into_file=True) is request
