"""Which models each engine version runs, by the shipped lists and by an installed engine's own."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from gaudi_launch.cli.main import run
from gaudi_launch.commands.inspect.support import selected
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.reader import read_json, shipped_json
from gaudi_launch.core.engines import entries, known_versions, registry, support
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.engines.known_versions import newest_or_none, releases, version_of
from gaudi_launch.core.engines.needed_release import needed_release
from gaudi_launch.core.engines.support import support_of
from gaudi_launch.core.host import simulated
from gaudi_launch.core.launch.forecast_case import data_types
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.weights import count_parameters
from gaudi_launch.core.planning.engine import Engine
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.support_answer import ModelSupport, SupportStatus
from gaudi_launch.extensions.migrate.diff.case import engines_diff
from tests.support.cli import reading
from tests.support.refusals import failing

LLAMA = Model("m", "Llama-3.1-8B-Instruct", architecture="LlamaForCausalLM", model_type="llama")
UNKNOWN = Model("m", "Made-Up-7B", architecture="TotallyUnknownForCausalLM", model_type="made_up")
GPT_OSS = Model(
    *("m", "gpt-oss-120b"),
    architecture="GptOssForCausalLM", model_type="gpt_oss", quantization="mxfp4",
)  # fmt: skip
SIZED = replace(
    known_model("meta-llama/Llama-3.1-8B-Instruct", must_exist=False), source="config.json"
)
SINCE = "support.since"
ON_HLS2 = ("--machine", "simulated:hls2")
RELEASES = [(each.engine, each.version) for each in known_versions.versions() if each.complete]


def architecture(name: str) -> Model:
    return Model("m", name, architecture=name)


def ids(found: ModelSupport) -> list[str]:
    return [reason.id for reason in found.reasons]


@pytest.mark.parametrize(("engine", "version"), RELEASES)
def test_every_version_runs_llama_and_no_version_an_unknown_class(
    engine: str, version: str
) -> None:
    assert support_of(LLAMA, engine, version).status is SupportStatus.RUNS
    found = support_of(UNKNOWN, engine, version)
    assert found.status is SupportStatus.NO
    assert found.refused
    assert ids(found) == ["support.no_class", "support.nowhere"]


@pytest.mark.parametrize(
    ("name", "engine", "version", "runs"),
    [
        # review/planning.md P1-1
        ("GptOssForCausalLM", "vllm-fork", "1.21", False),
        ("Ernie4_5_MoeForCausalLM", "vllm-fork", "1.21", False),
        ("Glm4MoeForCausalLM", "vllm-fork", "1.21", False),
        ("Glm4MoeForCausalLM", "vllm-fork", "1.22", True),
        ("Qwen3_5MoeForConditionalGeneration", "vllm-gaudi", "0.26.0", True),
        ("Qwen3ForCausalLM", "vllm-fork", "deepseek_r1", False),
        ("MiniMaxM3SparseForCausalLM", "vllm-gaudi", "0.26.0", True),
    ],
)
def test_a_class_decides(name: str, engine: str, version: str, runs: bool) -> None:
    assert support_of(architecture(name), engine, version).refused is not runs


@pytest.mark.parametrize(("engine", "version"), RELEASES)
def test_a_refusal_names_the_newest_release_that_has_the_class(engine: str, version: str) -> None:
    facts = known_versions.shipped_version(engine, version) or known_versions.versions()[0]
    for entry in read_json(facts.document)["models"].values():
        assert "state" in entry["layers"] or not {"hybrid", "inner_state"} & {*entry["interfaces"]}
    listed = set[str]().union(*(each.classes for each in known_versions.versions()))
    for name in sorted(listed - facts.classes):
        found = support_of(architecture(name), engine, version)
        since = [str(each.values["known"]) for each in found.reasons if each.id == "support.since"]
        having = [each.label for each in releases("vllm-gaudi") if name in each.classes][-1:]
        for newest in having if since else ():
            doubts = support_of(architecture(name), *newest.split("@")).reasons
            assert since[0].split(", ")[0] == newest
            assert {*doubts} <= {*found.reasons} or doubts[0].id != "support.no_operators"


def test_the_transformers_backend_counts_where_its_transformers_knows_the_model() -> None:
    # transformers 4.57 has it, 4.52 has not; neither fork has a native class
    model = architecture("GptOssForCausalLM")
    later = support_of(model, "vllm-fork", "1.22")
    assert later.status is SupportStatus.LIMITED
    assert ids(later) == ["support.fallback"]
    assert support_of(model, "vllm-fork", "1.21").refused


@pytest.mark.parametrize(
    ("method", "engine", "version", "runs"),
    [
        ("fbgemm_fp8", "vllm-gaudi", "0.26.0", False),
        ("compressed-tensors", "vllm-fork", "deepseek_r1", False),
        ("compressed_tensors", "vllm-fork", "1.21", True),
        ("awq", "vllm-fork", "1.21", True),
        ("bitsandbytes", "vllm-fork", "1.21", False),
        ("bitsandbytes", "vllm-fork", "1.22", True),
        ("modelopt", "vllm-gaudi", "0.14.1", False),
        ("modelopt", "vllm-gaudi", "0.15.1", True),
        ("mxfp4", "vllm-fork", "1.22", False),
        ("marlin", "vllm-gaudi", "0.26.0", False),
        # vllm/model_executor/layers/quantization/inc: auto-round becomes inc
        ("auto-round", "vllm-gaudi", "0.14.1", False),
        ("auto-round", "vllm-gaudi", "0.15.1", True),
        ("auto-round", "vllm-gaudi", "0.26.0", True),
    ],
)
def test_a_quantisation_method_decides(method: str, engine: str, version: str, runs: bool) -> None:
    found = support_of(replace(LLAMA, quantization=method), engine, version)
    assert (found.refused, "support.no_method" in ids(found)) == (not runs, not runs)
    # the user's own
    assert runs or support_of(LLAMA, engine, version, quantization=method).refused


# vllm-project/vllm-gaudi@v0.26.0:vllm_gaudi/ops/hpu_modelopt.py:47, "Supported: FP8 only."
@pytest.mark.parametrize("algorithm", ["NVFP4", "W4A16_NVFP4", "MIXED_PRECISION", "MXFP8"])
def test_modelopt_is_loaded_in_fp8_only(algorithm: str) -> None:
    for stored, refused in ((algorithm, True), ("FP8", False)):
        settings = {"quantization_config": {"quant_algo": stored}}
        model = replace(LLAMA, quantization="modelopt", config=settings)
        assert support_of(model, "vllm-gaudi", "0.26.0").refused is refused


def test_experts_in_modelopts_fp8_are_refused() -> None:
    settings = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}
    dense = replace(
        architecture("Qwen3MoeForCausalLM"), quantization="modelopt", moe=False, config=settings
    )
    for model, refused in ((replace(dense, moe=True), True), (dense, False)):
        found = support_of(model, "vllm-gaudi", "0.26.0")
        assert (found.refused, found.status is SupportStatus.NO) == (refused, refused)


def test_mxfp4_is_computed_away_unless_the_variable_says_no() -> None:
    found = support_of(GPT_OSS, "vllm-gaudi", "0.26.0")
    assert (found.expanded_to, found.unless) == ("bfloat16", "HPU_MXFP4_NATIVE=1")
    kept = support_of(GPT_OSS, "vllm-gaudi", "0.26.0", variables={"HPU_MXFP4_NATIVE": "1"})
    assert (kept.status, kept.expanded_to) == (SupportStatus.RUNS, "")
    # its list is not known
    main = support_of(GPT_OSS, "vllm-gaudi", "main")
    assert (main.status, main.expanded_to) == (SupportStatus.UNKNOWN, "bfloat16")
    older = support_of(GPT_OSS, "vllm-gaudi", "0.16.0")
    assert older.reasons[1].values["known"] == "vllm-gaudi@0.26.0"
    # 0.21 has no such variable
    assert support_of(GPT_OSS, "vllm-gaudi", "0.21.0").unless == ""


def test_a_byte_of_a_block_holds_two_weights() -> None:
    header = {
        "model.layers.0.mlp.experts.down_proj_blocks": {"dtype": "U8", "shape": [4, 16]},
        "model.layers.0.mlp.experts.down_proj_scales": {"dtype": "U8", "shape": [4, 1]},
        "model.norm.weight": {"dtype": "BF16", "shape": [8]},
    }
    assert count_parameters(header) == 2 * 64 + 8


def test_code_of_the_models_own_is_a_warning() -> None:
    found = support_of(replace(UNKNOWN, remote_code=True), "vllm-gaudi", "0.26.0")
    assert (found.status, found.refused) == (SupportStatus.UNKNOWN, False)
    assert ids(found) == ["support.own_code"]


def test_a_version_without_a_list_is_a_warning() -> None:
    newest = newest_or_none("vllm-gaudi")
    assert newest is not None
    for version in ("0.31.0", "main"):
        found = support_of(UNKNOWN, "vllm-gaudi", version)
        assert (found.status, found.refused) == (SupportStatus.UNKNOWN, False)
        assert found.reasons == (
            message(
                "support.no_data",
                engine=f"vllm-gaudi@{version}",
                architecture=UNKNOWN.architecture,
                known=newest.label,
            ),
        )


def with_registry(folder: Path, *classes: str) -> None:
    path = folder / "vllm/model_executor/models/registry.py"
    path.parent.mkdir(parents=True)
    entries = ", ".join(f'"{name}": ("x", "X")' for name in classes)
    path.write_text(
        f"_TEXT_GENERATION_MODELS = {{{entries}}}\n_VLLM_MODELS = {{**_TEXT_GENERATION_MODELS}}\n"
        '_OLD = {"LlamaForCausalLM": "0.9"}\n'
    )


def test_an_installed_registry_beats_the_shipped_one(tmp_path: Path) -> None:
    with_registry(tmp_path, "TotallyUnknownForCausalLM")
    plugin = tmp_path / "vllm_gaudi/models/__init__.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(
        'def register_model():\n    ModelRegistry.register_model("NewForCausalLM", "a:B")\n'
    )
    facts = {"source": str(tmp_path), "plugin_source": str(tmp_path), "plugin": "0.26.0"}
    engine = registry.find("auto", Installed("/p", "vllm-gaudi", {}, facts))
    assert engine.support(UNKNOWN).status is SupportStatus.RUNS
    assert engine.support(architecture("NewForCausalLM")).status is SupportStatus.RUNS
    assert engine.support(architecture("MistralForCausalLM")).refused


def installed_plugin(folder: Path, methods: str, transformers: str = "") -> Engine:
    """An installed plugin of a version without shipped facts."""
    with_registry(folder, "LlamaForCausalLM", "TransformersForCausalLM")
    platform = folder / "vllm_gaudi/platform.py"
    platform.parent.mkdir(parents=True)
    platform.write_text(f"class P:\n    supported_quantization: list[str] = {methods}\n")
    facts = {"source": str(folder), "plugin_source": str(folder), "plugin": "0.99.0"}
    if transformers:
        facts["transformers"] = transformers
    return registry.find("auto", Installed("/p", "vllm-gaudi", {}, facts))


def test_an_installed_platform_decides_about_quantisation(tmp_path: Path) -> None:
    engine = installed_plugin(tmp_path, '["fp8", "newest"]')
    assert engine.support(replace(LLAMA, quantization="newest")).status is SupportStatus.RUNS
    found = engine.support(replace(LLAMA, quantization="modelopt"))
    assert (found.refused, ids(found)[0]) == (True, "support.no_method")
    assert found.evidence.startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("transformers", "status", "id"),
    [
        # MllamaForConditionalGeneration is in the classes of transformers 4.57.1 for vLLM's backend
        ("4.57.1", SupportStatus.LIMITED, "support.fallback"),
        ("4.40.0", SupportStatus.UNKNOWN, "support.other_transformers"),
    ],
)
def test_the_installed_transformers_decides_about_the_fallback(
    transformers: str, status: SupportStatus, id: str, tmp_path: Path
) -> None:
    engine = installed_plugin(tmp_path, '["fp8"]', transformers)
    found = engine.support(architecture("MllamaForConditionalGeneration"))
    assert (found.status, ids(found), found.refused) == (status, [id], False)


def test_the_cpu_engine_answers_by_its_own_registry(tmp_path: Path) -> None:
    with_registry(tmp_path, "LlamaForCausalLM")
    engine = registry.find(
        "cpu", Installed("/p", "cpu", {}, {"source": str(tmp_path), "vllm": "0.32.0"})
    )
    assert engine.support(LLAMA).status is SupportStatus.RUNS
    assert engine.support(replace(LLAMA, quantization="fp8")).status is SupportStatus.RUNS
    assert engine.support(UNKNOWN).refused
    kimi = Model("m", "m", architecture="DeepseekV3ForCausalLM", model_type="kimi_k2")
    bare = [registry.find("cpu").support(each) for each in (LLAMA, kimi, UNKNOWN)]
    said = [(each.status.name, each.own_class) for each in bare]
    assert said == [("RUNS", True), ("RUNS", True), ("NO", False)]


@pytest.mark.parametrize(
    ("engine", "kind", "status"),
    [
        ("tgi@3.3.5", "llama", SupportStatus.RUNS),
        ("tgi@3.3.5", "gpt_oss", SupportStatus.NO),
        ("tgi@3.2.3", "gpt_oss", SupportStatus.UNKNOWN),
        ("tgi@3.2.3", "mllama", SupportStatus.RUNS),
    ],
)
def test_tgi_answers_by_its_model_types(engine: str, kind: str, status: SupportStatus) -> None:
    found = registry.find(engine).support(Model("m", "m", model_type=kind))
    assert (found.status, found.refused) == (status, status is SupportStatus.NO)


GDN = Model(
    "m", "Qwen3-Next", architecture="Qwen3NextForCausalLM", layers=4, attention_layers=1,
    config={"layer_types": ["linear_attention"] * 3 + ["full_attention"]},
)  # fmt: skip


@pytest.mark.parametrize(
    ("version", "variables", "limited"),
    [
        ("0.26.0", {}, True),
        ("0.26.0", {"VLLM_COMPACT_GDN": "1"}, True),
        ("0.26.0", {"VLLM_COMPACT_GDN": "0"}, False),
        # read since 0.19.0
        ("0.17.1", {}, False),
    ],
)
def test_compact_gdn_has_no_prefix_caching(
    version: str, variables: dict[str, str], limited: bool
) -> None:
    found = support_of(GDN, "vllm-gaudi", version, variables=variables)
    reason = message("support.compact_gdn", engine=f"vllm-gaudi@{version}", model="Qwen3-Next")
    assert (reason in found.reasons) is limited
    assert ("support.compact_gdn" in ids(found)) is limited
    host = simulated.make("gaudi3-oam")
    request = Request("m", environment=variables)
    plan = make_plan(request, host, GDN, registry.find(f"vllm-gaudi@{version}"))
    sent = {setting.name: setting.value for setting in plan.settings}
    # without compact slots the release caches no prefixes of a hybrid either, but by an option
    assert "--no-enable-prefix-caching" in sent
    # before 0.24.0 contiguous attention is left off where steps are scheduled asynchronously
    assert sent["VLLM_CONTIGUOUS_PA"] == str(not limited and version == "0.26.0").lower()


def test_a_removed_class_names_the_last_vllm_and_the_fork_that_has_it() -> None:
    said = ids(support_of(architecture("Phi3SmallForCausalLM"), "vllm-gaudi", "0.26.0"))
    assert said == ["support.no_class", "support.until", "support.since"]


def test_fit_reads_the_exported_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = registry.find("vllm-gaudi@0.26")
    monkeypatch.delenv("HPU_MXFP4_NATIVE", raising=False)
    assert data_types(GPT_OSS, "", engine) == ["bfloat16"]
    monkeypatch.setenv("HPU_MXFP4_NATIVE", "1")
    assert data_types(GPT_OSS, "", engine) == ["mxfp4"]


def test_a_damaged_installed_registry_leaves_the_shipped_one(tmp_path: Path) -> None:
    path = tmp_path / "vllm/model_executor/models/registry.py"
    path.parent.mkdir(parents=True)
    path.write_text("def broken(:\n")
    engine = registry.find("auto", Installed("/p", "vllm-fork@1.21", {}, {"source": str(tmp_path)}))
    assert engine.support(UNKNOWN).refused


def test_validated_models_are_found_by_name() -> None:
    found = support_of(LLAMA, "vllm-gaudi", "0.26.0").validated
    assert found is not None
    assert (found.cards, found.accelerators) == ((1,), ("gaudi2", "gaudi3"))
    assert support_of(UNKNOWN, "vllm-gaudi", "0.26.0").validated is None


@pytest.mark.parametrize(("engine", "version"), RELEASES)
def test_code_of_a_model_is_needed_only_where_a_release_has_no_class(
    engine: str, version: str
) -> None:
    facts = version_of(engine, version)
    assert facts is not None
    known = shipped_json("engines", "support", "transformers.json")
    allowed = SpecifierSet(facts.transformers)
    runs = [at for at, each in enumerate(known["releases"]) if each in allowed]
    own = {kind for kind, having in known["types"].items() if runs[-1] in having}
    own |= set(read_json(facts.document).get("configs", ()))
    for kind in {*known["types"], *shipped_json("config-classes.json")["classes"], *own, "made_up"}:
        model = replace(LLAMA, model_type=kind)
        assert support_of(model, engine, version).own_class == (kind in own), kind
        assert not support_of(replace(UNKNOWN, model_type=kind), engine, version).own_class


@pytest.mark.parametrize("auto_map", [True, False])
@pytest.mark.parametrize(
    ("engine", "kind", "asks"),
    [
        # vLLM has its configuration from 0.14 on, transformers never
        ("vllm-gaudi@0.26.0", "kimi_k2", False),
        ("vllm-gaudi@0.11.2", "kimi_k2", True),
        ("vllm-gaudi@0.26.0", "made_up", True),
        ("vllm-fork@1.22", "chatglm", False),
        ("vllm-fork@1.22", "kimi_k2", True),
        # it runs with transformers 4.48, which has no class for DeepSeek-V3
        ("deepseek_r1", "deepseek_v3", True),
        ("tgi", "llama", False),
        ("simulated", "made_up", False),
    ],
)
def test_a_plan_asks_for_consent_only_there(
    engine: str, kind: str, asks: bool, auto_map: bool
) -> None:
    model = replace(SIZED, model_type=kind, remote_code=auto_map)
    ask = partial(make_plan, Request("m"), simulated.make("hls2"), model, registry.find(engine))
    if not (asks and auto_map):
        ask()
        return
    with failing("plan.remote_code", ExitCode.MODEL):
        ask()


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    folder = tmp_path / "Made-Up-7B"
    folder.mkdir()
    document = {
        "architectures": ["TotallyUnknownForCausalLM"],
        "model_type": "made_up",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "torch_dtype": "bfloat16",
        "max_position_embeddings": 32768,
    }
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


@pytest.mark.parametrize("command", ["plan", "warmup", "render script"])
@pytest.mark.parametrize(
    "engine", ["vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi", "vllm-gaudi@0.19"]
)
def test_commands_refuse_with_exit_5(
    made_up: Path, command: str, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [*command.split(), "-w", str(made_up), "-n", "1", "--engine", engine, *ON_HLS2]
    assert run(argv) == ExitCode.MODEL
    assert "TotallyUnknownForCausalLM" in capsys.readouterr().err


def test_plan_continues_with_force(made_up: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", "-w", str(made_up), "-n", "1", "--engine", "vllm-gaudi", *ON_HLS2]
    warnings = reading(capsys, *argv, "--force")["warnings"]
    assert "support.forced" in [warning["id"] for warning in warnings]


def test_a_drawn_version_is_known_exactly_or_refused_with_the_nearest_by_number() -> None:
    chance = random.Random(9)
    known = {each.version for each in releases("vllm-gaudi") if each.executed}
    prefixes = {".".join(each.split(".")[:n]) for each in known for n in (1, 2, 3, 4)}
    for _ in range(40):
        number = ".".join(str(chance.randrange(n)) for n in (2, 32, 4)[: chance.randrange(2, 4)])
        number += chance.choice(("", "", ".post1", ".post2"))
        if number in prefixes or number.startswith("0.10"):
            continue
        near = set()
        for ask in (registry.find, selected, needed_release, compared):
            with failing("support.no_facts", ExitCode.USAGE) as refused:
                ask(f"vllm-gaudi@{number}")
            near.add(refused.value.text.values["near"])
        (nearest,) = near
        away = {f"vllm-gaudi@{each}": abs(_value(each) - _value(number)) for each in known}
        assert away[nearest] == min(away.values()), number


def compared(name: str) -> object:
    return engines_diff(name, "vllm-gaudi@0.26", LaunchOptions())


def _value(version: str) -> int:
    return sum(int(n) * 1000 ** (3 - at) for at, n in enumerate(re.findall(r"\d+", version)))


def test_a_model_that_the_default_lacks_is_planned_for_the_successor() -> None:
    assert registry.assumed_for(GPT_OSS, lambda: "gaudi3-oam") == "vllm-gaudi"
    assert registry.assumed_for(LLAMA, lambda: "gaudi3-oam") == entries.DEFAULT
    assert registry.assumed_for(UNKNOWN, lambda: "gaudi3-oam") == entries.DEFAULT


def test_a_config_without_a_class_is_unknown_with_a_reason() -> None:
    found = support_of(Model("m", "m", config={"model_type": "llama"}), "vllm-gaudi", "0.26.0")
    assert (found.status, [each.id for each in found.reasons]) == (
        SupportStatus.UNKNOWN,
        ["support.no_architecture"],
    )


def test_versions_are_in_the_order_of_their_numbers() -> None:
    known = [each.version for each in known_versions.versions() if each.engine == "vllm-gaudi"]
    first = known.index("0.19.1")
    assert known[first : first + 4] == ["0.19.1", "0.19.1.post1", "0.21.0", "0.24.0"]
    assert known[-1] == "main"


@pytest.mark.parametrize(
    ("release", "spec", "within"),
    [
        ("4.51", "==4.51.0", True),
        ("4.51.1", "==4.51", False),
        ("4.51.1", "==4.51.*", True),
        ("4.52", "==4.51.*", False),
        ("4.51.0", ">=4.51", True),
        ("4.50.9", ">=4.51", False),
        ("4.56", ">=4.51,<5", True),
        ("5", ">=4.51,<5", False),
        ("4.51", "<=4.51.0", True),
        ("4.51.1", ">4.51", True),
        ("4.51", "!=4.51.0", False),
    ],
)
def test_a_release_is_within_bounds_of_any_length(release: str, spec: str, within: bool) -> None:
    assert support._within(release, spec) is within


@pytest.mark.parametrize(
    ("name", "version", "status", "reasons"),
    [
        ("MambaForCausalLM", "0.26.0", SupportStatus.UNKNOWN, ["support.no_operators"]),
        ("FalconMambaForCausalLM", "0.26.0", SupportStatus.UNKNOWN, ["support.no_operators"]),
        ("KimiLinearForCausalLM", "0.26.0", SupportStatus.UNKNOWN, ["support.no_operators"]),
        ("Mamba2ForCausalLM", "0.26.0", SupportStatus.RUNS, []),
        ("GraniteMoeHybridForCausalLM", "0.14.1", SupportStatus.RUNS, []),
        ("DeepseekV32ForCausalLM", "0.26.0", SupportStatus.LIMITED, ["support.dense"]),
        ("DeepseekV32ForCausalLM", "0.24.0", SupportStatus.NO, ["support.no_sparse", SINCE]),
    ],
)
def test_a_class_of_the_registry_runs_only_with_layers_for_these_cards(
    name: str, version: str, status: SupportStatus, reasons: list[str]
) -> None:
    model = replace(architecture(name), config={"index_topk": 2048})
    found = support_of(model, "vllm-gaudi", version)
    refused = status is SupportStatus.NO
    assert (found.status, ids(found), found.refused) == (status, reasons, refused)
    values = {"support.dense": ("tokens", 2048), SINCE: ("known", "vllm-gaudi@0.26.0")}
    for each in found.reasons[-1:]:
        if each.id in values:
            assert values[each.id] in each.values.items()
