"""fit: products and instances by name, types, lengths, and what has no size."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import fit as cases
from gaudi_launch.app import machine
from gaudi_launch.app.fit import FitOptions, ServedLengths, fit, request_for
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.prepare import checked_plan
from gaudi_launch.engines import registry
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.accelerators import accelerators, instances
from gaudi_launch.host.hardware import Host
from gaudi_launch.host.simulated import make
from gaudi_launch.models.model import Model
from gaudi_launch.models.sizing import WEIGHT_BYTES
from gaudi_launch.paths import cache_dir
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

SMALL = "meta-llama/Llama-3.1-8B-Instruct"
SIZED = known_model(SMALL, must_exist=False)
KNOWN = ", ".join(accelerators())


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Host]:
    """Return the machine, which has no card."""
    found = [Host()]
    monkeypatch.setattr(machine, "load", lambda name=None: found[0])
    return found


# --- products ------------------------------------------------------------------------------------


def test_a_product_is_named_or_that_of_this_machine(here: list[Host]) -> None:
    assert cases.own_accelerator() == "gaudi2"
    here[0] = make("gaudi3-oam")
    assert cases.own_accelerator() == "gaudi3"
    assert cases.product_for("").id == "gaudi3"
    assert cases.product_for("GAUDI2").id == cases.product_for("HL-225").id == "gaudi2"
    with refused("fit.accelerator", ExitCode.USAGE, found="x", known=KNOWN):
        cases.product_for("x")


def test_a_machine_that_cannot_be_read_counts_as_gaudi2(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str | None = None) -> Host:
        raise LaunchError("services.drain", ExitCode.MACHINE, found=1)

    monkeypatch.setattr(machine, "load", fail)
    assert cases.own_accelerator() == "gaudi2"


def test_the_largest_instance_of_a_family_is_taken(here: list[Host]) -> None:
    largest = max((each for each in instances().values()), key=lambda each: each.cores)
    family = largest.id.partition(".")[0]
    assert cases._accelerator(family.upper()) == largest.id
    for name in instances():
        assert cases._accelerator(name.upper()) == name
    assert cases._accelerator("HL-225") == "gaudi2"
    known = ", ".join([*accelerators(), *instances()])
    with refused("fit.accelerator", ExitCode.USAGE, found="inf9", known=known):
        cases._accelerator("inf9")


def test_an_instance_has_numbers_of_cores_and_weights_only() -> None:
    name = next(iter(instances()))
    options = FitOptions(SMALL, cards="2,4", accelerator=name, dtype="bf16")
    found = fit(options)
    assert (found.engine, found.usable_bytes, found.cores, found.numbers_given) == (
        None,
        None,
        instances()[name].cores,
        True,
    )
    assert [row.n for row in found.table.rows] == [2, 4]
    assert (found.dtypes, found.accelerator) == (("bfloat16",), name)
    assert fit(replace(options, cards="")).numbers_given is False


def test_a_table_of_a_product_names_what_is_assumed() -> None:
    found = fit(FitOptions(SMALL, cards="1", accelerator="gaudi2", engine="vllm-gaudi"))
    product = accelerators()["gaudi2"]
    assert (found.usable_bytes, found.cores, found.unknown) == (product.usable_bytes, None, ())
    assert [(row.n, row.dtype) for row in found.table.rows] == [(1, "bfloat16"), (1, "fp8")]
    assert (found.profile, found.assumed) == ("llama-3.1-8b", ("llama-3.1-8b.architecture",))
    fork = fit(FitOptions(SMALL, cards="1", accelerator="gaudi2", engine="vllm-fork@1.22"))
    assert fork.assumed == ("activations", "llama-3.1-8b.architecture")
    assert found.engine is not None and found.engine.identity.name == "vllm-gaudi"


# --- types and lengths ---------------------------------------------------------------------------


def test_types_have_short_names() -> None:
    named = {"bf16": "bfloat16", "FP16": "float16", "fp8": "fp8", "": ""}
    assert {given: cases.read_dtype(given) for given in named} == named
    known = ", ".join(["bf16", "fp16", *WEIGHT_BYTES])
    with refused("fit.dtype", ExitCode.USAGE, found="int3", known=known):
        cases.read_dtype("int3")


def test_types_to_try_are_those_on_the_card() -> None:
    def engine(expanded: str) -> Any:
        return SimpleNamespace(
            support=lambda model, variables: SimpleNamespace(expanded_to=expanded)
        )

    fp8 = replace(SIZED, quantization="fp8")
    types = cases.data_types
    assert types(SIZED, "fp16") == ["float16"]
    assert types(SIZED, "") == types(SIZED, "", engine("")) == ["bfloat16", "fp8"]
    assert types(fp8, "") == ["fp8"]
    assert types(fp8, "", engine("bfloat16")) == ["bfloat16"]


def test_a_request_has_the_lengths_as_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"A": "b"})
    # consent is needed to launch the model, not to size it
    assert request_for(SIZED, ServedLengths()) == Request(
        SIZED.path,
        trust_remote_code=True,
        environment={"A": "b"},
        files_dir=str(cache_dir() / "buckets"),
    )
    full = request_for(SIZED, ServedLengths("4k", "7", "10,200", "30"))
    assert (full.max_model_len, full.max_num_seqs, full.input_range, full.output_range) == (
        4000,
        7,
        (10, 200),
        (30, 30),
    )


@pytest.mark.parametrize("cards", ["0", "65", "1,x"])
def test_numbers_of_cards_have_limits(cards: str) -> None:
    assert (cases._numbers(""), cases._numbers("1,64")) == (None, [1, 64])
    with pytest.raises(LaunchError) as raised:
        cases._numbers(cards)
    values = raised.value.text.values
    assert (values["flag"], values["least"], values["most"]) == ("-n", 1, 64)


# --- models and engines --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "id"),
    [
        (None, "models.sizes_unknown"),
        ({}, "fit.no_kv_facts"),
        ({"num_hidden_layers": 2, "hidden_size": 8}, "fit.no_kv_facts"),
        ({"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2}, "fit.no_weights"),
    ],
)
def test_a_model_without_sizes_is_refused_with_what_is_missing(
    config: dict[str, Any] | None, id: str, tmp_path: Path
) -> None:
    assert cases.sized_model(SMALL) == SIZED
    model = str(tmp_path / "half")
    if config is not None:
        Path(model).mkdir()
        (tmp_path / "half/config.json").write_text(json.dumps(config))
    with refused(id, ExitCode.MODEL, model=model):
        cases.sized_model(model)
    if id != "fit.no_weights":
        # and no number of cards is chosen for it
        with refused(id, ExitCode.MODEL, model=model):
            checked_plan(LaunchOptions(model=model, machine="simulated:hls2"))


def test_weights_of_a_type_without_a_size_are_refused(tmp_path: Path) -> None:
    cases.check_sized_on_card(SIZED, "bfloat16")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with refused("fit.no_type_size", ExitCode.MODEL, model="m", dtype="compressed-tensors"):
        cases.check_sized_on_card(Model("m", "m"), "compressed-tensors")
    with refused("capacity.pooling", ExitCode.MODEL, model="BAAI/bge-m3"):
        cases.check_writes(replace(known_model("BAAI/bge-m3", must_exist=False)))
    cases.check_writes(SIZED)


def test_a_named_engine_is_taken_if_it_has_the_model_s_class() -> None:
    named = cases.engine_for("vllm-fork@1.22", SIZED, "gaudi2")
    assert named.identity.label == "vllm-fork@1.22"
    known = ", ".join(registry.names_with_cards())
    for wrong in ("cpu", "ray-serve"):
        with refused("fit.engine", ExitCode.USAGE, found=wrong, known=known):
            cases.engine_for(wrong, SIZED, "gaudi2")
    lacking = replace(SIZED, architecture="NoSuchForCausalLM")
    with pytest.raises(LaunchError) as raised:
        cases.engine_for("vllm-fork@1.22", lacking, "gaudi2")
    assert raised.value.exit_code is ExitCode.MODEL
    assert cases.engine_for("vllm-fork@1.22", lacking, "gaudi2", force=True) is not None
