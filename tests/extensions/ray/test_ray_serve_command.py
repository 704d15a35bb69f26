"""``render ray-serve``, ``setup ray`` and --replicas as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gaudi_launch.cli.main import run
from gaudi_launch.extensions.ray.engine import IN_RAY
from tests.support.cli import golden, output, reading
from tests.support.serve import write_model

RENDER = ("render", "ray-serve")
MACHINE = ("--machine", "simulated:hls2")
MODEL = ("-w", "meta-llama/Llama-2-70b-chat-hf")
FORK = ("--engine", "ray-serve:vllm-fork@1.21")


@pytest.fixture(autouse=True)
def _no_interpreters(
    no_programs: None, monkeypatch: pytest.MonkeyPatch, plain_english: None
) -> None:
    monkeypatch.delenv("GAUDI_LAUNCH_ENGINES_DIR", raising=False)


def test_the_config_of_the_guides_eight_cards(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = output(capsys, *RENDER, *MODEL, *FORK, "-n", "8", "-p", "8000", *MACHINE)
    assert code == 0 and f"needs the folder {IN_RAY} and the planned engines" in err
    golden("ray-serve-eight-cards.yaml", out.replace(str(IN_RAY), "IN_RAY"))
    variables = _variables(yaml.safe_load(out))
    assert variables["PYTHONPATH"] == str(IN_RAY) and all(
        isinstance(value, str) for value in variables.values()
    )


def _variables(config: Any) -> dict[str, str]:
    found: dict[str, str] = config["applications"][0]["runtime_env"]["env_vars"]
    return found


def test_the_nodes_get_the_absolute_path_of_a_folder(
    current_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2,'
        ' "num_attention_heads": 4, "hidden_size": 64}'
    )
    code, out, _ = output(capsys, *RENDER, "model", *FORK, *MACHINE)
    argv = yaml.safe_load(out)["applications"][0]["args"]["argv"]
    assert (code, argv[argv.index("--model") + 1]) == (0, str(tmp_path / "model"))


def test_what_we_write_passes_our_own_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "serve.yaml"
    words = ("--replicas", "1..2", "-n", "4", "--to", str(file))
    code, out, _ = output(capsys, *RENDER, *MODEL, *words, *MACHINE)
    assert (code, out) == (0, f"{file}\n")
    code, out, _ = output(capsys, *RENDER, "--check", str(file))
    assert (code, out) == (0, f"{file}: no problem was found.\n")


def test_a_config_names_no_file_that_only_serve_would_write(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("-w", "Qwen/QwQ-32B", "-n", "2", "--engine", "ray-serve:vllm-gaudi")
    code, out, _ = output(capsys, *RENDER, *words, *MACHINE)
    variables = _variables(yaml.safe_load(out))
    assert code == 0 and "VLLM_BUCKETING_FROM_FILE" not in variables
    assert variables["VLLM_BUCKETING_STRATEGY"] in ("exp", "lin", "pad")


def test_a_faulty_config_is_exit_1_with_every_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(
        "http_options: {prot: 8000}\napplications:\n"
        "- {name: a, import_path: a:b, route_prefix: v1, deployments: [{name: D, num_replica: "
        "2}]}\n"
    )
    code, out, _ = output(capsys, *RENDER, "--check", str(file))
    assert code == 1
    golden("ray-check-en.txt", out)
    code, out, _ = output(capsys, *RENDER, "--check", str(file), "--json")
    shown = json.loads(out)
    assert (code, shown["schema"]) == (1, 1)
    assert [problem["id"] for problem in shown["problems"]] == [
        "ray.unknown_key",
        "ray.route_prefix",
        "ray.unknown_key",
    ]


@pytest.mark.parametrize(
    ("content", "id"),
    [(b"a: [", "ray.no_yaml"), (b"\xff\xfe", "ray.cannot_read"), (None, "ray.cannot_read")],
)
def test_a_file_that_cannot_be_read(
    tmp_path: Path, content: bytes | None, id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.yaml"
    if content is not None:
        file.write_bytes(content)
    code, out, _ = output(capsys, *RENDER, "--check", str(file), "--json")
    assert (code, json.loads(out)["error"]["id"]) == (2, id)


@pytest.mark.parametrize(
    ("words", "code", "id"),
    [
        (("plan", "--engine", "ray-serve", "--replicas", "4..2"), 2, "ray.replicas_words"),
        (("plan", "--engine", "ray-serve", "--replicas", "0..2"), 2, "ray.replicas_words"),
        (("plan", "--engine", "ray-serve", "--replicas", "a..b"), 2, "ray.replicas_words"),
        (("plan", "--engine", "ray-serve", "--replicas", "1.."), 2, "ray.replicas_words"),
        (("plan", "--engine", "ray-serve", "--ongoing", "3"), 2, "ray.ongoing_alone"),
        (("plan", "--engine", "vllm-fork@1.21", "--replicas", "2"), 2, "ray.only"),
        (("plan", "--engine", "ray-serve:x"), 2, "engines.unknown"),
        (("plan", "--engine", "ray-serve", "-n", "4", "--replicas", "3"), 3, "placement.too_many"),
    ],
)
def test_wrong_words(
    words: tuple[str, ...], code: int, id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, _ = output(capsys, *words, *MODEL, *MACHINE, "--json")
    assert (found, json.loads(out)["error"]["id"]) == (code, id)


def test_a_config_is_only_made_for_ray_serve(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = output(capsys, *RENDER, *MODEL, "--engine", "vllm-fork@1.21", *MACHINE)
    assert code == 2 and "ray-serve:ENGINE" in err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--stack", "s"), "--stack"),
        (("--to", "x"), "--to"),
        (("Qwen/Qwen3-8B", "-n", "2"), "-w, -n"),
        (("--", "--seed", "1"), "--"),
    ],
)
def test_a_check_has_no_other_options(
    words: tuple[str, ...], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = output(capsys, *RENDER, "--check", str(tmp_path / "none"), *words)
    expected = f"gaudi-launch: {named} cannot be used with --check. Leave one out.\n"
    assert (code, err) == (2, expected)


def test_serve_without_ray_is_exit_3_and_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(write_model(tmp_path / "model"))
    code, _, err = output(capsys, "serve", "-w", folder, "--engine", "ray-serve:cpu")
    assert code == 3 and "setup ray" in err and not (tmp_path / "state").exists()


def test_the_environments_steps(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [step["id"] for step in reading(capsys, "setup", "ray", "--dry-run")["steps"]]
    assert steps[0] == "serve.setup_venv" and steps[-3:] == [
        "ray.setup_venv",
        "ray.setup_borrow",
        "ray.setup_install",
    ]
    assert run(["setup", "nothing"]) == 2
