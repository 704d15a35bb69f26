"""Simulated cards: planned as vllm-gaudi, run by the CPU engine's vLLM without a model."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.option_table import option_table
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from gaudi_launch.extensions.simulated.engine import (
    RUNTIME,
    CardFault,
    Simulated,
    fault_document,
    read_fault,
)
from tests.support.refusals import failing, raising, refused
from tests.support.vllm_gaudi_plans import HLS2, LLAMA
from tests.support.vllm_gaudi_plans import plan as gaudi_plan

DEEPSEEK = replace(
    LLAMA, name="DeepSeek-R1", architecture="DeepseekV3ForCausalLM", model_type="deepseek_v3",
    parameters=671_026_419_200, quantization="fp8", moe=True, experts=256, layers=61,
    hidden_size=7168, heads=128, kv_heads=128, mla_rank=576, remote_code=True,
)  # fmt: skip


def planned(model: Model = LLAMA, engine: Simulated | None = None, **wishes: Any) -> Plan:
    request = Request(model=model.path, environment={}, files_dir="/cache/buckets", **wishes)
    return make_plan(request, HLS2, model, engine or find("simulated"))


def document(plan: Plan) -> dict[str, Any]:
    content = next(
        content for path, content in plan.command.files.items() if path.endswith("cards.json")
    )
    found: dict[str, Any] = json.loads(content)
    return found


def error_of(model: Model = LLAMA, **wishes: Any) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        planned(model, **wishes)
    return caught.value


def test_it_is_planned_as_vllm_gaudi() -> None:
    ours, theirs = planned(cards=2, max_num_seqs=64), gaudi_plan(cards=2, max_num_seqs=64)
    assert ours.settings == theirs.settings
    assert (ours.buckets, ours.num_blocks, ours.memory) == (
        theirs.buckets,
        theirs.num_blocks,
        theirs.memory,
    )
    assert ours.estimate == theirs.estimate


def test_the_command_is_the_cpu_engines_server_with_our_executor() -> None:
    plan = planned(cards=2)
    argv = list(plan.command.argv)
    assert argv[:3] == ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    options = dict(pairwise(argv))
    folder = str(Path(next(iter(plan.command.files))).parent)
    assert options["--model"] == folder
    assert options["--distributed-executor-backend"] == "gaudi_simulated_executor.SimulatedExecutor"
    assert json.loads(options["--additional-config"]) == {"simulated": f"{folder}/cards.json"}
    assert options["--served-model-name"] == LLAMA.path
    assert options["--tensor-parallel-size"] == "2"
    assert plan.command.env["PYTHONPATH"] == str(RUNTIME)
    assert not [name for name in plan.command.env if "HABANA" in name or name.startswith("PT_HPU")]
    assert plan.command.cpus == ()


def test_the_executor_gets_the_plan() -> None:
    plan = planned(cards=2, time_scale=10.0)
    found = document(plan)
    assert plan.buckets is not None and plan.estimate is not None
    assert (found["card"]["prompt"], found["card"]["decode"]) == (
        plan.buckets.prompt,
        plan.buckets.decode,
    )
    middle = (plan.estimate.low_seconds + plan.estimate.high_seconds) / 2
    assert found["card"]["graph_seconds"] * plan.buckets.graphs == pytest.approx(middle, rel=0.01)
    assert (found["blocks"], found["ahead"], found["card"]["time_scale"]) == (
        plan.num_blocks,
        True,
        10.0,
    )
    assert found["kv"] == [{"kind": "full", "layers": 32, "heads": 4, "head_size": 128, "bytes": 2}]
    assert found["cards"] == "2 x HL-225"


def test_arguments_after_the_dashes_reach_the_executor() -> None:
    assert document(planned(extra=("--no-async-scheduling",)))["ahead"] is False
    assert document(planned(skip_warmup=True))["card"]["warmed"] is False
    without_prefixes = document(planned(extra=("--no-enable-prefix-caching",)))
    assert without_prefixes["card"]["contiguous"] is True


def test_vllm_gets_nothing_that_concerns_weights() -> None:
    plan = planned(DEEPSEEK, cards=8)
    sent = set(plan.command.argv)
    assert not sent & {
        "--quantization",
        "--enable-expert-parallel",
        "--trust-remote-code",
        "--kv-cache-dtype",
    }
    assert "mp" not in sent
    config = json.loads(
        next(content for path, content in plan.command.files.items() if "config.json" in path)
    )
    assert (config["architectures"], config["num_hidden_layers"]) == (["LlamaForCausalLM"], 61)
    assert document(plan)["kv"] == [
        {"kind": "latent", "layers": 61, "heads": 1, "head_size": 576, "bytes": 2}
    ]


def test_a_hybrid_has_a_cache_and_states() -> None:
    kinds = document(planned(replace(LLAMA, name="hybrid", attention_layers=8), cards=1))["kv"]
    assert [(kind["kind"], kind["layers"]) for kind in kinds] == [("full", 8), ("state", 24)]


def test_copies_need_the_cards_of_all() -> None:
    made = planned(cards=4, extra=("--data-parallel-size", "2"))
    assert made.command.argv[-2:] == ("--data-parallel-size", "2")
    assert len(made.placement.modules) == 8
    assert document(made) == document(planned(cards=4))
    assert error_of(cards=8, extra=("--data-parallel-size", "2")).exit_code == ExitCode.MACHINE


def test_a_grammar_follows_the_schema_of_a_tool() -> None:
    argv = planned().command.argv
    assert argv[argv.index("--tool-strict-level") + 1] == "parameter"


def test_vllm_knows_that_a_model_has_experts() -> None:
    made = planned(DEEPSEEK, cards=8, extra=("--enable-expert-parallel",))
    config = next(text for path, text in made.command.files.items() if "config.json" in path)
    assert json.loads(config)["num_experts"] == DEEPSEEK.experts
    assert made.command.argv[-1] == "--enable-expert-parallel"


@pytest.mark.parametrize(
    ("wishes", "id", "code"),
    [
        ({"extra": ("--speculative-config", "{}")}, "simulated.no_option", ExitCode.USAGE),
        ({"extra": ("--runner", "pooling")}, "simulated.no_task", ExitCode.USAGE),
        ({"scheduler_steps": 4}, "gaudi.no_option", ExitCode.USAGE),
    ],
)
def test_what_has_no_simulated_times_is_refused(
    wishes: dict[str, Any], id: str, code: ExitCode
) -> None:
    error = error_of(**wishes)
    assert (error.id, error.exit_code) == (id, code)


def test_a_model_of_unknown_sizes_is_refused() -> None:
    error = error_of(Model("nobody/knows", "knows"))
    assert (error.id, error.exit_code) == ("simulated.no_sizes", ExitCode.MODEL)


def test_another_vllm_is_refused() -> None:
    other = Simulated(facts={"vllm": "0.33.0+cpu"}, version="0.26.0")
    with failing("simulated.version", ExitCode.MACHINE) as caught:
        planned(engine=other)
    assert "0.33.0" in str(caught.value) and "0.32.0" in str(caught.value)


def test_only_simulated_cards_have_a_time_scale() -> None:
    with failing("simulated.only", ExitCode.USAGE):
        gaudi_plan(time_scale=2.0)


def test_the_plan_says_that_nothing_is_computed() -> None:
    shown = [warning.render() for warning in planned().warnings]
    assert text("simulated.cards", version="0.32.0") in shown


def test_a_folder_with_a_tokenizer_keeps_it_and_its_parsers(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    model = replace(LLAMA, path=str(tmp_path), vocab_size=128256)
    own = find("simulated").suited(model)
    assert isinstance(own, Simulated)
    plan = planned(model, own)
    argv = plan.command.argv
    assert argv[argv.index("--tokenizer") + 1] == str(tmp_path)
    config = json.loads(
        next(content for path, content in plan.command.files.items() if "config.json" in path)
    )
    assert config["vocab_size"] == 128256


def test_parsers_look_for_tokens_that_the_demos_tokenizer_lacks() -> None:
    model = replace(
        LLAMA, path="/m/DeepSeek-R1-Distill-Llama-8B", name="DeepSeek-R1-Distill-Llama-8B"
    )
    plan = planned(model)
    assert "--reasoning-parser" in {setting.name for setting in plan.settings}
    assert "--reasoning-parser" not in plan.command.argv


OPTIONS = (
    "--speculative-config",
    "--spec-method",
    "--spec-model",
    "--spec-tokens",
    "--enable-lora",
    "--kv-transfer-config",
    "--quantization",
    "--worker-cls",
    "--distributed-executor-backend",
    "--additional-config",
    "--cpu-offload-gb",
)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_without_simulated_times_is_named(option: str) -> None:
    engine = find("simulated").suited(LLAMA)
    table = engine.identity.options
    request = Request(model=LLAMA.path, extra=(option, "{}"), options=option_table(table))
    with refused("simulated.no_option", ExitCode.USAGE, option=option):
        engine.check_features(replace(request, force=True), LLAMA)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("card-lost@120s", CardFault("card-lost", 120.0)),
        ("card-lost=5@2m", CardFault("card-lost", 120.0, 5)),
        ("slow-card=3", CardFault("slow-card", 0.0, 3)),
        ("hang", CardFault("hang", 60.0)),
        ("crash@0", CardFault("crash", 0.0)),
        (" compile@800ms ", CardFault("compile", 0.8)),
        ("oom", CardFault("oom", 60.0)),
    ],
)
def test_a_fault_is_read(text: str, fault: CardFault) -> None:
    assert read_fault(text) == fault


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("", "simulated.fault"),
        ("explode", "simulated.fault"),
        ("hang@", "simulated.fault"),
        ("slow-card=-1", "simulated.fault"),
        ("hang=3", "simulated.fault_no_card"),
        ("slow-card", "simulated.fault_needs_card"),
        ("hang@soon", "simulated.fault_time"),
        ("hang@25h", "simulated.fault_time"),
    ],
)
def test_what_is_no_fault_is_refused(text: str, id: str) -> None:
    with raising(id):
        read_fault(text)


def test_a_fault_concerns_the_copy_with_its_card() -> None:
    faults = [CardFault("slow-card", 0.0, 6), CardFault("oom", 60.0)]
    assert fault_document(faults, (0, 1, 6, 7), cards=2) == [
        {"kind": "slow-card", "after": 0.0, "module": 6, "rank": 1},
        {"kind": "oom", "after": 60.0, "module": None, "rank": 0},
    ]


def test_a_card_of_another_service_is_refused() -> None:
    with raising("simulated.fault_card") as refused:
        fault_document([CardFault("slow-card", 0.0, 4)], (0, 1), cards=2)
    assert refused.value.text.values == {"module": 4, "modules": "0,1"}
