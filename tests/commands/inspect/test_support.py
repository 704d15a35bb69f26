"""The releases of ``inspect``: the selected versions, and answers on a product."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.commands.inspect import support as cases
from gaudi_launch.commands.inspect.case import inspect
from gaudi_launch.commands.inspect.fit import InspectOptions
from gaudi_launch.commands.inspect.support import selected
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines import needed_release
from gaudi_launch.core.engines.entries import detect_engine
from gaudi_launch.core.engines.known_versions import versions
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.accelerators import accelerators, instances
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.support_answer import ModelSupport, SupportStatus
from tests.support.cli import reading
from tests.support.machines import link_tree
from tests.support.processes import trivial_python
from tests.support.refusals import refused

__all__ = ["trivial_python"]

pytestmark = pytest.mark.usefixtures("plain_english")

GAUDI2 = accelerators()["gaudi2"]
RUNS = ModelSupport("x", SupportStatus.RUNS)


# --- versions ------------------------------------------------------------------------------------


def test_versions_are_all_those_of_an_engine_or_one() -> None:
    newest_first = (*reversed(versions()), *reversed(needed_release.image_versions()))
    assert selected("") == newest_first
    own = selected("vllm-gaudi")
    assert own == tuple(each for each in newest_first if each.engine == "vllm-gaudi")
    assert len(own) > 1
    one = own[-1]
    [found] = selected(f"vllm-gaudi@{one.version}")
    assert found == one
    assert selected(f"vllm-gaudi@v{one.version}") == (one,)
    for wrong in ("none", "vllm-gaudi@99"):
        with pytest.raises(LaunchError) as raised:
            selected(wrong)
        assert raised.value.exit_code is ExitCode.USAGE and wrong in str(raised.value)


@pytest.mark.parametrize(("machine", "product"), [("gaudi3-oam", "gaudi3"), (None, "gaudi2")])
def test_a_product_is_named_or_that_of_this_machine(
    machine: str | None, product: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    if machine is None:
        # what is no folder cannot be read
        root.touch()
    else:
        link_tree(machine, root)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(root))
    options = InspectOptions("LlamaForCausalLM", engine="vllm-gaudi")
    assert inspect(options).accelerator == product
    for name in ("GAUDI2", "HL-225"):
        assert inspect(replace(options, accelerator=name)).accelerator == "gaudi2"
    known = ", ".join([*accelerators(), *instances()])
    with refused("fit.accelerator", ExitCode.USAGE, found="H100", known=known):
        inspect(replace(options, accelerator="H100"))


def test_the_installed_version_is_marked(trivial_python: Path) -> None:
    model = Model("LlamaForCausalLM", "LlamaForCausalLM", architecture="LlamaForCausalLM")
    installed = detect_engine(str(trivial_python))
    rows = [cases._row(each, model, GAUDI2, installed, None) for each in selected("vllm-fork")]
    marked = [row.label for row in rows if row.is_installed]
    assert marked == [find("vllm-fork@1.21").identity.label]


# --- answers -------------------------------------------------------------------------------------


def engine(answer: ModelSupport = RUNS, **more: Any) -> Any:
    base = {"support": lambda model: answer, "refuse": lambda *words: None}
    return SimpleNamespace(**{**base, "needs_gaudi2_range": True, **more})


def test_fp8_weights_need_conversion_on_gaudi2_only() -> None:
    fp8 = Model("m", "m", quantization="fp8")
    converted = message("support.converted")
    limited = replace(RUNS, status=SupportStatus.LIMITED, reasons=(converted,))
    assert cases._on(GAUDI2, engine(), fp8) == limited
    unknown = replace(RUNS, status=SupportStatus.UNKNOWN)
    assert cases._on(GAUDI2, engine(unknown), fp8) == replace(unknown, reasons=(converted,))
    for product, one, model in (
        (accelerators()["gaudi3"], engine(), fp8),
        (GAUDI2, engine(needs_gaudi2_range=False), fp8),
        (GAUDI2, engine(), Model("m", "m", quantization="awq")),
        (GAUDI2, engine(), Model("m", "m", quantization="fp8", converted=True)),
    ):
        assert cases._on(product, one, model) == RUNS


# --- as a user reads them ----------------------------------------------------------------------


def answer(argv: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found = reading(capsys, "inspect", *argv)
    return found


def test_each_version_answers_with_its_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(["Qwen3-8B", "--accelerator", "gaudi2"], capsys)
    rows = {row["engine"]: row for row in found["versions"]}
    assert found["architecture"] == "Qwen3ForCausalLM"
    assert rows["vllm-gaudi@0.26.0"]["status"] == "runs"
    assert rows["vllm-gaudi@0.26.0"]["fewest_cards"] == 1
    assert rows["vllm-gaudi@0.26.0"]["ended"] is None
    assert "vllm-project/vllm-gaudi@" in rows["vllm-gaudi@0.26.0"]["evidence"]
    assert rows["vllm-fork@1.21"]["ended"] == "2025-10-28"
    assert rows["deepseek_r1"]["status"] == "no"
    assert rows["deepseek_r1"]["fewest_cards"] is None


def test_an_engine_for_a_full_server_runs_its_model(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["deepseek-ai/DeepSeek-R1", "--engine", "deepseek_r1", "--accelerator", "gaudi2"]
    assert [row["status"] for row in answer(words, capsys)["versions"]] == ["limited"]


def test_the_kv_cache_is_part_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(
        ["Qwen3.5-35B-A3B", "--engine", "vllm-gaudi@0.26", "--accelerator", "gaudi3"], capsys
    )
    row = found["versions"][0]
    kinds = [(each["kind"], each["layers"], each["allocates"]) for each in row["kv_cache"]]
    assert kinds == [("full", 10, "full"), ("state", 30, "state")]
    assert row["kv_cache"][1]["source"].endswith("vllm_gaudi/v1/worker/hpu_model_runner.py:1738")
    assert row["kv_bytes_per_token"] == 10 * 2 * 2 * 256 * 2


def test_versions_with_the_same_cache_share_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "JambaForCausalLM", "--accelerator", "gaudi3", "--all"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "vllm-gaudi@0.14.1 - 0.26.0 state A state of fixed size per request" in shown
    assert "vllm-gaudi@0.10.0 - 0.10.1 state A state, which this version refuses." in shown


def test_images_answer_by_their_lists_of_model_types(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(["Qwen3-8B", "--engine", "tgi", "--accelerator", "gaudi2"], capsys)
    rows = {row["engine"]: row for row in found["versions"]}
    assert [row["engine"] for row in found["versions"]] == [
        "tgi@3.3.7", "tgi@3.3.6", "tgi@3.3.5", "tgi@3.3.4", "tgi@3.3.3", "tgi@3.2.3",
    ]  # fmt: skip
    assert (rows["tgi@3.3.5"]["status"], rows["tgi@3.3.5"]["fewest_cards"]) == ("runs", 1)
    assert rows["tgi@3.2.3"]["status"] == "unknown"


@pytest.mark.parametrize(
    ("argv", "status", "near"),
    [
        (["Qwen3-8B", "--engine", "vllm-gaudi@0.29"], 2, "vllm-gaudi@0.19"),
        (["Qwen3-8C"], 5, "Qwen3-8B"),
        (["GptOsForCausalLM"], 5, "GptOssForCausalLM"),
        (["gptossforcausallm"], 5, "GptOssForCausalLM"),
    ],
)
def test_unknown_names_get_the_nearest(
    argv: list[str], status: int, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", *argv]) == status
    assert near in capsys.readouterr().err


@pytest.mark.parametrize(("accelerator", "converted"), [("gaudi2", True), ("gaudi3", False)])
def test_fp8_weights_need_conversion_where_nothing_rescales_them(
    accelerator: str, converted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(["deepseek-ai/DeepSeek-R1", "--accelerator", accelerator], capsys)
    reasons = {row["engine"]: [each["id"] for each in row["reasons"]] for row in found["versions"]}
    assert ("support.converted" in reasons["vllm-fork@1.21"]) is converted
    # 1.22 and the plugin rescale when they load
    assert reasons["vllm-fork@1.22"] == []
    # its speed for a single request, measured on Gaudi2
    assert reasons["vllm-gaudi@0.26.0"] == ["engines.known_problem"] * converted


def test_features_are_answered_for_each_version(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(["Qwen3-8B", "--engine", "vllm-gaudi@0.16", "--accelerator", "gaudi2"], capsys)
    answers = {each["id"]: each["status"] for each in found["versions"][0]["features"]}
    assert answers["lora"] == "supported" and answers["row_parallel"] == "no"
