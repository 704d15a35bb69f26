"""A card's memory in plans: what is shown, what is refused, and that every model of the guides
fits its cards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.host.machine import load
from gaudi_launch.core.host.simulated import server_of
from gaudi_launch.core.models.card_memory import ServingDemand
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning import profiles
from gaudi_launch.core.planning.engine import Limits
from gaudi_launch.core.planning.engine_args import NO_ARGS, engine_args
from gaudi_launch.core.planning.fit import fewest_cards, remedies
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.memory import (
    CardSet,
    ChosenSettings,
    MemoryPlan,
    division,
    memory_for,
    type_on_card,
)
from gaudi_launch.core.planning.plan import Plan, Setting
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from tests.support.refusals import failing

LLAMA = Model(
    "m", "m", parameters=8_030_261_248, dtype="bfloat16", layers=32, attention_layers=32,
    hidden_size=4096, intermediate_size=14336, heads=32, kv_heads=8, head_dim=128,
    max_position_embeddings=131072,
)  # fmt: skip
LIMITS = Limits(
    1, 1024, 1, 1024, 2048, max_num_batched_tokens=4096, max_num_seqs=4, max_num_prefill_seqs=4
)
UNKNOWN = [
    Model("m", "m"),
    replace(LLAMA, parameters=None),
    replace(LLAMA, layers=None, attention_layers=None),
]


def setting(name: str, value: str | None) -> Setting:
    kind: Any = "option" if name.startswith("--") else "env"
    return Setting(name, value, kind, "computed", message("plan.script"))


def planned(
    *pairs: tuple[str, str | None],
    model: Model = LLAMA,
    cards: int = 1,
    product: str | None = "HL-225",
    version: str = "1.22",
    extra: tuple[str, ...] = (),
) -> MemoryPlan:
    chosen = [setting(name, value) for name, value in pairs]
    settings = ChosenSettings(chosen, engine_args(user=extra))
    return memory_for(
        model, LIMITS, CardSet(cards, product), find(f"vllm-fork@{version}"), settings
    )


def test_the_readmes_machine() -> None:
    # HabanaAI/vllm-fork@aice/v1.21.0:README_GAUDI.md, log block 3: 1519 blocks before rounding to
    # whole steps
    found = planned(("--gpu-memory-utilization", "0.5"), ("VLLM_GRAPH_RESERVED_MEM", "0.4"))
    assert found.num_blocks == pytest.approx(1519, rel=0.05)
    assert found.fits is True
    sizes = {"weights": 14.97, "activations": 0.49, "graphs": 15.83, "kv": 23.75, "free": 39.58}
    assert found.gib == pytest.approx({**sizes, "card": 94.62}, rel=0.05)
    parts = [size for name, size in found.gib.items() if name != "card"]
    assert sum(parts) == pytest.approx(found.gib["card"], abs=0.05)
    older = planned(
        ("--gpu-memory-utilization", "0.5"), ("VLLM_GRAPH_RESERVED_MEM", "0.4"), version="1.21"
    )
    assert older.num_blocks == 1408


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ((("--gpu_memory_utilization", "0.5"),), (("--gpu-memory-utilization", "0.5"),)),
        ((("--gpu-memory-utilization", "x"),), ()),
        ((("VLLM_GRAPH_RESERVED_MEM", "-1"),), ()),
        ((("VLLM_GRAPH_RESERVED_MEM", ""),), ()),
    ],
)
def test_spellings_and_nonsense(words: Any, same: Any) -> None:
    assert planned(*words) == planned(*same)


def test_the_users_own_words_win() -> None:
    half = planned(("--gpu-memory-utilization", "0.5"))
    assert planned(extra=("--gpu-memory-utilization=0.5",)) == half
    assert planned(extra=("--gpu_memory_utilization", "0.5")) == half
    assert planned(extra=("--enforce-eager",)).gib["graphs"] == 0
    assert planned(extra=("--num-gpu-blocks-override", "77")).num_blocks == 77


def test_fp8_halves_weights_and_its_cache_doubles_blocks() -> None:
    plain, inc = planned(), planned(("--quantization", "inc"), ("--kv-cache-dtype", "fp8_inc"))
    assert inc.gib["weights"] == pytest.approx(plain.gib["weights"] / 2, abs=0.01)
    assert (inc.num_blocks or 0) > 2 * (plain.num_blocks or 0)


@pytest.mark.parametrize("model", UNKNOWN)
def test_nothing_is_said_of_unknown_sizes(model: Model) -> None:
    assert planned(model=model) == MemoryPlan()


def test_cards_by_the_drivers_word() -> None:
    assert planned(product="GAUDI2") == planned(product="HL-225")


def test_1_22_pairs_inc_with_the_cache_of_the_profile() -> None:
    model = known_model("Qwen/Qwen3-32B", must_exist=False)
    inc = ("QUANT_CONFIG", "/q.json")
    silent = planned(inc, model=model)
    assert silent == planned(inc, ("--kv-cache-dtype", "fp8_inc"), model=model)
    assert silent != planned(inc, model=model, version="1.21")


def test_nothing_is_said_of_unknown_cards() -> None:
    assert planned(product=None) == planned(product="B200") == planned(cards=0) == MemoryPlan()


def plan(
    model: str, engine: str = "vllm-fork@1.21", machine: str = "simulated:hls2", **asked: Any
) -> Plan:
    request = Request(model=model, engine=engine, **asked)
    return make_plan(request, load(machine), known_model(model, must_exist=False), find(engine))


def test_auto_refuses_what_cannot_start_and_says_what_would() -> None:
    with failing("fit.plan_refused", ExitCode.MACHINE) as caught:
        plan("Qwen/Qwen2-72B-Instruct", cards=1)
    assert caught.value.text.values["would"] == "-n 2, -d fp8"
    # and what it says is true
    assert plan("Qwen/Qwen2-72B-Instruct", cards=2).memory
    assert plan("Qwen/Qwen2-72B-Instruct", cards=1, dtype="fp8").memory


def test_fp8_is_not_proposed_for_weights_that_are_quantised_on_disk() -> None:
    # 111 GB of full weights do not fit on one Gaudi2 card, and in fp8 they do
    full = replace(LLAMA, parameters=60_000_000_000)
    assert message("fit.would_dtype") in planned(model=full).remedies
    # mxfp4 that the plugin expands to bfloat16; -d fp8 is refused for it
    stored = replace(
        full, quantization="mxfp4", architecture="GptOssForCausalLM", model_type="gpt_oss"
    )
    made = memory_for(stored, LIMITS, CardSet(1, "HL-225"), find("vllm-gaudi"), ChosenSettings([]))
    assert (made.fits, made.remedies) == (False, ())


def test_a_shorter_context_is_named_when_it_helps() -> None:
    asked: dict[str, Any] = {"engine": "vllm-fork@1.22", "cards": 2}
    asked["model"] = "meta-llama/Llama-3.1-70B-Instruct"
    with pytest.raises(LaunchError) as caught:
        plan(**asked, max_model_len=131072)
    words = caught.value.text.values["would"].split(", ")
    assert words[0] == "-n 4"
    shorter = int(words[-1].removeprefix("-l "))
    assert 8192 < shorter < 131072
    assert plan(**asked, max_model_len=shorter).memory


@pytest.mark.parametrize(
    ("model", "machine", "would"),
    [
        # half a box has no eight cards
        ("Qwen/Qwen3-235B-A22B", "simulated:gaudi2e-4", "-n 4 -d fp8"),
        ("Qwen/Qwen3-235B-A22B", "simulated:hls2", "-n 8"),
        # at 1.22, the first fork that has its class
        ("zai-org/GLM-4.5", "simulated:hls2", "-n 8"),
        ("zai-org/GLM-4.5", "simulated:gaudi2e-4", "a machine with more or larger cards"),
    ],
)
def test_what_would_fit_is_on_this_machine_and_fits(model: str, machine: str, would: str) -> None:
    with pytest.raises(LaunchError) as caught:
        plan(model, _fork_for(model), machine, cards=1)
    assert caught.value.text.values["would"] == would
    if would.startswith("-n"):
        dtype = "fp8" if would.endswith("fp8") else None
        made = plan(model, _fork_for(model), machine, cards=int(would.split()[1]), dtype=dtype)
        assert "fit.tight" not in [warning.id for warning in made.warnings]


def _fork_for(model: str) -> str:
    """Return the first fork that has the model's class: Glm4MoeForCausalLM is in 1.22 only."""
    return "vllm-fork@1.22" if "GLM" in model else "vllm-fork@1.21"


