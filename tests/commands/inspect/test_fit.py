"""The cards of ``inspect`` as a user reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from tests.support.cli import document, output

pytestmark = pytest.mark.usefixtures("plain_english")


def test_json_has_the_promised_shape(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = document(
        capsys,
        "inspect",
        "mistralai/Mixtral-8x7B-Instruct-v0.1",
        "--accelerator",
        "gaudi2",
        "-n",
        "1,2",
    )
    assert code == 0
    assert {name: shown[name] for name in ("schema", "model", "accelerator", "smallest_n")} == {
        "schema": 1,
        "model": "mistralai/Mixtral-8x7B-Instruct-v0.1",
        "accelerator": "gaudi2",
        "smallest_n": 2,
    }
    assert [(row["n"], row["dtype"], row["fits"]) for row in shown["rows"]] == [
        (1, "bfloat16", False),
        (2, "bfloat16", True),
        (1, "fp8", True),
        (2, "fp8", True),
    ]
    names = {
        "n",
        "dtype",
        "fits",
        "weights_gib_per_card",
        "kv_gib_per_card",
        "kv_blocks",
        "concurrency",
        "reason",
    }
    assert all(names < set(row) for row in shown["rows"])


def test_asked_lengths_count(capsys: pytest.CaptureFixture[str]) -> None:
    common = ("Qwen/QwQ-32B", "--accelerator", "gaudi3", "-n", "2", "-d", "bfloat16")
    _, whole = document(capsys, "inspect", *common, "-l", "40960", "-b", "24")
    _, ranges = document(capsys, "inspect", *common, "-i", "4,38912", "-o", "4,2048", "-b", "24")
    assert whole["max_model_len"] == ranges["max_model_len"] == 40960
    _, short = document(capsys, "inspect", *common, "-l", "4096")
    assert short["rows"][0]["concurrency"] > 9 * whole["rows"][0]["concurrency"]


def test_the_engines_differ(capsys: pytest.CaptureFixture[str]) -> None:
    common = (
        *("meta-llama/Llama-3.1-8B-Instruct", "--accelerator", "gaudi2", "-n", "1"),
        *("-d", "bfloat16", "-l", "8192"),
    )
    blocks = {
        engine: document(capsys, "inspect", *common, "--engine", engine)[1]["rows"][0]["kv_blocks"]
        for engine in ("vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi", "tgi")
    }
    # 1.21's script keeps twice as much for graphs, and whole steps; the plugin measures no
    # activations
    assert blocks["vllm-fork@1.21"] < blocks["vllm-fork@1.22"] < blocks["vllm-gaudi"]
    assert blocks["vllm-fork@1.21"] % 128 == 0
    assert blocks["tgi"] < blocks["vllm-fork@1.22"]


def test_inferentia_is_weights_only(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("inspect", "meta-llama/Llama-2-70b", "--accelerator", "inf2.48xlarge", "-d", "float16")
    code, out, _ = output(capsys, *words, "--all")
    assert code == 0
    assert "weights only" in out
    assert "138.0 GB, at 16 GB per NeuronCore: 9 (accelerators: 5)" in out
    assert "meta-llama/Llama-2-70b fits on 9 NeuronCores (float16, weights only)." in out


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(
        capsys, "inspect", "Qwen/Qwen2-72B-Instruct", "--accelerator", "gaudi2", "-l", "8192"
    )
    assert code == 0
    assert out.startswith("Qwen/Qwen2-72B-Instruct fits on 2 Gaudi2 cards (bfloat16).\n")
    assert "profile qwen2-72b" in out
    code, out, _ = output(
        capsys,
        "inspect",
        "Qwen/Qwen2-72B-Instruct",
        "--accelerator",
        "gaudi2",
        "--lang",
        "zh",
        "-n",
        "1",
    )
    assert out.startswith(
        "bfloat16 的 Qwen/Qwen2-72B-Instruct 放不下；fp8 可以，需要 1 张 Gaudi2 卡。"
    )
    code, out, _ = output(
        capsys, "inspect", "zai-org/GLM-4.5", "--accelerator", "gaudi2", "-n", "1,2"
    )
    assert "of the given numbers of Gaudi2 cards. A change that fits: more cards." in out


@pytest.mark.parametrize(
    ("word", "product"),
    [
        ("HL-225", "gaudi2"),
        ("hl-325l", "gaudi3"),
        ("GAUDI2E", "gaudi2e"),
        ("inf2", "inf2.48xlarge"),
    ],
)
def test_accelerators_by_other_names(
    capsys: pytest.CaptureFixture[str], word: str, product: str
) -> None:
    code, shown = document(capsys, "inspect", "meta-llama/Llama-2-7b", "--accelerator", word)
    assert (code, shown["accelerator"], shown["smallest_n"]) == (0, product, 1)


def test_the_smallest_of_some_is_not_called_the_smallest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    common = ("meta-llama/Llama-2-7b", "--accelerator", "gaudi2")
    assert "fits on 1 Gaudi2 card (bfloat16).\n" in output(capsys, "inspect", *common)[1]
    assert (
        "fits on 4 Gaudi2 cards (bfloat16), the fewest of the given numbers."
        in output(capsys, "inspect", *common, "-n", "4,8")[1]
    )


def test_an_uneven_number_of_cards_is_not_helped_by_fp8(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(
        capsys, "inspect", "Qwen/Qwen2-72B-Instruct", "--accelerator", "gaudi2", "-n", "3"
    )
    assert code == 0
    assert "choose another -n" in out
    assert "fp8, or a shorter context" not in out


def test_that_nothing_fits_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = document(
        capsys, "inspect", "zai-org/GLM-4.5", "--accelerator", "gaudi2", "-n", "1,2"
    )
    assert (code, shown["smallest_n"], {row["fits"] for row in shown["rows"]}) == (0, None, {False})


def test_a_folder_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_hidden_layers": 4,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    code, shown = document(capsys, "inspect", str(tmp_path), "--accelerator", "gaudi2")
    assert (code, shown["rows"], shown["unfit"]["id"]) == (0, [], "fit.no_weights")
    (tmp_path / "pytorch_model.bin").write_bytes(b"\0" * 4096)
    # a class that no release has is sized, and no command that would be refused is shown
    new = {"torch_dtype": "bfloat16", "architectures": ["NewForCausalLM"], "model_type": "new"}
    (tmp_path / "config.json").write_text(json.dumps({**config, **new}))
    words = ("inspect", str(tmp_path), "--accelerator", "gaudi2", "-l", "1024")
    code, shown = document(capsys, *words)
    assert (code, shown["smallest_n"]) == (0, 1)
    assert run([*words]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"No engine release is known to run {tmp_path}.",
        f"{tmp_path} fits on 1 Gaudi2 card (bfloat16).",
    ]
    (tmp_path / "config.json").write_text("{}")
    code, shown = document(capsys, "inspect", str(tmp_path), "--accelerator", "gaudi2")
    assert (code, shown["unfit"]["id"]) == (0, "fit.no_kv_facts")


@pytest.mark.parametrize(
    ("words", "would"),
    [
        # fp8 on disk, all eight cards tried: neither is left
        (
            (
                *("deepseek-ai/DeepSeek-R1", "--accelerator", "gaudi2", "--engine", "vllm-gaudi"),
                *("-n", "8", "-l", "160k"),
            ),
            "a shorter context (-l).",
        ),
        (("zai-org/GLM-4.5-FP8", "--accelerator", "gaudi2", "-n", "1,2"), "more cards."),
        (
            ("Qwen/Qwen2-72B-Instruct", "--accelerator", "gaudi2", "-n", "1", "-d", "bfloat16"),
            "more cards, fp8 (-d fp8).",
        ),
    ],
)
def test_what_would_fit_is_nothing_that_was_tried(
    words: tuple[str, ...],
    would: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_LANG", "en")
    assert run(["inspect", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    last = next(line for line in lines if "fits on none of the given" in line)
    assert f"A change that fits: {would}" in last


@pytest.mark.parametrize(
    ("language", "line"),
    [
        (
            "en",
            "Estimated or assumed, without a source: the memory of activations, the usable "
            "memory of gaudi3-pcie, the architecture of the profile qwen2-72b.",
        ),
        (
            "zh",
            "以下为估算或假定，没有来源：激活占用的显存、gaudi3-pcie 的可用显存、"
            "模型配置（profile）qwen2-72b 中的模型结构。",
        ),
    ],
)
def test_assumptions_are_named_in_words(
    capsys: pytest.CaptureFixture[str], language: str, line: str
) -> None:
    made = "inspect Qwen2-72B-Instruct --all --accelerator gaudi3-pcie --engine vllm-fork@1.21"
    assert run(["--lang", language, *made.split()]) == 0
    assert line in capsys.readouterr().out.splitlines()
