"""A model of which only the name is known: what each command says of it, and similar names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.engine_args import engine_args
from gaudi_launch.core.planning.model_name import (
    check_files,
    lacks_weights,
    name_warning,
    near_folders,
    nearest_names,
)
from gaudi_launch.core.planning.request import Request
from tests.support.cli import reading
from tests.support.refusals import failing, refused
from tests.support.shards import shard

TYPO = "Qwen/Qwen2-72B-Intsruct"
MACHINE = ("--machine", "simulated:hls2")
OPTIONS = ("-w", TYPO, "-n", "4", "--engine", "vllm-fork@1.21", *MACHINE)
HUB = ("Qwen/Qwen2-72B-Instruct", "Qwen/Qwen3-8B", "meta-llama/Llama-2-7b-hf")


@pytest.fixture(autouse=True)
def _wide_and_empty(
    current_folder: Path, monkeypatch: pytest.MonkeyPatch, plain_english: None
) -> None:
    monkeypatch.setenv("COLUMNS", "400")


PLANNED = {
    "plan": ("plan", *OPTIONS),
    "warmup": ("warmup", *OPTIONS),
    "migrate": ("migrate", f"bash start_gaudi_vllm_server.sh -w {TYPO} -n 4", *MACHINE),
    "render": ("render", "script", *OPTIONS),
}


@pytest.mark.parametrize("name", PLANNED)
def test_a_stated_number_of_cards_is_planned(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The warning is given once, with the neighbour of a misspelled hub ID."""
    assert run([*PLANNED[name]]) == 0
    out, err = capsys.readouterr()
    shown = " ".join((out + err).split())
    assert shown.count("Nearest names: Qwen/Qwen2-72B-Instruct") == 1
    assert f"The sizes of {TYPO} are unknown" in shown
    assert "None" not in shown


CHOSEN = {
    "plan": ("plan", TYPO, *MACHINE),
    "warmup": ("warmup", "-w", TYPO, *MACHINE),
    "render": ("render", "script", TYPO, *MACHINE),
    "estimate": ("estimate", TYPO, "-n", "4", "--accelerator", "gaudi2"),
    "recommend": ("recommend", TYPO, *MACHINE),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_without_sizes_no_cards_are_chosen_and_nothing_is_predicted(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*CHOSEN[name]]) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert f"The sizes of {TYPO} are unknown" in err
    assert "-w FOLDER" in err and "HF_HUB_OFFLINE" in err
    assert "Did you mean Qwen/Qwen2-72B-Instruct" in err


def test_the_first_line_and_the_verdict_of_a_plan_without_sizes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["plan", "-w", "model", "-n", "4", *MACHINE]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "model on 4 cards: its sizes and its memory are unknown."
    assert reading(capsys, "plan", "-w", "model", "-n", "4", *MACHINE)["verdict"] == "to do"