@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-72B-Instruct", "openai/gpt-oss-120b"])
@pytest.mark.parametrize("name", ["gaudi2", "gaudi3"])
def test_the_cards_that_a_refusal_names_are_those_of_inspect(model: str, name: str) -> None:
    engine, facts = find("vllm-gaudi@0.26.0"), known_model(model, must_exist=False)
    product, machine = accelerators()[name], server_of(name) or ""
    fewest = fewest_cards(engine, Request(model), product, facts, (1, 2, 4, 8), "bfloat16")
    with pytest.raises(LaunchError) as caught:
        plan(model, "vllm-gaudi@0.26.0", machine, cards=1)
    assert caught.value.text.values["would"].split(", ")[0] == f"-n {fewest}"


@pytest.mark.parametrize("more", [{"force": True}, {"tuning": "reference"}])
def test_force_and_reference_only_warn(more: dict[str, Any]) -> None:
    made = plan("Qwen/Qwen2-72B-Instruct", cards=1, **more)
    assert "fit.weights" in [warning.id for warning in made.warnings]


MACHINES = {"gaudi2": "simulated:hls2", "gaudi3": "simulated:gaudi3-oam"}


def _engine_for(profile: profiles.Profile) -> str:
    if profile.name == "deepseek-r1":
        return "deepseek_r1"
    if profile.engine == "vllm-gaudi":
        return "vllm-gaudi@0.26.0"
    return _fork_for(profile.models[0])


