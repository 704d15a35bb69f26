"""TGI in its container: the guide's commands, the launcher's own option table, tokens, versions,
what is lost."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import pytest

from gaudi_launch.app.fields import option_of
from gaudi_launch.app.options import LaunchOptions, to_request
from gaudi_launch.buckets.algorithms.tgi import PAGED, TgiLimits, tgi_shapes
from gaudi_launch.engines.registry import find
from gaudi_launch.engines.tgi.container import published
from gaudi_launch.engines.tgi.engine import Tgi
from gaudi_launch.engines.tgi.options import read_by
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import message
from gaudi_launch.models.model import Model
from gaudi_launch.performance.limits import CoverageQuestion, as_limits
from gaudi_launch.planning.container import Mount
from gaudi_launch.planning.engine import Context
from gaudi_launch.planning.plan import Placement, Plan, Setting
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model
from tests.support.cli import golden
from tests.support.options_table import parse
from tests.support.places import DATA
from tests.support.refusals import failing
from tests.support.tgi_plans import HERE, HLS2, LLAMA, LLAVA, container, options, table
from tests.support.whole_plans import Case, by_engine, whole_plans

CASES = json.loads((DATA / "tgi_guides.json").read_text(encoding="utf-8"))["cases"]


def plan(words: str, engine: str = "tgi", model: Model | None = None, **exported: str) -> Plan:
    """The plan of a command line, as the program makes it, on an 8-card Gaudi2 server."""
    ours, _, behind = words.partition(" -- ")
    flags = {
        name: each
        for each in fields(LaunchOptions)
        if (option := option_of(each))
        for name in option.names
    }
    rest = shlex.split(ours)
    given: dict[str, Any] = {}
    while rest:
        each = flags[rest.pop(0)]
        given[each.name] = True if each.type == "bool" else rest.pop(0)
    options = LaunchOptions(**{**given, "engine": engine, "extra": tuple(shlex.split(behind))})
    request = to_request(options, {**HERE, **exported})
    return make_plan(
        request, HLS2, model or known_model(request.model, must_exist=False), find(engine)
    )


def refused(
    words: str, engine: str = "tgi", model: Model | None = None, **exported: str
) -> tuple[str, ExitCode]:
    with pytest.raises(LaunchError) as error:
        plan(words, engine, model, **exported)
    assert "{" not in str(error.value)
    return error.value.id, error.value.exit_code


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
@pytest.mark.usefixtures("plain_english")
def test_our_own_tuning_of_the_guides_command(case: Mapping[str, Any]) -> None:
    made = plan(case["ours"], f"tgi@{case['version']}", **case.get("exported", {}))
    whole = made.to_json()
    kept = (
        "engine",
        "modules",
        "dtype",
        "env",
        "argv",
        "url",
        "buckets",
        "memory",
        "estimate",
        "cache",
        "warnings",
    )
    document = {name: whole[name] for name in (*kept, "container")}
    document["buckets"] = {**document["buckets"], "prompt": len(document["buckets"]["prompt"])}
    document["buckets"]["decode"] = len(document["buckets"]["decode"])
    golden(f"tgi-{case['name']}.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    parse(table(case["version"]), container(made).argv)
    # what the image does not read is told, and stays away
    sent = container(made).env.keys()
    assert sent <= read_by(case["version"])
    lost = case.get("exported", {}).keys() - read_by(case["version"])
    told = [warning.values["names"] for warning in made.warnings if warning.id == "tgi.unread"]
    assert set(", ".join(told).split(", ")) - {""} == lost


def test_every_setting_says_why() -> None:
    made = plan(
        f"-w {LLAMA} -n 2 -s --memory-utilization 0.7 -c cache", VLLM_GRAPH_PROMPT_RATIO="0.4"
    )
    assert {(s.name, s.value, s.source) for s in made.settings if s.kind == "env"} == {
        ("VLLM_SKIP_WARMUP", "true", "flag"),
        ("HPU_MEMORY_FRACTION", "0.7", "flag"),
        ("PT_HPU_RECIPE_CACHE_CONFIG", "/recipes,false,16384", "flag"),
        ("VLLM_GRAPH_PROMPT_RATIO", "0.4", "environment"),
        ("PT_HPU_ENABLE_LAZY_COLLECTIVES", "1", "engine"),
    }
    assert "PT_HPU_ENABLE_LAZY_COLLECTIVES" not in container(made).env
    assert [s.name for s in made.settings if s.source == "computed" and not s.origin] == []
    assert all(s.reason.render() != s.reason.id for s in made.settings)
    assert made.estimate is None and made.buckets is None
    assert [warning.id for warning in made.warnings] == ["tgi.maintenance"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", (1024, 2048, 2048, 32)),
        ("-n 8", (1024, 2048, 4096, 256)),
        ("-i 1,3000", (3000, 6000, 6000, 32)),
        ("-i 1,3000 -o 1,500", (3000, 3500, 6000, 32)),
        ("-o 1,500", (1024, 1524, 2048, 32)),
        ("-l 1000", (500, 1000, 1000, 32)),
        ("-l 4096 -o 1,1000", (3096, 4096, 6192, 32)),
        ("-b 1", (1024, 2048, 1024, 1)),
        ("--max-prefill-seqs 8", (1024, 2048, 8192, 32)),
        ("-t 5120", (1024, 2048, 5120, 32)),
        ("-b 9 -- --max-batch-size 16 --max-input-tokens=512", (512, 1024, 1024, 16)),
    ],
)
def test_tokens(words: str, expected: tuple[int, ...]) -> None:
    found = options(plan(f"-w {LLAMA} {words}"))
    names = ("input-tokens", "total-tokens", "batch-prefill-tokens", "batch-size")
    assert tuple(int(found[f"--max-{name}"] or 0) for name in names) == expected
    assert found["--max-concurrent-requests"] == str(2 * expected[-1])


def test_an_image_needs_room() -> None:
    found = options(plan(f"-w {LLAVA}"))
    assert (found["--max-input-tokens"], found["--max-total-tokens"]) == ("4096", "8192")
    assert (found["--max-batch-prefill-tokens"], found["--max-batch-size"]) == ("16384", "4")
    for version in ("3.2.3", "3.3.5"):
        assert refused(f"-w {LLAVA} -i 2048", f"tgi@{version}") == (
            "tgi.image_tokens",
            ExitCode.USAGE,
        )
    assert (
        refused(f"-w {LLAVA} -i 1024", "tgi@3.2.3", BASE_IMAGE_TOKENS="1024")[0]
        == "tgi.image_tokens"
    )
    assert plan(f"-w {LLAVA} -i 2000", "tgi@3.2.3", BASE_IMAGE_TOKENS="1024").container is not None
    small = plan(f"-w {LLAVA} -i 2500")
    assert [warning.id for warning in small.warnings] == ["tgi.maintenance", "tgi.image_512"]
    other = Model("q", "q", model_type="qwen2_vl")
    assert [w.id for w in plan("-w q -i 900", model=other).warnings][1:] == [
        "tgi.image_unknown",
        "plan.memory_unchecked",
    ]
    assert refused("-w q", "tgi@3.2.3", other) == ("tgi.model_type", ExitCode.MODEL)


REFUSALS = [
    ("-w m -i 2048 -l 2048", "tgi.input_over_total"),
    ("-w m -i 2048 -t 2000", "tgi.prefill_short"),
    ("-w m -b 5000", "plan.number"),
    ("-w m -d float16", "tgi.float16"),
    ("-w m -d int3", "plan.dtype"),
    ("-w m -r 8,1000", "tgi.option"),
    ("-w m -z", "tgi.option"),
    ("-w m -u somewhere", "tgi.address"),
    ("-w m -- --dtype float16", "tgi.float16"),
    ("-w m -- --model-id x", "plan.own_option"),
    ("-w m -- --port=80", "plan.own_option"),
    ("-w m -- --max-input-length 10", "plan.own_option"),
    ("-w m -- --api-key=s3cret", "tgi.api_key"),
    ("-w m -- --max-batch", "tgi.no_option"),
    ("-w m -- word", "tgi.no_option"),
    ("-w m -- --max-batch-size", "tgi.value"),
    ("-w m -- --max-batch-size many", "tgi.value"),
    ("-w m -- --json-output=1", "tgi.value"),
    ("-w m -- --quantize bitsandbytes", "tgi.value"),
    ("-w m -- --lora-adapters 'a b'", "tgi.value"),
    ("-w m -- --rope-factor 1.2.3", "tgi.value"),
    ("-w m -- --usage-stats maybe", "tgi.value"),
]


@pytest.mark.parametrize(("words", "id"), REFUSALS)
@pytest.mark.parametrize("version", ["3.2.3", "3.3.5"])
def test_what_cannot_be(words: str, id: str, version: str) -> None:
    assert refused(words, f"tgi@{version}") == (id, ExitCode.USAGE)


@pytest.mark.parametrize(
    ("version", "words", "id"),
    [
        ("3.2.3", "-w m -s", "tgi.option"),
        ("3.2.3", "-w m --memory-utilization 0.5", "tgi.option"),
        ("3.2.3", "-w m -d fp8", "tgi.fp8_measure"),
        ("3.2.3", "-w m -q", "tgi.fp8_measure"),
        ("3.2.3", "-w m -d awq", "tgi.quantize_old"),
        ("3.2.3", "-w m -- --quantize gptq", "tgi.quantize_old"),
        ("3.2.3", "-w m -- --kv-cache-dtype fp8_e4m3fn", "tgi.no_option"),
        ("3.2.3", "-w m -- --prometheus-port 9001", "tgi.no_option"),
        ("3.2.3", "-w m -i 100 -l 110 -b 4 -t 500", "tgi.prefill_over_rows"),
        ("3.3.5", "-w m -f", "tgi.option"),
        ("3.3.5", "-w m -a", "tgi.option"),
        ("3.3.5", "-w m -q", "tgi.option"),
        ("3.3.5", "-w m --quant-config c.json", "tgi.option"),
    ],
)
def test_what_one_version_cannot(version: str, words: str, id: str) -> None:
    assert refused(words, f"tgi@{version}") == (id, ExitCode.USAGE)
    flag = words.split()[2]
    if id == "tgi.option":
        assert flag in Tgi(version).lacks
        assert flag not in Tgi("3.3.5" if version == "3.2.3" else "3.2.3").lacks


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BATCH_SIZE_EXPONENT_BASE", "1"),
        ("PAD_SEQUENCE_TO_MULTIPLE_OF", "0"),
        ("BASE_IMAGE_TOKENS", "-1"),
    ],
)
def test_numbers_of_variables(name: str, value: str) -> None:
    assert refused("-w m", "tgi@3.2.3", None, **{name: value}) == ("plan.number", ExitCode.USAGE)
    # an image that does not read it does not mind
    assert [w.id for w in plan("-w m", "tgi", None, **{name: value}).warnings][1:] == [
        "tgi.unread",
        "plan.memory_unchecked",
    ]


def test_a_padding_that_would_never_end() -> None:
    words = "-w m -i 100000 -l 200000"
    assert refused(words, "tgi@3.2.3", PAD_SEQUENCE_TO_MULTIPLE_OF="1") == (
        "tgi.pad_small",
        ExitCode.USAGE,
    )


def test_the_variable_that_breaks_the_warm_up_is_kept_away() -> None:
    made = plan("-w m", VLLM_DECODE_BLOCK_BUCKET_STEP="128")
    assert "VLLM_DECODE_BLOCK_BUCKET_STEP" not in container(made).env
    assert [warning.id for warning in made.warnings] == [
        "tgi.maintenance",
        "tgi.breaks",
        "plan.memory_unchecked",
    ]


def test_models() -> None:
    known = {"heads": 32, "kv_heads": 8, "max_position_embeddings": 4096}
    llama = Model("m", "m", model_type="llama", **known)  # type: ignore[arg-type]
    assert refused("-w m", model=replace(llama, model_type="rwkv")) == (
        "tgi.model_type",
        ExitCode.MODEL,
    )
    assert refused("-w m -n 3", model=llama) == ("plan.heads", ExitCode.MODEL)
    four = replace(llama, kv_heads=4)
    assert refused("-w m -n 8", model=four) == ("tgi.kv_heads", ExitCode.MODEL)
    assert (
        options(plan("-w m -n 8", model=replace(four, model_type="qwen3_moe")))["--num-shard"]
        == "8"
    )
    assert refused("-w m -l 8192", model=llama) == ("tgi.too_long", ExitCode.MODEL)
    agreed = plan("-w m --trust-remote-code", model=replace(llama, remote_code=True))
    assert "--trust-remote-code" in options(agreed)
    quantised = replace(llama, quantization="fp8")
    assert refused("-w m", "tgi@3.2.3", quantised) == ("tgi.quantize_old", ExitCode.USAGE)
    assert "--quantize" not in options(plan("-w m -d fp8", model=quantised))
    assert options(plan("-w m -d fp8", model=llama))["--quantize"] == "fp8"
    # a total that was not asked for stays within the model
    assert options(plan("-w m -i 3000", model=llama))["--max-total-tokens"] == "4096"


def test_memory_that_is_not_there() -> None:
    words = f"-w {LLAMA} -i 1024 -l 2048"
    little = f"{words} --memory-utilization 0.1 -b 64 -t 65536"
    assert refused(little) == ("tgi.prefill_over_cache", ExitCode.MACHINE)
    assert plan(f"{little} --force").container is not None
    assert refused(f"{words} -b 2048", "tgi@3.2.3") == ("tgi.rows_over_memory", ExitCode.MACHINE)
    assert plan(f"{words} -b 2048 --force", "tgi@3.2.3").container is not None
    # the paged server keeps the shares that its variables say
    half = plan(f"{words} --memory-utilization 0.4").memory
    whole = plan(words).memory
    assert half["kv"] == pytest.approx(whole["kv"] / 2, abs=0.01)
    assert plan(words, TGI_GRAPH_RESERVED_MEM="0.55").memory["kv"] == pytest.approx(
        whole["kv"] / 2, abs=0.01
    )
    eager = plan(words, PT_HPU_LAZY_MODE="0").memory
    assert eager["kv"] == pytest.approx(whole["kv"] / 0.9, abs=0.01)
    # the padded one has rows for all that is left
    assert plan(words, "tgi@3.2.3").memory["free"] == 0


def test_the_warm_up_is_that_of_the_warm_up_room() -> None:
    made = plan(f"-w {LLAMA} -i 1024 -l 2048 -b 32 -t 2048")
    shapes = tgi_shapes(
        PAGED, TgiLimits(1024, 2048, 32, 2048, 131072), {}, kv_blocks=made.num_blocks
    )
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


def test_what_is_lost_is_told() -> None:
    ignored = plan("-w m -- --max-batch-total-tokens 90000")
    assert [warning.id for warning in ignored.warnings] == [
        "tgi.maintenance",
        "tgi.batch_total",
        "plan.memory_unchecked",
    ]
    made = plan("-w m -i 100,1000 -o 10,2000 -l 2048 --served-name x", VLLM_API_KEY="k")
    lost = ["tgi.lost_least", "tgi.lost_least", "tgi.lost_output", "tgi.lost_name", "tgi.lost_key"]
    lost += ["plan.length_rule", "plan.memory_unchecked"]
    assert [warning.id for warning in made.warnings][1:] == lost
    assert "VLLM_API_KEY" not in " ".join(made.command.argv)


@pytest.mark.parametrize(
    ("model", "exported", "named", "mounts", "secrets"),
    [
        (
            "/m/Qwen2-7B",
            {},
            "/models/Qwen2-7B",
            (Mount("/m/Qwen2-7B", "/models/Qwen2-7B", True),),
            (),
        ),
        ("./a b", {}, "/models/a-b", (Mount("/work/a b", "/models/a-b", True),), ()),
        ("~/q", {}, "/models/q", (Mount("/home/me/q", "/models/q", True),), ()),
        (
            "me/q",
            {},
            "me/q",
            (Mount("/home/me/.cache/huggingface", "/data", fill=True),),
            ("HF_TOKEN",),
        ),
        ("me/q", {"HF_HOME": "/h"}, "me/q", (Mount("/h", "/data", fill=True),), ("HF_TOKEN",)),
        (
            "me/q",
            {"HF_HUB_CACHE": "/h/hub", "HTTPS_PROXY": "http://u:p@proxy"},
            "me/q",
            (Mount("/h/hub", "/data/hub", fill=True),),
            ("HF_TOKEN", "HTTPS_PROXY"),
        ),
        (
            "/h/hub/models--me--q/snapshots/0a1b",
            {},
            "/data/hub/models--me--q/snapshots/0a1b",
            (Mount("/h/hub", "/data/hub"),),
            (),
        ),
    ],
)
def test_where_the_weights_are(
    model: str,
    exported: dict[str, str],
    named: str,
    mounts: tuple[Mount, ...],
    secrets: tuple[str, ...],
) -> None:
    made = plan(f"-w {shlex.quote(model)}", model=Model(model, "q"), **exported)
    held = container(made)
    assert (options(made)["--model-id"], held.mounts, held.secrets) == (named, mounts, secrets)
    assert "u:p" not in " ".join(made.command.argv)


def test_the_chosen_cards_go_by_index_and_the_cpus_with_them() -> None:
    made = plan(f"-w {LLAMA} -m 1,3")
    held = container(made)
    assert [HLS2.card(module).index for module in (1, 3)] == list(held.indices)  # type: ignore[union-attr]
    words = made.command.argv
    assert f"HABANA_VISIBLE_DEVICES={','.join(map(str, sorted(held.indices)))}" in words
    assert f"--cpuset-cpus={held.cpus}" in words and held.cpus == made.to_json()["cpus"]
    assert (options(made)["--sharded"], options(made)["--num-shard"]) == ("true", "2")
    assert made.to_json()["container"]["modules"] == (1, 3)


@pytest.mark.parametrize(
    ("host", "address", "url"),
    [
        (None, "127.0.0.1", "http://127.0.0.1:30001"),
        ("localhost", "127.0.0.1", "http://127.0.0.1:30001"),
        ("0.0.0.0", "0.0.0.0", "http://127.0.0.1:30001"),
        ("::", "::", "http://127.0.0.1:30001"),
        ("[::1]", "::1", "http://[::1]:30001"),
        ("10.0.0.5", "10.0.0.5", "http://10.0.0.5:30001"),
    ],
)
def test_addresses(host: str | None, address: str, url: str) -> None:
    made = plan(f"-w {LLAMA} {f'-u {host}' if host else ''}")
    assert (published(host), container(made).address, made.url) == (address, address, url)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("tgi", "3.3.5"),
        ("tgi@3.2.3", "3.2.3"),
        ("tgi@3.3.5-gaudi", "3.3.5"),
        ("tgi@3.3.3", "3.3.3"),
    ],
)
def test_names(name: str, version: str) -> None:
    engine = find(name)
    assert (engine.identity.name, engine.identity.version, engine.identity.python) == (
        "tgi",
        version,
        None,
    )


def test_an_image_of_the_users_own() -> None:
    made = plan("-w m", GAUDI_LAUNCH_TGI_IMAGE="mirror.local:5000/tgi:3.3.5-gaudi")
    assert container(made).image == "mirror.local:5000/tgi:3.3.5-gaudi"
    assert container(made).image in made.command.argv
    assert [warning.id for warning in made.warnings] == [
        "tgi.maintenance",
        "tgi.image",
        "plan.memory_unchecked",
    ]
    for bad in ("-v", "a b", "--rm"):
        assert refused("-w m", GAUDI_LAUNCH_TGI_IMAGE=bad) == ("tgi.bad_image", ExitCode.USAGE)


def test_a_revision_is_the_hubs() -> None:
    assert options(plan("-w me/q -- --revision refs/pr/1"))["--revision"] == "refs/pr/1"
    assert refused("-w /m/q -- --revision main") == ("tgi.revision", ExitCode.USAGE)


def test_an_image_that_no_document_names_is_assumed() -> None:
    assert [warning.id for warning in plan("-w m", "tgi@3.3.7").warnings] == [
        "tgi.maintenance",
        "tgi.assumed",
        "plan.memory_unchecked",
    ]


def test_unknown_versions() -> None:
    for name in ("tgi@2.0.6", "tgi@", "tgi@3.3.5-gaudi-x"):
        with failing("engines.unknown", ExitCode.USAGE):
            find(name)


def test_a_name_alone_tells_of_images() -> None:
    # TGI fetches a model of the hub itself, so its config.json is never seen here
    made = plan("-w Qwen/Qwen2-VL-7B-Instruct")
    found = options(made)
    assert (found["--max-input-tokens"], found["--max-batch-size"]) == ("4096", "4")
    told = {warning.id: warning.render() for warning in made.warnings}
    assert {"engines.vision_by_name", "tgi.image_unknown"} <= set(told)
    assert "None" not in "".join(told.values())
    assert "engines.vision_by_name" not in {
        w.id for w in plan("-w meta-llama/Llama-3.1-8B-Instruct").warnings
    }


@pytest.mark.parametrize("name", ["BAAI/bge-m3", "Qwen/Qwen3-Reranker-8B"])
def test_tgi_only_generates(name: str) -> None:
    assert refused(f"-w {name}") == ("tgi.task", ExitCode.MODEL)
    assert plan(f"-w {name} --force").engine.name == "tgi"


SHORT = {"max_model_len": 2048, "max_num_seqs": 8}
SWITCHES = {"no_fused_sdpa": True, "cache_dir": "/c"}
OLD = "tgi@3.2.3"
LOST = {"input_range": (100, 512), "output_range": (8, 4000), "served_name": "chat"}
OWN = (
    "--max-batch-size",
    "3",
    "--max-batch-total-tokens",
    "9000",
    "--cors-allow-origin",
    "http://a",
)
SMALL = known_model(LLAMA, must_exist=False)
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


@pytest.mark.parametrize(("file", "cases"), by_engine(WHOLE))
def test_each_request_has_its_recorded_plan(file: str, cases: list[Case]) -> None:
    golden(file, whole_plans(cases, HLS2))
