"""The releases of ``inspect``: the selected versions, and answers on a product."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.commands.inspect import support as cases
from gaudi_launch.commands.inspect.case import inspect
from gaudi_launch.commands.inspect.fit import InspectOptions
from gaudi_launch.commands.inspect.support import selected, support
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines import registry
from gaudi_launch.core.engines.registry import detect_engine, find
from gaudi_launch.core.engines.support import versions
from gaudi_launch.core.host.accelerators import accelerators, instances
from gaudi_launch.core.host.simulated import write_tree
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.support_answer import ModelSupport, SupportStatus
from tests.support.processes import trivial_python
from tests.support.refusals import refused

__all__ = ["trivial_python"]

pytestmark = pytest.mark.usefixtures("plain_english")

GAUDI2 = accelerators()["gaudi2"]
RUNS = ModelSupport("x", SupportStatus.RUNS)


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


@pytest.mark.parametrize(("machine", "product"), [("gaudi3-oam", "gaudi3"), (None, "gaudi2")])
def test_a_product_is_named_or_that_of_this_machine(
    machine: str | None, product: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    if machine is None:
        # what is no folder cannot be read
        root.touch()
    else:
        write_tree(machine, root)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(root))
    options = InspectOptions("LlamaForCausalLM", engine="vllm-gaudi")
    assert inspect(options).accelerator == product
    for name in ("GAUDI2", "HL-225"):
        assert inspect(replace(options, accelerator=name)).accelerator == "gaudi2"
    known = ", ".join([*accelerators(), *instances()])
    with refused("fit.accelerator", ExitCode.USAGE, found="H100", known=known):
        inspect(replace(options, accelerator="H100"))


def test_the_installed_version_is_marked(
    trivial_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases, "detect_engine", lambda _: detect_engine(str(trivial_python)))
    options = InspectOptions("LlamaForCausalLM", engine="vllm-fork")
    model = Model("LlamaForCausalLM", "LlamaForCausalLM", architecture="LlamaForCausalLM")
    marked = [row.label for row in support(model, GAUDI2, options) if row.is_installed]
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
