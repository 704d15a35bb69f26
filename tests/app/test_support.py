"""support: the selected versions, answers on a product, the fewest cards, unknown names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import support as cases
from gaudi_launch.app.support import SupportOptions, selected, support
from gaudi_launch.engines import detect as detection
from gaudi_launch.engines import registry
from gaudi_launch.engines.detect import Installed
from gaudi_launch.engines.registry import find
from gaudi_launch.engines.support import versions
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.accelerators import accelerators
from gaudi_launch.messages import message
from gaudi_launch.models.model import Model
from gaudi_launch.planning.support_answer import ModelSupport, SupportStatus
from gaudi_launch.profiles import known_model
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

GAUDI2 = accelerators()["gaudi2"]
RUNS = ModelSupport("x", SupportStatus.RUNS)
SMALL = known_model("meta-llama/Llama-3.1-8B-Instruct", must_exist=False)
LARGE = known_model("meta-llama/Llama-3.1-70B-Instruct", must_exist=False)


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "detect", lambda python=None: None)


# --- versions ------------------------------------------------------------------------------------


def test_versions_are_all_those_of_an_engine_or_one() -> None:
    newest_first = (*reversed(versions()), *reversed(registry.image_versions()))
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


def test_a_product_is_named_or_that_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaudi_launch.app.fit.own_accelerator", lambda: "gaudi3")
    options = SupportOptions("LlamaForCausalLM", engine="vllm-gaudi")
    assert support(options).accelerator == "gaudi3"
    for name in ("GAUDI2", "HL-225"):
        assert support(replace(options, accelerator=name)).accelerator == "gaudi2"
    known = ", ".join(accelerators())
    with refused("fit.accelerator", ExitCode.USAGE, found="h100", known=known):
        support(replace(options, accelerator="H100"))


def test_the_installed_version_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    label = find("vllm-fork@1.21").identity.label
    installed = Installed("/p", "vllm-fork@1.21")
    asked: list[str | None] = []

    def detect(python: str | None = None) -> Installed:
        asked.append(python)
        return installed

    monkeypatch.setattr(detection, "detect", detect)
    options = SupportOptions("LlamaForCausalLM", "vllm-fork", "gaudi2", python="/p")
    rows = {row.label: row.is_installed for row in support(options).rows}
    assert asked == ["/p"]
    assert rows[label] and sum(rows.values()) == 1
    support(replace(options, python=""))
    assert asked[1] is None


# --- answers -------------------------------------------------------------------------------------


def engine(answer: ModelSupport = RUNS, **more: Any) -> Any:
    base = {"support": lambda model: answer, "refuse": lambda *words: None}
    return SimpleNamespace(**{**base, "needs_gaudi2_range": True, **more})


def test_an_engine_may_serve_one_generation_only() -> None:
    asked: list[Any] = []
    error = LaunchError("services.drain", ExitCode.MACHINE, found=1)

    def refuse(request: Any, host: Any, model: Any) -> None:
        asked.append((request.model, request.trust_remote_code, host.product, len(host.cards)))
        raise error

    found = cases._on(GAUDI2, engine(refuse=refuse), SMALL)
    assert found == replace(RUNS, status=SupportStatus.NO, reasons=(error.text,))
    assert asked == [(SMALL.path, True, "gaudi2", 1)]
    no = replace(RUNS, status=SupportStatus.NO)
    assert cases._on(GAUDI2, engine(no, refuse=refuse), SMALL) == no
    assert len(asked) == 1


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


# --- cards ---------------------------------------------------------------------------------------


def test_the_fewest_cards_are_counted_once_for_versions_that_are_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cards = cases._FewestCards(LARGE, GAUDI2)
    # 140 GB of weights leave no room on one card
    assert cards._large_enough(GAUDI2.usable_bytes, "bfloat16") == [2, 4, 8]
    assert cards._large_enough(GAUDI2.usable_bytes, "fp8") == [1, 2, 4, 8]
    plugin = find("vllm-gaudi")
    assert cards.of(plugin, RUNS) == 2
    assert cards.of(plugin, replace(RUNS, expanded_to="fp8")) == 1
    monkeypatch.setattr(cards, "_count", lambda engine, answer: 7)
    assert cards.of(plugin, RUNS) == 2
    assert cards.of(find("vllm-fork@1.21"), RUNS) == 7
    nothing = cases._FewestCards(Model("m", "m"), GAUDI2)
    assert nothing.of(plugin, RUNS) is None
    assert cases._FewestCards(SMALL, GAUDI2).of(plugin, RUNS) == 1


# --- names ---------------------------------------------------------------------------------------


def test_a_model_is_a_class_a_folder_or_a_name(tmp_path: Path) -> None:
    model = cases._model("LlamaForCausalLM")
    assert (model.name, model.architecture) == ("LlamaForCausalLM", "LlamaForCausalLM")
    assert cases._model(SMALL.path) == SMALL
    # a config.json without a class is an answer: unknown
    for content in ('{"model_type": "x"}', "{}"):
        (tmp_path / "config.json").write_text(content)
        assert cases._model(str(tmp_path)).architecture is None


def test_an_unknown_model_is_named_with_its_nearest() -> None:
    with pytest.raises(LaunchError) as raised:
        cases._model("Kwen/Kwen3-32B")
    found = raised.value
    assert (found.id, found.exit_code) == ("support.unknown_model", ExitCode.MODEL)
    assert "HF_HUB_OFFLINE" in (found.detail or "")
    with pytest.raises(LaunchError) as raised:
        cases._model("LlamaForCausaLM")
    near = str(raised.value.text.values["near"]).split(", ")
    assert (raised.value.id, near[0], len(near)) == (
        "support.unknown_class",
        "LlamaForCausalLM",
        3,
    )
    assert raised.value.detail is None
    for path in ("/gone/m", "./gone", "../gone", "~/gone"):
        with refused("models.no_folder", ExitCode.MODEL, path=path):
            cases._model(path)


@pytest.mark.parametrize(
    ("name", "is_class"),
    [("NewForCausalLM", True), ("llamaforcausallm", True), ("forest", False), ("Qwen3-8B", False)],
)
def test_a_class_is_told_by_its_form(name: str, is_class: bool) -> None:
    assert cases._looks_like_class(name, ["LlamaForCausalLM"]) is is_class


def test_names_are_near_without_their_owner() -> None:
    known = ["a/One-7B", "b/One-70B", "c/Two", "d/One-8B", "e/one-9b"]
    assert set(cases._nearest("x/one-7b", known)) <= set(known)
    assert cases._nearest("x/one-7b", known)[0] == "a/One-7B"
    assert len(cases._nearest("x/one-7b", known)) == 3
    # nothing is near: one name shows the form
    assert cases._nearest("qqqq", known) == ["a/One-7B"]