@pytest.mark.parametrize("profile", profiles.profiles(), ids=lambda profile: profile.name)
def test_every_profile_fits_its_recommended_cards(profile: profiles.Profile) -> None:
    deepseek = profile.name == "deepseek-r1"
    made = plan(
        profile.models[0],
        _engine_for(profile),
        MACHINES[profile.accelerator],
        cards=profile.cards,
        inc_fp8=deepseek,
        dtype="fp8" if profile.dtype == "fp8" and not deepseek else None,
        max_model_len=profile.lengths.get("max_model_len"),
        input_range=(1, 1024) if "max_model_len" in profile.lengths and not deepseek else None,
    )
    assert made.memory["kv"] > 0
    assert [warning.id for warning in made.warnings if warning.id.startswith("fit.")] == []
    assert len(made.placement.modules) == profile.cards


# the command lines of the Gaudi2E inference manual (release 1.21), and what the engine must be
# given
MANUAL = [
    ("/models/Qwen2-72B-Instruct", 4, 128, (800, 1024), (400, 512), 8192),
    ("/models/QwQ-32B", 8, 24, (4, 38912), (4, 2048), 40960),
    ("/data/hf_models/DeepSeek-R1-Distill-Llama-70B", 4, 128, (800, 4096), (800, 2048), 8192),
    ("/data/hf_models/DeepSeek-R1-Distill-Qwen-32B", 2, 32, (800, 4096), (800, 2048), 8192),
    ("/data/hf_models/DeepSeek-R1-Distill-Llama-8B", 1, 32, (800, 4096), (800, 2048), 8192),
]


@pytest.mark.parametrize(("model", "cards", "seqs", "input", "output", "length"), MANUAL)
def test_command_lines_of_the_manual(
    model: str, cards: int, seqs: int, input: tuple[int, int], output: tuple[int, int], length: int
) -> None:
    asked: dict[str, Any] = {
        **{"model": model, "cards": cards, "max_num_seqs": seqs, "dtype": "bfloat16"},
        **{"input_range": input, "output_range": output, "max_model_len": length},
        **{"max_num_batched_tokens": length, "port": 30001, "cache_dir": "/data/warmup_cache"},
        **({"reduce": (8, 24000)} if cards == 8 else {"modules": tuple(range(cards))}),
    }
    made = plan(**asked)
    argv = made.command.argv
    expected = {
        **{"--tensor-parallel-size": str(cards), "--max-num-seqs": str(seqs), "--port": "30001"},
        **{"--max-model-len": str(length), "--max-num-batched-tokens": str(length)},
        "--dtype": "bfloat16",
    }
    assert {name: argv[argv.index(name) + 1] for name in expected} == expected
    assert made.command.env["PT_HPU_RECIPE_CACHE_CONFIG"] == f"{asked['cache_dir']},false,16384"
    profile = profiles.match(known_model(model, must_exist=False))
    assert profile is not None
    guide = {
        **{"max_model_len": length, "max_num_batched_tokens": length, "max_num_seqs": seqs},
        **{"input": list(input), "output": list(output)},
    }
    assert dict(profile.lengths) == guide
    assert profile.cards == cards
    assert made.memory["kv"] > 0
    assert "--enable-expert-parallel" not in argv
    # of these only the 72B keeps the float32 softmax that its family has by default
    softmax = None if "72B" in model else "false"
    assert made.command.env.get("VLLM_FP32_SOFTMAX") == softmax


