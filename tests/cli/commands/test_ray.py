"""``ray config``, ``ray check``, ``ray status``, ``setup ray`` and --replicas as a user runs
them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gaudi_launch.cli.main import run
from gaudi_launch.engines.ray_serve.engine import IN_RAY
from tests.support.cli import golden, output

MACHINE = ("--machine", "simulated:hls2")
MODEL = ("-w", "meta-llama/Llama-2-70b-chat-hf")
FORK = ("--engine", "ray-serve:vllm-fork@1.21")


@pytest.fixture(autouse=True)
def _no_interpreters(monkeypatch: pytest.MonkeyPatch, plain_english: None, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("GAUDI_LAUNCH_ENGINES_DIR", raising=False)


def test_the_config_of_the_guides_eight_cards(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(capsys, "ray", "config", *MODEL, *FORK, "-n", "8", "-p", "8000", *MACHINE)
    assert code == 0
    golden("ray-serve-eight-cards.yaml", out.replace(str(IN_RAY), "IN_RAY"))
    config = yaml.safe_load(out)
    variables = config["applications"][0]["runtime_env"]["env_vars"]
    assert variables["PYTHONPATH"] == str(IN_RAY) and all(
        isinstance(value, str) for value in variables.values()
    )


def test_what_we_write_passes_our_own_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "serve.yaml"
    words = ("--replicas", "1..2", "-n", "4", "--out", str(file))
    code, out, _ = output(capsys, "ray", "config", *MODEL, *words, *MACHINE)
    assert code == 0 and str(file) in out
    code, out, _ = output(capsys, "ray", "check", str(file))
    assert (code, out) == (0, f"{file}: no problem was found.\n")


def test_a_config_names_no_file_that_only_serve_would_write(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("-w", "Qwen/QwQ-32B", "-n", "2", "--engine", "ray-serve:vllm-gaudi")
    code, out, _ = output(capsys, "ray", "config", *words, *MACHINE)
    variables = yaml.safe_load(out)["applications"][0]["runtime_env"]["env_vars"]
    assert code == 0 and "VLLM_BUCKETING_FROM_FILE" not in variables
    assert variables["VLLM_BUCKETING_STRATEGY"] in ("exp", "lin", "pad")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_faulty_config_is_exit_1_with_every_fault(
    tmp_path: Path, language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(
        "http_options: {prot: 8000}\napplications:\n"
        "- {name: a, import_path: a:b, route_prefix: v1, deployments: [{name: D, num_replica: "
        "2}]}\n"
    )
    code, out, _ = output(capsys, "ray", "check", str(file), "--lang", language)
    assert code == 1
    golden(f"ray-check-{language}.txt", out)
    code, out, _ = output(capsys, "ray", "check", str(file), "--json")
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
    code, out, _ = output(capsys, "ray", "check", str(file), "--json")
    assert (code, json.loads(out)["error"]["id"]) == (2, id)


@pytest.mark.parametrize(
    ("words", "code", "id"),
    [
        (("plan", "--engine", "ray-serve", "--replicas", "4..2"), 2, "ray.replicas_words"),
        (("plan", "--engine", "ray-serve", "--replicas", "0..2"), 2, "plan.number"),
        (("plan", "--engine", "ray-serve", "--replicas", "a..b"), 2, "plan.number"),
        (("plan", "--engine", "ray-serve", "--replicas", "1.."), 2, "plan.number"),
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
    code, _, err = output(capsys, "ray", "config", *MODEL, "--engine", "vllm-fork@1.21", *MACHINE)
    assert code == 2 and "ray-serve:ENGINE" in err


def test_a_config_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = output(
        capsys,
        "ray",
        "config",
        *MODEL,
        "-n",
        "8",
        *MACHINE,
        "--out",
        str(tmp_path / "no/such/x.yaml"),
    )
    assert code == 1 and "No such file" in err


def test_no_service_no_status(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(capsys, "ray", "status", "--json")
    assert (code, json.loads(out)["error"]["id"]) == (2, "ray.which_service")


def test_serve_without_ray_is_exit_3_and_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (folder / "pytorch_model.bin").touch()
    code, _, err = output(capsys, "serve", "-w", str(folder), "--engine", "ray-serve")
    assert code == 3 and "setup ray" in err and not (tmp_path / "state").exists()


def test_the_environments_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["setup", "ray", "--dry-run", "--json"]) == 0
    steps = [step["id"] for step in json.loads(capsys.readouterr().out)["steps"]]
    assert steps[0] == "serve.setup_venv" and steps[-3:] == [
        "ray.setup_venv",
        "ray.setup_borrow",
        "ray.setup_install",
    ]
    assert run(["setup", "nothing"]) == 2
