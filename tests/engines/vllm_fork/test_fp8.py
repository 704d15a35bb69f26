"""fp8 in plans: the QUANT_CONFIG that was found, the cache type that its file asks for, and what
is left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.engines.registry import find
from gaudi_launch.errors import ExitCode
from gaudi_launch.host.machine import load
from gaudi_launch.models.fp8.quant_config import QuantFile
from gaudi_launch.models.model import Model
from gaudi_launch.planning.plan import Plan
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request
from tests.support.refusals import failing, refused

SMALL = Model(
    path="/m/Small",
    name="Small",
    source="config.json",
    parameters=10**9,
    dtype="bfloat16",
    moe=False,
    layers=4,
    hidden_size=1024,
    heads=8,
    kv_heads=8,
    head_dim=128,
    vocab_size=1000,
    max_position_embeddings=4096,
)
FORKS = ("vllm-fork@1.21", "vllm-fork@1.22")


def plan(engine: str, model: Model = SMALL, **words: Any) -> Plan:
    request = Request(
        model=model.path, cards=8 if engine == "deepseek_r1" else 2, engine=engine, **words
    )
    return make_plan(request, load("simulated:hls2"), model, find(engine))


def said(made: Plan, *names: str) -> dict[str, tuple[str | None, str]]:
    return {s.name: (s.value, s.source) for s in made.settings if s.name in names}


@pytest.mark.parametrize("engine", FORKS)
@pytest.mark.parametrize("kind", ["awq", "gptq"])
def test_quantised_weights_run_with_the_platforms_own_kernels(engine: str, kind: str) -> None:
    # the platform refuses config.json's word, and the engine would die of it
    model = replace(SMALL, quantization=kind)
    for dtype in (None, kind):
        made = plan(engine, model, dtype=dtype)
        assert said(made, "--quantization")["--quantization"][0] == f"{kind}_hpu"
    assert "--quantization" not in said(plan(engine), "--quantization")
    # the engine would end while it loads the weights
    with refused("plan.not_quantised", ExitCode.MODEL, model="Small", found=kind):
        plan(engine, dtype=kind)


@pytest.mark.parametrize("engine", FORKS)
@pytest.mark.parametrize(
    ("origin", "source"),
    [
        ("flag", "flag"),
        ("environment", "environment"),
        ("profile", "profile"),
        ("calibrated", "computed"),
    ],
)
def test_what_was_found_is_sent_with_its_source(engine: str, origin: Any, source: str) -> None:
    environment = {"QUANT_CONFIG": "/q.json"} if origin == "environment" else {}
    flag = "/q.json" if origin == "flag" else None
    made = plan(
        engine,
        dtype="fp8",
        quant_file=QuantFile("/q.json", origin),
        environment=environment,
        quant_config=flag,
    )
    assert said(made, "QUANT_CONFIG") == {"QUANT_CONFIG": ("/q.json", source)}
    assert made.command.env["QUANT_CONFIG"] == "/q.json"
    assert made.dtype == "fp8"


def test_a_flag_beats_what_was_exported() -> None:
    found = QuantFile("/flag.json", "flag")
    made = plan(
        "vllm-fork@1.21",
        quant_config="/flag.json",
        quant_file=found,
        environment={"QUANT_CONFIG": "/env.json"},
    )
    setting = next(s for s in made.settings if s.name == "QUANT_CONFIG")
    assert (setting.value, setting.source) == ("/flag.json", "flag")
    assert [(b.value, b.source) for b in setting.beaten] == [("/env.json", "environment")]


@pytest.mark.parametrize("kv_dtype", ["auto", "fp8_inc"])
def test_the_files_blocklist_decides_the_cache(kv_dtype: str) -> None:
    found = QuantFile("/q.json", "calibrated", kv_dtype)
    old, new = (plan(engine, dtype="fp8", quant_file=found) for engine in FORKS)
    assert old.command.argv[old.command.argv.index("--kv-cache-dtype") + 1] == kv_dtype
    # 1.22 reads the file itself, but the memory is computed with what it will do
    assert "--kv-cache-dtype" not in new.command.argv
    assert said(new, "--kv-cache-dtype") == {"--kv-cache-dtype": (kv_dtype, "engine")}


def test_an_fp8_cache_holds_twice_the_blocks() -> None:
    for engine in FORKS:
        blocks = [
            plan(engine, dtype="fp8", quant_file=QuantFile("/q.json", "calibrated", kv)).num_blocks
            or 0
            for kv in ("auto", "fp8_inc")
        ]
        assert blocks[1] == pytest.approx(2 * blocks[0], rel=0.01)


@pytest.mark.parametrize("engine", FORKS)
def test_a_file_alone_means_fp8(engine: str) -> None:
    made = plan(engine, quant_config="/q.json", quant_file=QuantFile("/q.json", "flag"))
    assert made.dtype == "fp8"
    assert ("--quantization" in made.command.argv) == (engine == "vllm-fork@1.21")


@pytest.mark.parametrize("engine", FORKS)
def test_weights_that_are_fp8_on_disk_need_no_file(engine: str) -> None:
    made = plan(engine, replace(SMALL, quantization="fp8"), dtype="fp8")
    assert said(made, "QUANT_CONFIG", "--quantization", "--kv-cache-dtype") == {}
    assert "quant.stored" in [warning.id for warning in made.warnings]


@pytest.mark.parametrize("engine", FORKS)
def test_a_path_that_leads_nowhere_is_not_sent(engine: str) -> None:
    assert "QUANT_CONFIG" not in plan(engine, dtype="fp8").command.env
    # where the start scripts' folder is known, their file is
    kept = plan(engine, dtype="fp8", scripts_dir="/fork/scripts").command.env["QUANT_CONFIG"]
    assert kept == "/fork/scripts/quantization/small/maxabs_quant_g2.json"


def test_deepseek_gets_absolute_paths_and_no_prefix() -> None:
    r1 = replace(SMALL, name="DeepSeek-R1-0528", quantization="fp8", mla_rank=576)
    found = QuantFile("/m/maxabs_quant_g2.json", "downloaded")
    made = plan("deepseek_r1", r1, inc_fp8=True, quant_file=found)
    env = made.command.env
    assert (env["QUANT_CONFIG"], "INC_MEASUREMENT_DUMP_PATH_PREFIX" in env) == (found.path, False)
    assert env["VLLM_REQUANT_FP8_INC"] == "1"
    own = plan(
        "deepseek_r1",
        r1,
        inc_fp8=True,
        quant_file=QuantFile("/q.json", "environment"),
        environment={"QUANT_CONFIG": "/q.json", "INC_MEASUREMENT_DUMP_PATH_PREFIX": "/mine"},
    )
    assert own.command.env["INC_MEASUREMENT_DUMP_PATH_PREFIX"] == "/mine"


def test_the_reference_is_left_alone() -> None:
    found = QuantFile("/q.json", "calibrated", "auto")
    for engine in FORKS:
        with_it, without = (
            plan(engine, dtype="fp8", tuning="reference", quant_file=one).command
            for one in (found, None)
        )
        assert with_it == without


LOAD = "--weights-load-device"
HUGE = replace(SMALL, parameters=4 * 10**11, weight_bytes=8 * 10**11, dtype="bfloat16")
FOUND = QuantFile("/q.json", "calibrated", "fp8_inc")


@pytest.mark.parametrize("engine", FORKS)
def test_weights_that_inc_quantises_go_through_host_memory(engine: str) -> None:
    made = plan(engine, dtype="fp8", quant_file=FOUND)
    assert said(made, LOAD) == {LOAD: ("cpu", "computed")}
    assert LOAD not in said(plan(engine), LOAD)
    assert LOAD not in said(plan(engine, replace(SMALL, quantization="fp8"), dtype="fp8"), LOAD)


def test_deepseek_r1_loads_bfloat16_weights_for_inc_on_the_host() -> None:
    model = replace(SMALL, moe=True, experts=8)
    assert said(plan("deepseek_r1", model, inc_fp8=True), LOAD) == {LOAD: ("cpu", "computed")}
    assert LOAD not in said(
        plan("deepseek_r1", replace(model, quantization="fp8"), inc_fp8=True), LOAD
    )


@pytest.mark.parametrize("engine", FORKS)
def test_the_users_own_load_device_stands(engine: str) -> None:
    made = plan(engine, dtype="fp8", quant_file=FOUND, extra=(LOAD, "hpu"))
    assert made.command.argv.count(LOAD) == 1


def test_reference_tuning_adds_no_load_device() -> None:
    made = plan("vllm-fork@1.22", dtype="fp8", tuning="reference", quant_config="/q.json")
    assert LOAD not in made.command.argv


@pytest.mark.parametrize("engine", [*FORKS, "vllm-gaudi"])
def test_host_memory_that_is_too_small_is_refused(engine: str) -> None:
    host = replace(
        load("simulated:hls2"), memory_total_mib=500 << 10, memory_available_mib=400 << 10
    )
    request = Request(model=HUGE.path, cards=8, engine=engine, dtype="fp8", quant_file=FOUND)
    with failing("plan.host_memory", ExitCode.MACHINE):
        make_plan(request, host, HUGE, find(engine))
    forced = make_plan(replace(request, force=True), host, HUGE, find(engine))
    assert "plan.host_memory" in [warning.id for warning in forced.warnings]
    busy = replace(host, memory_total_mib=1000 << 10)
    ids = [warning.id for warning in make_plan(request, busy, HUGE, find(engine)).warnings]
    assert "plan.host_memory_low" in ids


def test_1_22_rescales_fp8_weights_on_gaudi2_itself() -> None:
    name = "VLLM_HPU_CONVERT_TO_FP8UZ"
    stored = replace(SMALL, quantization="fp8")
    assert said(plan("vllm-fork@1.22", stored), name) == {name: ("true", "engine")}
    converted = plan("vllm-fork@1.22", replace(stored, converted=True))
    assert converted.command.env[name] == "false"
    request = Request(model=stored.path, engine="vllm-fork@1.22")
    gaudi3 = make_plan(request, load("simulated:gaudi3-oam"), stored, find("vllm-fork@1.22"))
    assert said(gaudi3, name) == {}


@pytest.mark.parametrize(
    ("engine", "needs"),
    [
        ("vllm-fork@1.21", True),
        ("vllm-fork@1.22", False),
        ("deepseek_r1", True),
        ("vllm-gaudi", False),
    ],
)
def test_who_needs_weights_in_gaudi2s_range(engine: str, needs: bool) -> None:
    assert find(engine).needs_gaudi2_range is needs


def test_a_folder_that_is_elsewhere_gets_a_warning_on_1_21() -> None:
    elsewhere = replace(SMALL, source="name", quantization="fp8")
    for engine, warned in (("vllm-fork@1.21", True), ("vllm-fork@1.22", False)):
        ids = [warning.id for warning in plan(engine, elsewhere).warnings]
        assert ("gaudi.convert_first" in ids) is warned


def test_a_folder_with_a_converted_models_name_gets_no_warning() -> None:
    elsewhere = replace(SMALL, path="/models/DeepSeek-R1-G2", source="name", quantization="fp8")
    assert "gaudi.convert_first" not in [
        warning.id for warning in plan("deepseek_r1", elsewhere).warnings
    ]


@pytest.mark.parametrize(
    ("exported", "checked"),
    [("", True), ("1", True), ("true", True), ("TRUE", True), ("0", False), ("false", False)],
)
def test_rescaled_weights_need_host_memory_unless_that_is_switched_off(
    exported: str, checked: bool
) -> None:
    stored = replace(SMALL, quantization="fp8")
    environment = {"VLLM_HPU_CONVERT_TO_FP8UZ": exported} if exported else {}
    request = Request(model=stored.path, environment=environment)
    small = replace(load("simulated:hls2"), memory_total_mib=1)
    if not checked:
        assert make_plan(request, small, stored, find("vllm-fork@1.22")).dtype == "fp8"
        return
    with failing("plan.host_memory", ExitCode.MACHINE):
        make_plan(request, small, stored, find("vllm-fork@1.22"))