def test_deepseeks_command_line() -> None:
    made = plan(
        "/data/hf_models/DeepSeek-R1-0528-G2",
        "deepseek_r1",
        host="127.0.0.1",
        port=8688,
        max_num_seqs=128,
        max_model_len=16384,
        inc_fp8=True,
        cache_dir="/data/warmup_cache",
    )
    profile = profiles.find("deepseek-r1")
    assert dict(profile.lengths) == {"max_model_len": 16384, "max_num_seqs": 128}
    assert len(made.placement.modules) == profile.cards == 8
    # 671e9 bytes over eight cards, with a second byte for each weight of embedding and head; the
    # rest after activations at 0.85 and a tenth for graphs
    wide = 2 * 129_280 * 7_168
    assert made.memory["weights"] == pytest.approx((671.026e9 + wide) / 8 / 2**30, rel=0.001)
    assert made.memory["kv"] > 8
    assert made.url == "http://127.0.0.1:8688"


def test_1_21_shows_the_blocks_that_it_keeps_and_their_cost() -> None:
    model = known_model("meta-llama/Llama-2-7b-chat-hf", must_exist=False)
    wishes: dict[str, Any] = {"cards": 1, "max_num_seqs": 256, "max_model_len": 2048}
    wishes["max_num_batched_tokens"] = 2048
    made = plan(model.path, **wishes)
    # 930 blocks of 64 MiB fit; the planner's step of 512 left 512 of them (planning.md P1-8)
    assert made.num_blocks == 896
    assert made.memory["kv"] == 896 * 64 / 1024
    assert made.kv_cache == message(
        "plan.kv_rounded", blocks=896, tokens=896 * 128, lost=34, gib="2.1", step=128
    )
    assert "34 blocks (2.1 GiB)" in made.kv_cache.render()
    assert sum(size for part, size in made.memory.items() if part != "card") == pytest.approx(
        made.memory["card"], abs=0.05
    )
    newer = plan(model.path, "vllm-fork@1.22", **wishes)
    blocks = newer.num_blocks or 0
    assert newer.kv_cache == message("plan.kv_blocks", blocks=blocks, tokens=blocks * 128)


@pytest.mark.parametrize(
    ("model", "cards", "weights"),
    [
        ("google/gemma-4-E4B-it", 1, 14.8),
        ("mistralai/Mistral-Large-3-675B-Instruct-2512", 8, 78.9),
        ("tencent/Hunyuan-A13B-Instruct", 2, 74.9),
    ],
)
def test_a_validated_model_that_is_not_here_has_its_memory(
    model: str, cards: int, weights: float
) -> None:
    # parameters of the profile, times bytes, by these cards
    found = plan(model, engine="vllm-gaudi@0.26.0", cards=cards).memory
    assert round(found["weights"], 1) == weights
    assert found["kv"] > 0


FORK = find("vllm-fork@1.22")


def divided_by(*pairs: tuple[str, str | None], limits: Limits = LIMITS) -> ServingDemand:
    ask, _ = division(LLAMA, limits, [setting(name, value) for name, value in pairs], FORK)
    return ask


def test_without_settings_a_card_is_divided_by_the_engines_defaults() -> None:
    ask, rules = division(LLAMA, LIMITS, [], FORK)
    assert ask == ServingDemand(
        max_model_len=2048,
        max_num_seqs=4,
        max_num_batched_tokens=4096,
        longest_prompt=1024,
        utilization=0.9,
        reserved=0.1,
        eager=False,
        kv_dtype="auto",
        blocks_step=128,
        pools=False,
        cache=FORK.support(LLAMA, NO_ARGS, {}).cache_rules,
    )
    assert rules == FORK.memory_rules({})


def test_settings_decide_how_a_card_is_divided() -> None:
    ask = divided_by(
        ("VLLM_PROMPT_SEQ_BUCKET_MAX", "512"),
        ("--gpu-memory-utilization", "0.5"),
        ("VLLM_GRAPH_RESERVED_MEM", "0.4"),
        ("--enforce-eager", None),
        ("--kv-cache-dtype", "fp8_inc"),
        ("VLLM_DECODE_BLOCK_BUCKET_STEP", "256"),
    )
    assert ask == replace(
        divided_by(),
        longest_prompt=512,
        utilization=0.5,
        reserved=0.4,
        eager=True,
        kv_dtype="fp8_inc",
        blocks_step=256,
    )


def test_the_longest_prompt_is_no_longer_than_the_context() -> None:
    longer = replace(LIMITS, input_max=9000, block_size=64)
    assert divided_by(limits=longer) == replace(
        divided_by(), longest_prompt=LIMITS.max_model_len, blocks_step=64
    )


