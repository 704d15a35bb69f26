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


def test_a_static_batch_is_prefilled_together_and_then_decoded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = reading(capsys, "estimate", LLAMA, *SETUP, *LENGTHS, "--static")
    seconds = shown["ttft_seconds"]["expected"] + 255 * shown["tpot_seconds"]["expected"]
    assert expected(shown) == pytest.approx(64 * 256 / seconds, rel=2e-3)


def test_the_range_is_around_what_is_expected(capsys: pytest.CaptureFixture[str]) -> None:
    band = reading(capsys, "estimate", LLAMA, *SETUP, *LENGTHS, "--static")["throughput"][
        "output_tokens_per_second"
    ]
    assert band["low"] < band["expected"] < band["high"]


def test_parts_of_a_step_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    shown = reading(capsys, "estimate", LLAMA, *SETUP, *LENGTHS, "--static")
    for step in shown["steps"].values():
        total = step.pop("total")
        assert sum(step.values()) == pytest.approx(total, abs=1e-3)
    assert sum(shown["share"].values()) == pytest.approx(1.0, abs=1e-3)


def test_a_published_load_is_its_own_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    load = (
        "-n",
        "8",
        "-d",
        "fp8",
        "--accelerator",
        "gaudi3",
        "-i",
        "128",
        "-o",
        "2048",
        "-b",
        "600",
        "--static",
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
    shown = reading(
        capsys,
        "estimate",
        str(tmp_path),
        *SETUP,
        "-i",
        "128",
        "-o",
        "2048",
        "-b",
        "256",
        "--static",
    )
    # weights of 405.8 billion parameters without their input embedding, over eight cards
    read = (405.85e9 - 128256 * 16384) / 8 / (3.67e12 * 0.82) * 1000
    assert shown["steps"]["decode"]["weights"] == pytest.approx(read, rel=0.01)
    assert shown["evidence"]["near"] is False


def test_a_rate_above_the_engine_is_saturated(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = reading(capsys, "estimate", LLAMA, *SETUP, "-i", "2048", "-o", "256", "--rate", "1/s")
    busy = reading(capsys, "estimate", LLAMA, *SETUP, "-i", "2048", "-o", "256", "--rate", "100/s")
    assert (quiet["saturated"], busy["saturated"]) == (False, True)
    assert expected(quiet) == 256.0
    assert quiet["tpot_seconds"]["expected"] < busy["tpot_seconds"]["expected"]


def test_concurrency_is_the_batch_of_a_closed_loop(capsys: pytest.CaptureFixture[str]) -> None:
    loop = reading(
        capsys, "estimate", LLAMA, *SETUP, "-i", "2048", "-o", "256", "--concurrency", "64"
    )
    batch = reading(capsys, "estimate", LLAMA, *SETUP, *LENGTHS)
    assert loop["throughput"] == batch["throughput"]
    static = reading(capsys, "estimate", LLAMA, *SETUP, *LENGTHS, "--static")
    assert expected(loop) < expected(static)


def test_an_older_release_is_slower(capsys: pytest.CaptureFixture[str]) -> None:
    load = (LLAMA, *SETUP, *LENGTHS, "--static", "--software")
    assert expected(reading(capsys, "estimate", *load, "1.16")) < expected(
        reading(capsys, "estimate", *load, "1.24.1")
    )


def test_a_mixture_without_the_fused_operator_is_slower(capsys: pytest.CaptureFixture[str]) -> None:
    load = ("Qwen/Qwen3-30B-A3B", "--accelerator", "gaudi3", "-b", "4", "--moe")
    fused, unfused = (
        reading(capsys, "estimate", *load, "fused"),
        reading(capsys, "estimate", *load, "unfused"),
    )
    assert (fused["experts"], unfused["experts"]) == ("fused", "unfused")
    assert expected(fused) > 1.5 * expected(unfused)


@pytest.mark.parametrize(
    ("model", "setup", "kind", "of"),
    [
        ("deepseek-ai/DeepSeek-R1", ("-d", "fp8", "-i", "1023", "-o", "1024"), "published", "mla"),
        ("deepseek-ai/DeepSeek-R1", ("-d", "fp8"), "fitted", "mla"),
        ("deepseek-ai/DeepSeek-R1", ("-d", "bf16"), "assumed", "mla"),
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


@pytest.mark.parametrize(
    ("arguments", "id"),
    [
        (("--accelerator", "gaudi1"), "estimate.accelerator"),
        (("-n", "7"), "estimate.uneven"),
        (("--software", "new"), "estimate.release"),
        (("--moe", "half"), "estimate.moe"),
        (("--static", "--rate", "1/s"), "estimate.one_load"),
        (("-b", "2", "--concurrency", "2"), "estimate.one_load"),
        (("-o", "1"), "estimate.short"),
        (("-d", "int3"), "fit.dtype"),
        (("--rate", "many"), "capacity.bad_rate"),
    ],
)
def test_wrong_usage_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], id: str
) -> None:
    code = run(["estimate", LLAMA, "--accelerator", "gaudi3", *arguments, "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert (code, shown["error"]["id"]) == (2, id)


def test_people_see_the_evidence_and_the_largest_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", LLAMA, *SETUP, *LENGTHS, "--static"]) == 0
    shown = capsys.readouterr().out
    assert "Largest part: arithmetic." in shown
    assert "Nearest published figures:" in shown


def test_a_batch_without_room_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    load = (
        "-n",
        "1",
        "-d",
        "fp8",
        "--accelerator",
        "gaudi2",
        "-i",
        "4096",
        "-o",
        "4096",
        "-b",
        "512",
        "--static",
    )
    shown = reading(capsys, "estimate", LLAMA, *load)
    assert [note["id"] for note in shown["notes"]] == ["estimate.batch_too_large"]
