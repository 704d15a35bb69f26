"""TGI in its container: the guide's commands, the launcher's own option table, tokens, versions,
what is lost."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.fields import options_of
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines.needed_release import needed_release
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.launch.launch_request import to_request
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Plan, Setting
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.predict.limits import CoverageQuestion, as_limits
from gaudi_launch.extensions.tgi.options import read_by
from gaudi_launch.extensions.tgi.tgi_buckets import PAGED, tgi_shapes
from gaudi_launch.extensions.tgi.tokens import Tokens
from tests.support.cli import golden
from tests.support.options_table import parse
from tests.support.places import DATA
from tests.support.refusals import failing
from tests.support.tgi_plans import HERE, HLS2, LLAMA, LLAVA, container, options, table
from tests.support.whole_plans import Case, by_engine, whole_plans

CASES = json.loads((DATA / "tgi_guides.json").read_text(encoding="utf-8"))["cases"]


def requested(words: str, engine: str = "tgi", **exported: str) -> Request:
    """Return the request of a command line."""
    ours, _, behind = words.partition(" -- ")
    flags = {
        name: (field, option)
        for field, option in options_of(LaunchOptions).items()
        for name in option.names
    }
    rest = shlex.split(ours)
    given: dict[str, Any] = {}
    while rest:
        field, option = flags[rest.pop(0)]
        given[field] = option.switch or rest.pop(0)
    options = LaunchOptions(**{**given, "engine": engine, "extra": tuple(shlex.split(behind))})
    return to_request(options, {**HERE, **exported})


def plan(words: str, engine: str = "tgi", **exported: str) -> Plan:
    """The plan of a command line, as the program makes it, on an 8-card Gaudi2 server."""
    request = requested(words, engine, **exported)
    return make_plan(request, HLS2, known_model(request.model, must_exist=False), find(engine))


def line(words: str, engine: str = "tgi", model: Model | None = None, **exported: str) -> Case:
    """Return the case of a command line; its name is what is given."""
    given = vars(requested(words, engine, **exported)).copy()
    name, environment = given.pop("model"), given.pop("environment")
    known = model or known_model(name, must_exist=False)
    variables = "".join(f"{name}={value} " for name, value in exported.items())
    return Case(f"{variables}{words}", engine, known, given, environment)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_one_line_of_ours_makes_the_guides_command(case: Mapping[str, Any]) -> None:
    ours, dashes, behind = case["ours"].partition(" -- ")
    line = f"{ours} --tuning reference{dashes}{behind}"
    made = plan(line, f"tgi@{case['version']}", **case.get("exported", {}))
    held = container(made)
    assert held.image == f"ghcr.io/huggingface/text-generation-inference:{case['version']}-gaudi"
    assert options(made) == {**case["options"], **case["added"]}
    assert dict(held.env) == case["env"]
    assert list(held.secrets) == case["secrets"]
    words = list(made.command.argv)
    assert [words[i + 1] for i, word in enumerate(words) if word == "-v"] == [
        f"/work/{mount}" for mount in case["mounts"]
    ]
    assert {"--runtime=habana", "--cap-add=sys_nice", "--ipc=host", "8080:80"} <= set(words)
    assert made.url == "http://127.0.0.1:8080"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_our_own_tuning_sends_what_the_image_reads(case: Mapping[str, Any]) -> None:
    exported = case.get("exported", {})
    made = plan(case["ours"], f"tgi@{case['version']}", **exported)
    parse(table(case["version"]), container(made).argv)
    # what the image does not read is told, and stays away
    assert container(made).env.keys() <= read_by(case["version"])
    lost = exported.keys() - read_by(case["version"])
    told = [warning.values["names"] for warning in made.warnings if warning.id == "tgi.unread"]
    assert set(", ".join(told).split(", ")) - {""} == lost


def test_the_warm_up_is_that_of_the_warm_up_room() -> None:
    made = plan(f"-w {LLAMA} -i 1024 -l 2048 -b 32 -t 2048")
    tokens = Tokens(1024, 2048, 32, 2048)
    shapes = tgi_shapes(PAGED, tokens, {}, kv_blocks=made.num_blocks, longest=131072)
    assert made.buckets is not None and made.buckets.graphs == shapes.shapes == 51
    assert made.buckets.prompt == [[batch, tokens, 0] for batch, tokens in shapes.prefill]
    assert made.estimate is not None and made.estimate.low_seconds > 0
    old = plan(f"-w {LLAMA} -i 1024 -l 2048 -b 32 -t 2048", "tgi@3.2.3").buckets
    assert old is not None and (len(old.prompt), old.decode[-1]) == (8, [32, 1, 512])
    linear = plan(f"-w {LLAMA}", VLLM_EXPONENTIAL_BUCKETING="false")
    assert linear.buckets is None and [w.id for w in linear.warnings] == [
        "tgi.maintenance",
        "tgi.linear",
    ]


def test_the_chosen_cards_go_by_index() -> None:
    held = container(plan(f"-w {LLAMA} -m 1,3"))
    assert [HLS2.card(module).index for module in (1, 3)] == list(held.indices)  # type: ignore[union-attr]


def test_an_image_that_no_document_names_is_assumed() -> None:
    found = [warning.id for warning in plan("-w m", "tgi@3.3.7").warnings]
    assert found == ["tgi.maintenance", "tgi.assumed", "plan.memory_unchecked"]


@pytest.mark.parametrize("name", ["tgi@2.0.6", "tgi@", "tgi@3.3.5-gaudi-x"])
def test_unknown_versions(name: str) -> None:
    with failing("engines.unknown", ExitCode.USAGE):
        find(name)


SHORT = {"max_model_len": 2048, "max_num_seqs": 8}
SWITCHES = {"no_fused_sdpa": True, "cache_dir": "/c"}
OLD = "tgi@3.2.3"
LOST = {"input_range": (100, 512), "output_range": (8, 4000), "served_name": "chat"}
OWN = (
    *("--max-batch-size", "3", "--max-batch-total-tokens", "9000"),
    *("--cors-allow-origin", "http://a"),
)
SMALL = known_model(LLAMA, must_exist=False)
OF_ONE_MODEL = (
    "-n 8",
    "-i 1,3000",
    "-i 1,3000 -o 1,500",
    "-o 1,500",
    "-l 1000",
    "-l 4096 -o 1,1000",
    "-b 1",
    "--max-prefill-seqs 8",
    "-t 5120",
    "-b 9 -- --max-batch-size 16 --max-input-tokens=512",
    "-n 2 -s --memory-utilization 0.7 -c cache",
    "-i 1024 -l 2048 --memory-utilization 0.1 -b 64 -t 65536",
    "-i 1024 -l 2048 --memory-utilization 0.1 -b 64 -t 65536 --force",
    "-i 1024 -l 2048 --memory-utilization 0.4",
    "-m 1,3",
    "-u localhost",
    "-u ::",
    "-u [::1]",
    "-u 10.0.0.5",
)
# of a model of which only the name is known
UNKNOWN = (
    "-i 2048 -l 2048",
    "-i 2048 -t 2000",
    "-d float16",
    "-d int3",
    "-r 8,1000",
    "-z",
    "-u somewhere",
    "-- --dtype float16",
    "-- --model-id x",
    "-- --port=80",
    "-- --max-input-length 10",
    "-- --api-key=s3cret",
    "-- --max-batch",
    "-- word",
    "-- --max-batch-size",
    "-- --max-batch-size many",
    "-- --json-output=1",
    "-- --quantize bitsandbytes",
    "-- --lora-adapters 'a b'",
    "-- --rope-factor 1.2.3",
    "-- --usage-stats maybe",
    "-- --max-batch-total-tokens 90000",
    "-- --kv-cache-dtype fp8_e4m3fn",
    "-- --prometheus-port 9001",
    "-- --quantize gptq",
    "-- --quantize int4",
    "-- --revision 'a*'",
    "-- --none",
    "-s",
    "--memory-utilization 0.5",
    "-d fp8",
    "-q",
    "-d awq",
    "-i 100 -l 110 -b 4 -t 500",
    "-f",
    "-a",
    "--quant-config c.json",
)
VARIABLES = (
    {"BATCH_SIZE_EXPONENT_BASE": "1"},
    {"PAD_SEQUENCE_TO_MULTIPLE_OF": "0"},
    {"BASE_IMAGE_TOKENS": "-1"},
    {"VLLM_DECODE_BLOCK_BUCKET_STEP": "128"},
    *({"GAUDI_LAUNCH_TGI_IMAGE": name} for name in ("mirror:5000/tgi:3.3.5", "-v", "a b", "--rm")),
)
OTHER = Model("q", "q", model_type="qwen2_vl")
KNOWN = Model("m", "m", model_type="llama", heads=32, kv_heads=8, max_position_embeddings=4096)
FOUR = replace(KNOWN, kv_heads=4)
STORED = replace(KNOWN, quantization="fp8")
PROXY = {"HF_HUB_CACHE": "/h/hub", "HTTPS_PROXY": "http://u:p@proxy"}
FOLDERS = ("/m/Qwen2-7B", "'./a b'", "~/q", "me/q", "/h/hub/models--me--q/snapshots/0a1b")
IMAGES = {"3.3.5": "tgi", "3.2.3": OLD}
LINES = [
    *(line(each["ours"], IMAGES[each["version"]], **each.get("exported", {})) for each in CASES),
    *(line(f"-w {LLAMA} {words}") for words in OF_ONE_MODEL),
    line(f"-w {LLAMA} -n 2", VLLM_GRAPH_PROMPT_RATIO="0.4"),
    line(f"-w {LLAMA} -i 1024 -l 2048", TGI_GRAPH_RESERVED_MEM="0.55"),
    line(f"-w {LLAMA} -i 1024 -l 2048", PT_HPU_LAZY_MODE="0"),
    line(f"-w {LLAMA} -i 1024 -l 2048", OLD),
    line(f"-w {LLAMA} -i 1024 -l 2048 -b 2048", OLD),
    line(f"-w {LLAMA} -i 1024 -l 2048 -b 2048 --force", OLD),
    *(line(f"-w m {words}", engine) for engine in ("tgi", OLD) for words in UNKNOWN),
    *(line("-w m", engine, None, **each) for engine in ("tgi", OLD) for each in VARIABLES),
    line("-w m -i 100000 -l 200000", OLD, PAD_SEQUENCE_TO_MULTIPLE_OF="1"),
    # an image needs room
    *(line(f"-w {LLAVA} -i 2048", engine) for engine in ("tgi", OLD)),
    *(line(f"-w {LLAVA} -i {n}", OLD, BASE_IMAGE_TOKENS="1024") for n in (1024, 2000)),
    line(f"-w {LLAVA} -i 2500"),
    line("-w q -i 900", model=OTHER),
    line("-w q", OLD, OTHER),
    # TGI fetches a model of the hub itself, so its config.json is never seen here
    line("-w Qwen/Qwen2-VL-7B-Instruct"),
    # what the model allows
    line("-w m", model=replace(KNOWN, model_type="rwkv")),
    line("-w m -n 3", model=KNOWN),
    line("-w m -n 8", model=FOUR),
    line("-w m -n 8", model=replace(FOUR, model_type="qwen3_moe")),
    line("-w m -l 8192", model=KNOWN),
    line("-w m --trust-remote-code", model=replace(KNOWN, remote_code=True)),
    line("-w m", OLD, STORED),
    line("-w m -d fp8", model=STORED),
    line("-w m -d fp8", model=KNOWN),
    line("-w m -i 3000", model=KNOWN),
    *(line(f"-w BAAI/bge-m3{words}") for words in ("", " --force")),
    line("-w Qwen/Qwen3-Reranker-8B"),
    # where the weights are
    *(line(f"-w {each}", model=Model(shlex.split(each)[0], "q")) for each in FOLDERS),
    *(line("-w me/q", model=Model("me/q", "q"), **each) for each in ({"HF_HOME": "/h"}, PROXY)),
    line("-w me/q -- --revision refs/pr/1"),
    line("-w /m/q -- --revision main"),
]
WHOLE = [
    Case("usual", "tgi", SMALL, {}, HERE),
    Case("short", "tgi", SMALL, SHORT, HERE),
    Case(
        "switches",
        "tgi",
        SMALL,
        {**SHORT, "cache_dir": "/c", "skip_warmup": True, "memory_utilization": "0.7"},
        HERE,
    ),
    Case("profile", "tgi", SMALL, {"profile": True}, HERE),
    Case("cards", "tgi", SMALL, {**SHORT, "cards": 4, "dtype": "bfloat16"}, HERE),
    Case("modules", "tgi", SMALL, {**SHORT, "modules": (2, 3), "input_range": (1, 512)}, HERE),
    Case("reference", "tgi", SMALL, {"tuning": "reference"}, HERE),
    Case("fp8", "tgi", SMALL, {**SHORT, "dtype": "fp8"}, HERE),
    Case("fp8 by option", "tgi", SMALL, {**SHORT, "quant_config": "/q/q.json"}, HERE),
    Case("prefill over cache", "tgi", SMALL, {"max_num_batched_tokens": 9_000_000}, HERE),
    Case("old", OLD, SMALL, SHORT, HERE),
    Case("old switches", OLD, SMALL, {**SHORT, **SWITCHES, "profile": True}, HERE),
    Case("old warm-up", OLD, SMALL, {"skip_warmup": True}, HERE),
    Case("old quantised", OLD, SMALL, {**SHORT, "quant_config": "/q/q.json"}, HERE),
    Case("old quantised by variable", OLD, SMALL, SHORT, {**HERE, "QUANT_CONFIG": "/q/q.json"}),
    Case("rows over memory", OLD, SMALL, {"max_model_len": 8192, "max_num_seqs": 512}, HERE),
    Case("unread", OLD, SMALL, SHORT, {**HERE, "VLLM_CONTIGUOUS_PA": "false"}),
    Case("lost", "tgi", SMALL, {**SHORT, **LOST}, {**HERE, "VLLM_API_KEY": "hunter2"}),
    Case("ranges of one length", "tgi", SMALL, {**SHORT, "input_range": (512, 512)}, HERE),
    Case("address", "tgi", SMALL, {**SHORT, "host": "0.0.0.0", "port": 90}, HERE),
    Case("linear", "tgi", SMALL, SHORT, {**HERE, "VLLM_EXPONENTIAL_BUCKETING": "false"}),
    Case("reference, unread", "tgi", SMALL, {"tuning": "reference"}, {**HERE, "MARK": "1"}),
    Case("images", "tgi", known_model(LLAVA, must_exist=False), {"cards": 2}, HERE),
    Case("images on one card", "tgi", known_model(LLAVA, must_exist=False), {}, HERE),
    Case("eight cards", "tgi", SMALL, {"cards": 8}, HERE),
    Case("too many rows", "tgi", SMALL, {"extra": ("--max-batch-size", "5000")}, HERE),
    Case("named by the user", "tgi", SMALL, {**SHORT, "extra": OWN}, HERE),
    Case("heads", "tgi", replace(SMALL, heads=12), {"cards": 8}, HERE),
    Case("float16", "tgi", SMALL, {"dtype": "float16"}, HERE),
    Case("unknown type", "tgi", SMALL, {"dtype": "float32"}, HERE),
    Case("its code", "tgi", replace(SMALL, remote_code=True), SHORT, HERE),
    Case("type that it lacks", "tgi", replace(SMALL, model_type="mamba"), SHORT, HERE),
    Case("old, fp8 without a measurement", OLD, SMALL, {"dtype": "fp8"}, HERE),
    Case("old, awq", OLD, SMALL, {"dtype": "awq"}, HERE),
    Case("old, stored awq", OLD, replace(SMALL, quantization="awq"), {"force": True}, HERE),
]


@pytest.mark.parametrize(("engine", "prompts"), [("tgi", 8), (OLD, 2)])
@pytest.mark.parametrize(("exported", "contiguous"), [("", True), ("false", False), ("1", True)])
def test_the_coverage_ends_at_the_last_decode_bucket(
    engine: str, prompts: int, exported: str, contiguous: bool
) -> None:
    """The paged router fills its budget, the padded one prefills what it warms up."""
    tgi = find(engine)
    request = Request(LLAMA, max_model_len=2048, max_num_seqs=8, environment=HERE)
    limits = tgi.limits(request, HLS2, SMALL)
    context = Context(request, HLS2, SMALL, Placement((0,)), limits)
    made = make_plan(request, HLS2, SMALL, tgi)
    variable = Setting(
        "VLLM_CONTIGUOUS_PA", exported, "env", "environment", message("plan.exported")
    )
    settings = [*made.settings, variable] if exported else made.settings
    found = tgi.question(settings, context, made.num_blocks)
    assert made.buckets is not None
    changed = {
        "num_blocks": made.buckets.decode[-1][2],
        "max_num_prefill_seqs": prompts,
        "contiguous_pa": contiguous,
    }
    assert found == CoverageQuestion("", as_limits({**asdict(limits), **changed}))
    assert tgi.question([], context, made.num_blocks) is None


@pytest.mark.parametrize(("file", "cases"), by_engine([*WHOLE, *LINES]))
def test_each_request_has_its_recorded_plan(file: str, cases: list[Case]) -> None:
    golden(file, whole_plans(cases, HLS2))


def test_a_version_is_an_image() -> None:
    found = needed_release("tgi@3.3.7")
    assert (found.engine, found.version) == ("tgi@3.3.7", "3.3.7")
    with failing("serve.setup_unknown", ExitCode.USAGE):
        needed_release("tgi@")