@pytest.mark.parametrize(
    ("file", "complete"),
    [
        ("tokenizer.json", True),
        ("tokenizer.model", True),
        ("tokenizer.model.v3", True),
        ("spiece.model", True),
        ("tekken.json", True),
        ("vocab.txt", True),
        ("qwen.tiktoken", True),
        ("tokenization_chatglm.py", True),
        ("tokenizer_config.json", False),
        ("README.md", False),
    ],
)
def test_a_folder_without_a_tokenizer_is_incomplete(
    file: str, complete: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"model_type": "qwen3", "num_hidden_layers": 2, "architectures": ["Qwen3ForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    shard(tmp_path / "model.safetensors", {"a": ("BF16", [64], 128)})
    (tmp_path / file).write_text("")
    words = (str(tmp_path), "-n", "1", *MACHINE)
    assert run(["plan", *words]) == 0
    shown = capsys.readouterr().out
    assert ("(tokenizer.json)" not in shown.splitlines()[0]) == complete
    assert (reading(capsys, "plan", *words)["verdict"] != "refused") == complete
    run(["doctor", "-w", str(tmp_path), *MACHINE])
    assert ("tokenizer.json" not in capsys.readouterr().out) == complete


def test_a_known_hub_id_is_not_warned_of() -> None:
    for asked in ("Qwen/Qwen2-72B-Instruct", "demo"):
        assert name_warning(asked, Model(asked, asked, source="profile")) == ()
    assert name_warning("/m/x", Model(path="/m/x", name="x", source="config.json")) == ()


def test_a_listed_name_has_the_sizes_of_its_id(tmp_path: Path) -> None:
    right = tmp_path / "models" / "Qwen3-8B"
    right.mkdir(parents=True)
    asked = str(tmp_path / "modles" / "Qwen3-8B")
    listed = message("plan.name_listed", model=asked, hub_id="Qwen/Qwen3-8B", profile="qwen3-8b")
    found = name_warning(asked, Model(asked, "Qwen3-8B", source="profile"))
    assert found == (listed, message("plan.name_near", nearest=str(right)))


def test_the_hub_s_reason_is_among_the_warnings() -> None:
    reason = message("models.offline", model="a/b", source="h")
    found = name_warning("a/b", Model("a/b", "b", unread=reason))
    assert found == (message("plan.name_sizeless", model="a/b"), reason)


def test_a_path_is_compared_by_its_last_part() -> None:
    assert nearest_names("/m/Qwen2-72B-Intsruct/", HUB) == ("Qwen/Qwen2-72B-Instruct",)
    assert nearest_names("qwen3-8b", HUB) == ("Qwen/Qwen3-8B",)
    # a hub ID has one slash and is compared with its maker
    assert nearest_names("Other/Qwen3-8B", HUB) == ()
    for path in ("./Qwen3-8B", "/Qwen3-8B", "~/Qwen3-8B", "a/b/Qwen3-8B"):
        assert nearest_names(path, HUB) == ("Qwen/Qwen3-8B",), path


def test_one_name_of_two_makers_names_both_and_no_more_than_two_are_named() -> None:
    known = ("a/m-1b-base", "b/m-1b-base", "c/m-1b-base")
    assert nearest_names("m-1b-base", known) == ("a/m-1b-base", "b/m-1b-base")
    assert nearest_names("a/m-1b-bsae", known) == ("a/m-1b-base", "c/m-1b-base")


def test_folders_come_before_hub_ids() -> None:
    assert nearest_names("/modles/Qwen3-8B", HUB, ("/models/Qwen3-8B",)) == (
        "/models/Qwen3-8B",
        "Qwen/Qwen3-8B",
    )


def test_the_folder_beside_a_missing_one_is_found(tmp_path: Path) -> None:
    right = tmp_path / "models" / "Qwen3-8B"
    right.mkdir(parents=True)
    assert near_folders(tmp_path / "modles" / "Qwen3-8B") == (str(right),)
    assert near_folders(tmp_path / "models" / "Qwen3-8b") == (str(right),)
    assert near_folders(tmp_path / "modles" / "Llama") == ()
    assert near_folders(right) == ()


def test_missing_shards_are_named_up_to_five() -> None:
    names = tuple(f"{number}.safetensors" for number in range(6))
    model = Model("/none", "m", files_missing=names[:5])
    values = {"path": "/none", "count": 5, "files": ", ".join(names[:5])}
    with refused("serve.model_incomplete", ExitCode.MODEL, **values):
        check_files(model, Request(model="/m"))
    values |= {"count": 6, "files": f"{', '.join(names[:5])} ..."}
    with refused("serve.model_incomplete", ExitCode.MODEL, **values):
        check_files(replace(model, files_missing=names), Request(model="/m"))
    check_files(model, replace(Request(model="/m"), force=True))
    check_files(Model("/none", "m"), Request(model="/m"))


def test_a_tokenizer_of_another_place_suffices() -> None:
    model = Model("/none", "m", files_missing=("tokenizer.json",))
    with failing("serve.model_incomplete", ExitCode.MODEL):
        check_files(model, Request(model="/m"))
    for words in (("--tokenizer", "other/m"), ("--skip-tokenizer-init",)):
        check_files(model, replace(Request(model="/m"), extra=engine_args(user=words).to_argv()))


def test_a_folder_without_weights_is_found(tmp_path: Path) -> None:
    model, asked = Model(str(tmp_path), "m"), Request(model="/m")
    assert lacks_weights(model, asked)
    assert not lacks_weights(model, replace(asked, force=True))
    dummy = engine_args(user=("--load-format", "dummy")).to_argv()
    assert not lacks_weights(model, replace(asked, extra=dummy))
    assert not lacks_weights(Model("org/m", "m"), asked)
    (tmp_path / "model.safetensors").write_bytes(b"x")
    assert not lacks_weights(model, asked)
