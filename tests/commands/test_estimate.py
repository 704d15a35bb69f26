"""``estimate`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from tests.support.cli import reading

pytestmark = pytest.mark.usefixtures("plain_english")

LLAMA = "meta-llama/Llama-3.1-70B-Instruct"
SETUP = ("-n", "8", "-d", "fp8", "--accelerator", "gaudi3")
LENGTHS = ("-i", "2048", "-o", "256", "-b", "64")
CONFIG_405B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


def expected(shown: dict[str, Any]) -> float:
    value: float = shown["throughput"]["output_tokens_per_second"]["expected"]
    return value


def test_a_published_load_is_its_own_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    load = (
        *("-n", "8", "-d", "fp8", "--accelerator", "gaudi3", "-i", "128", "-o", "2048"),
        *("-b", "600", "--static"),
    )
    shown = reading(capsys, "estimate", LLAMA, *load)
    nearest = shown["evidence"]["figures"][0]
    assert (nearest["distance"], nearest["value"]) == (0.0, 15711.0)
    band = shown["throughput"]["output_tokens_per_second"]
    assert band["low"] <= 15711.0 <= band["high"]


def test_a_folder_with_config_json_alone_is_enough(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG_405B))
    load = ("-i", "128", "-o", "2048", "-b", "256", "--static")
    shown = reading(capsys, "estimate", str(tmp_path), *SETUP, *load)
    # weights of 405.8 billion parameters without their input embedding, over eight cards
    read = (405.85e9 - 128256 * 16384) / 8 / (3.67e12 * 0.82) * 1000
    assert shown["steps"]["decode"]["weights"] == pytest.approx(read, rel=0.01)
    assert shown["evidence"]["near"] is False


def test_a_rate_above_the_engine_is_saturated(capsys: pytest.CaptureFixture[str]) -> None:
    load = ("estimate", LLAMA, *SETUP, "-i", "2048", "-o", "256", "--rate")
    quiet, busy = reading(capsys, *load, "1/s"), reading(capsys, *load, "100/s")
    assert (quiet["saturated"], busy["saturated"]) == (False, True)
    assert expected(quiet) == 256.0
    assert quiet["tpot_seconds"]["expected"] < busy["tpot_seconds"]["expected"]


def test_clients_are_those_that_are_served_at_once_unless_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    usual = reading(capsys, "estimate", LLAMA, *SETUP, *LENGTHS)
    given = reading(capsys, "estimate", LLAMA, *SETUP, *LENGTHS, "--concurrency", "64")
    assert {**usual, "notes": 0} == {**given, "notes": 0}
    assert usual["requests_simulated"] >= 2000
    static = reading(capsys, "estimate", LLAMA, *SETUP, *LENGTHS, "--static")
    assert expected(usual) < expected(static)


@pytest.mark.parametrize(
    ("model", "setup", "kind", "of"),
    [
        ("deepseek-ai/DeepSeek-R1", ("-i", "1023", "-o", "1024"), "published", "mla"),
        ("deepseek-ai/DeepSeek-R1", (), "fitted", "mla"),
        ("Qwen/Qwen3-30B-A3B", ("-d", "bf16"), "fitted", "mixture"),
        ("Qwen/Qwen3-30B-A3B", ("-d", "bf16", "--accelerator", "gaudi3"), "assumed", "mixture"),
    ],
)
def test_the_kind_of_a_prediction_follows_the_figures_of_its_class(
    capsys: pytest.CaptureFixture[str], model: str, setup: tuple[str, ...], kind: str, of: str
) -> None:
    cards = ("--accelerator", "gaudi2", "-n", "8", "--concurrency", "32")
    shown = reading(capsys, "estimate", model, *cards, *setup)
    evidence = shown["evidence"]
    assert (evidence["kind"], evidence["class"]) == (kind, f"{of}_served")
    assert run(["estimate", model, *cards, *setup]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert ("Assumed: the fit has no figures" in words) is (kind == "assumed")


def test_people_see_the_evidence_and_the_largest_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", LLAMA, *SETUP, *LENGTHS, "--static", "--all"]) == 0
    shown = capsys.readouterr().out
    assert "Bottleneck: arithmetic (" in shown
    assert "Nearest published figures:" in shown
