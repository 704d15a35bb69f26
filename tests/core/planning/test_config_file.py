"""A plan knows what the engine reads from the user's --config FILE, and never shows a secret of
it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.planning.config_file import named_file, with_file
from gaudi_launch.core.planning.engine_args import engine_args
from gaudi_launch.core.planning.option_table import UPSTREAM, option_table
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.secret_args import SECRET_FILE
from tests.support.cli import reading

TABLE = option_table(UPSTREAM)
S = "hunter2-SECRET"
FILE = """
max-model-len: 8192
max_num_seqs: 32
port: 9111
enforce-eager: false
enable-chunked-prefill: false
served-model-name: [a, b]
hf-overrides: {rope_scaling: {factor: 2}}
api-key: %(secret)s
model-loader-extra-config: '{"aws_secret_access_key": "%(secret)s"}'
"""


def read(text: str, path: str = "c.yaml") -> Request:
    return with_file(Request("/m", options=TABLE), path, text)


def test_the_entries_become_the_words_that_the_engine_makes_of_them() -> None:
    made = read(FILE % {"secret": S})
    assert made.file_words == (
        *("--max-model-len", "8192", "--max_num_seqs", "32", "--port", "9111"),
        # --enforce-eager is off by itself; the engine has a --no- form of both
        *("--no-enforce-eager", "--no-enable-chunked-prefill"),
        *("--served-model-name", "a", "b", "--hf-overrides", '{"rope_scaling": {"factor": 2}}'),
        *("--api-key", "<in c.yaml>", "--model-loader-extra-config", "<in c.yaml>"),
    )
    assert dict(made.environment) == {"VLLM_API_KEY": S}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--config", "/a/c.yaml"), "/a/c.yaml"),
        (("--seed", "1"), None),
        (("--config", "a.yaml", "--config", "b.yaml"), "plan.config_one"),
        (("--config",), "plan.config_one"),
        (("--config=a.yaml",), "plan.config_attached"),
        (("--config", "a.json"), "plan.config_ending"),
    ],
)
def test_the_file_is_named_as_the_engine_wants_it(
    words: tuple[str, ...], found: str | None
) -> None:
    args = engine_args(table=TABLE, user=words)
    try:
        assert named_file(args) == found
    except LaunchError as refused:
        assert (refused.id, refused.exit_code) == (found, ExitCode.USAGE)


def test_the_refusal_of_a_form_names_what_was_written() -> None:
    found = {}
    for words in (
        ("--config", "a.yaml", "--config", "b.yaml"),
        ("--config=a.yaml",),
        ("--config", "a.json"),
    ):
        with pytest.raises(LaunchError) as caught:
            named_file(engine_args(table=TABLE, user=words))
        found[words[-1]] = caught.value.text
    assert found == {
        "b.yaml": message("plan.config_one", option="--config"),
        "--config=a.yaml": message("plan.config_attached", found="--config=a.yaml", path="a.yaml"),
        "a.json": message("plan.config_ending", path="a.json"),
    }


def test_the_file_that_serve_writes_is_not_the_users() -> None:
    assert named_file(engine_args(table=TABLE, user=("--config", SECRET_FILE))) is None


def test_an_empty_file_changes_nothing_and_an_exported_value_stays() -> None:
    request = Request("/m", options=TABLE, environment={"A": "1"})
    assert with_file(request, "c.yaml", "{}") == request
    made = with_file(request, "c.yaml", "seed: 3\nlora-modules: []\nenable-lora: false")
    assert (made.file_words, made.environment) == (("--seed", "3", "--no-enable-lora"), {"A": "1"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "a: [",
            message(
                "plan.config_text", path="c.yaml", why="line 2: did not find expected node content"
            ),
        ),
        ("- a\n", message("plan.config_mapping", path="c.yaml", found="list")),
        ("", message("plan.config_mapping", path="c.yaml", found="NoneType")),
    ],
)
def test_text_that_the_engine_stops_on_is_refused(text: str, expected: Message) -> None:
    with pytest.raises(LaunchError) as refused:
        read(text)
    assert (refused.value.exit_code, refused.value.text) == (ExitCode.USAGE, expected)


def plan(
    capsys: pytest.CaptureFixture[str], *words: str, engine: str = "vllm-gaudi"
) -> dict[str, Any]:
    line = f"plan -w Qwen/Qwen3-8B -n 1 --engine {engine} --machine simulated:hls2"
    return reading(capsys, *line.split(), *words)


def value_of(document: dict[str, Any], name: str) -> tuple[Any, ...]:
    (row,) = [each for each in document["settings"] if each["name"] == name]
    return row["value"], row["source"], row["reason"]


def test_the_file_wins_over_the_plan_and_words_after_the_dashes_win_over_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(FILE % {"secret": S}, encoding="utf-8")
    made = plan(capsys, "--", "--config", str(path), "--max-num-seqs", "16")
    from_file = "read from the file of --config"
    assert value_of(made, "--max-model-len") == ("8192", "flag", from_file)
    assert value_of(made, "--max-num-seqs") == ("16", "flag", "written after --")
    assert value_of(made, "--no-enable-chunked-prefill") == (None, "flag", from_file)
    assert made["url"] == "http://127.0.0.1:9111"
    args = engine_args(table=TABLE, user=made["argv"])
    # the file's own text is what the engine reads: nothing of it that we would say otherwise is
    # sent
    assert [args.last(name) for name in ("--max-model-len", "--max-num-seqs", "--config")] == [
        "8192",
        "16",
        str(path),
    ]
    assert not args.given("--enable-chunked-prefill", "--served-model-name")
    assert made["argv"][-4:] == ["--config", str(path), "--max-num-seqs", "16"]
    assert S not in json.dumps(made)


def test_a_file_that_is_not_here_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(capsys, "--", "--config", "/nowhere/c.yaml")
    assert [each["id"] for each in made["warnings"] if "/nowhere/c.yaml" in str(each)] == [
        "plan.config_unknown"
    ]


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1"])
def test_an_engine_that_breaks_on_the_file_is_refused(
    engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["plan", "-w", "/m/x", "-n", "1", "--engine", engine, "--machine", "simulated:hls2"]
    assert run([*line, "--", "--config", "c.yaml"]) == ExitCode.USAGE
    assert f"--config c.yaml stops {engine}" in capsys.readouterr().err