@pytest.mark.parametrize(
    ("value", "eager"),
    [(None, True), ("", True), ("1", True), ("0", False), ("false", False), ("False", False)],
)
def test_an_option_that_is_off_is_not_in_force(value: str | None, eager: bool) -> None:
    assert divided_by(("--enforce-eager", value)).eager is eager


@pytest.mark.parametrize(
    ("text", "share"), [("0", 0.0), ("1", 1.0), ("1.01", 0.9), ("-0.1", 0.9), ("", 0.9)]
)
def test_a_share_is_between_nothing_and_all(text: str, share: float) -> None:
    assert divided_by(("--gpu-memory-utilization", text)).utilization == share


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("512", 512), ("0", 1024), ("1.5", 1024), ("٣", 1024), ("9" * 11, int("9" * 11)),
     ("9" * 12, 1024)],
)  # fmt: skip
def test_a_number_that_is_not_whole_is_not_used(text: str, tokens: int) -> None:
    assert divided_by(("VLLM_PROMPT_SEQ_BUCKET_MAX", text)).longest_prompt == tokens


@pytest.mark.parametrize(
    ("stored", "pairs", "dtype"),
    [
        (None, (), "bfloat16"),
        (None, (("--dtype", "float32"),), "float32"),
        (None, (("--dtype", "half"),), "bfloat16"),
        (None, (("--quantization", "inc"),), "fp8"),
        (None, (("--quantize", "fp8"),), "fp8"),
        (None, (("--quantization", "awq_hpu"), ("--dtype", "float32")), "awq"),
        (None, (("QUANT_CONFIG", "/q.json"),), "fp8"),
        (None, (("QUANT_CONFIG", ""),), "bfloat16"),
        ("gptq", (), "gptq"),
        ("fp8", (("--dtype", "bfloat16"),), "fp8"),
        ("awq", (("QUANT_CONFIG", "/q.json"),), "fp8"),
    ],
)
def test_the_type_of_the_weights_on_the_card(
    stored: str | None, pairs: tuple[tuple[str, str], ...], dtype: str
) -> None:
    model = replace(LLAMA, quantization=stored)
    settings = [setting(name, value) for name, value in pairs]
    assert type_on_card(model, settings, FORK) == dtype
    assert type_on_card(model, settings, FORK, fp8=True) == "fp8"


def test_blocks_that_the_user_fixed_fit_where_the_weights_do() -> None:
    fixed = planned(("--num-gpu-blocks-override", "77"))
    assert (fixed.fits, fixed.num_blocks, fixed.lost_blocks) == (True, 77, 0)
    assert fixed.message == message("fit.blocks_fixed", blocks=77)
    large = replace(LLAMA, parameters=60_000_000_000)
    refused = planned(("--num-gpu-blocks-override", "77"), model=large)
    assert (refused.fits, refused.num_blocks, refused.tight) == (False, None, None)


def test_what_would_make_a_model_fit_on_the_cards_of_a_machine() -> None:
    full = replace(LLAMA, parameters=60_000_000_000)

    def would(model: Model, most: int | None, count: int = 1) -> tuple[Message, ...]:
        cards = CardSet(count, "HL-225", most)
        found = memory_for(model, LIMITS, cards, FORK, ChosenSettings([]))
        return remedies(FORK, Request("m", max_model_len=4096), cards, model, "bfloat16", found)

    dtype = message("fit.would_dtype")
    assert would(full, None) == (message("fit.would_cards", option="-n", n=2), dtype)
    assert would(full, 1) == (dtype,)
    larger = replace(LLAMA, parameters=250_000_000_000)
    assert would(larger, 8) == (message("fit.would_cards", option="-n", n=8),)
    assert would(larger, 4) == (message("fit.would_both", option="-n", n=4),)
    assert would(larger, 2) == (message("fit.would_nothing"),)
    assert would(larger, 8, 4) == (message("fit.would_cards", option="-n", n=8), dtype)
    # 120 GB of weights fit on two cards, and three heads are not divided by two
    assert would(replace(full, heads=3, kv_heads=3), None) == (dtype,)


@pytest.mark.parametrize(("exported", "compact"), [(None, True), ("1", True), ("0", False)])
def test_the_cache_is_counted_by_the_variables_of_the_engine(
    exported: str | None, compact: bool
) -> None:
    gdn = replace(
        LLAMA,
        architecture="Qwen3NextForCausalLM",
        attention_layers=8,
        config={"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 8},
    )
    settings = [] if exported is None else [setting("VLLM_COMPACT_GDN", exported)]
    ask, _ = division(gdn, LIMITS, settings, find("vllm-gaudi@0.26.0"))
    assert ask.cache.compact_states is compact
