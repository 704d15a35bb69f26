"""Every recorded case of every engine: lists, order, errors, resolved flags, profile shape,
look-ups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import LANGUAGES, catalogue
from gaudi_launch.core.buckets.bucket_list import BucketError, Buckets
from gaudi_launch.core.buckets.engine_buckets import (
    algorithm_of,
    engine_buckets,
    engine_model,
    lookups,
)
from gaudi_launch.core.buckets.families import (
    CONTEXT_LADDER,
    EVERY_CONTEXT,
    FAMILIES,
    FIXED_LENGTHS,
    PLAIN_GRID,
)
from gaudi_launch.core.buckets.lookup import Lookup
from tests.support.bucket_parity import FAMILY_OF, RECORDED, SMALL, recorded_files, records
from tests.support.refusals import failing, raising


def test_records_of_every_algorithm_are_here() -> None:
    assert {path.name for path in RECORDED.iterdir()} == {
        f"{e}-{a}.json.gz" for e, family in FAMILY_OF.items() for a in FAMILIES[family].models
    }


@pytest.mark.parametrize(
    "path", recorded_files(), ids=lambda path: f"{path.parent.parent.parent.name}-{path.name}"
)
def test_recorded(path: Path) -> None:
    seen = 0
    for record in records(path):
        case = (
            FAMILY_OF[record["version"]],
            record["algorithm"],
            record["inputs"]["env"],
            record["inputs"]["args"],
        )
        seen += 1
        if "error" in record:
            with pytest.raises(BucketError) as raised:
                engine_buckets(*case)
            assert str(raised.value) == record["error"]
            continue
        model, buckets = engine_model(*case), engine_buckets(*case)
        assert buckets.prompt == record["prompt_buckets"]
        assert buckets.decode == record["decode_buckets"]
        assert model.prompt.count() + model.decode.count() == buckets.graphs
        rule = lookups(*case, remember=True)
        for asked in record["lookups"]:
            assert _as_recorded(_ask(rule, asked), asked) == asked
    assert seen >= 60


def _ask(rule: Any, asked: dict[str, Any]) -> Lookup:
    if asked["phase"] == "decode":
        answer: Lookup = rule.decode(asked["batch_size"], asked["num_blocks"])
        return answer
    query = asked["seq_len"] if "seq_len" in asked else asked["query_len"]
    answer = rule.prompt(asked["batch_size"], query, asked.get("ctx_blocks", 0))
    return answer


def _as_recorded(answer: Lookup, asked: dict[str, Any]) -> dict[str, Any]:
    hung = {"error": "no bucket (upstream drops into pdb.set_trace())"}
    said = {**asked, "result": hung if answer.outcome == "hang" else answer.bucket}
    return {**said, "fallback_added": answer.added} if "fallback_added" in asked else said


@pytest.mark.parametrize(
    ("engine", "algorithm", "env", "args", "words"),
    [
        (PLAIN_GRID, "linear", {"VLLM_PROMPT_SEQ_BUCKET_MIN": "0"}, {}, "hang: "),
        (
            PLAIN_GRID,
            "linear",
            {"VLLM_DECODE_BS_BUCKET_STEP": "x"},
            {},
            "ValueError: invalid literal for int()",
        ),
        (
            FIXED_LENGTHS,
            "linear",
            {
                f"VLLM_PROMPT_BS_BUCKET_{name}": value
                for name, value in (("MIN", "8"), ("STEP", "5"), ("MAX", "8"))
            },
            {},
            "ValueError: No buckets could be captured with following config (min, step, "
            "max_warmup): bs:[8, 5, 8], seq:[128, 128, 1024]",
        ),
        (
            FIXED_LENGTHS,
            "linear-limit",
            {"VLLM_DECODE_BLOCK_BUCKET_STEP": "-1"},
            {},
            "ZeroDivisionError: ",
        ),
        (FIXED_LENGTHS, "linear-limit", {"VLLM_DECODE_BS_BUCKET_STEP": "-3"}, {}, "hang: "),
        (
            PLAIN_GRID,
            "exponential",
            {"VLLM_PROMPT_BS_BUCKET_LIMIT": "0"},
            {},
            "AssertionError: num_buckets must be",
        ),
        (
            EVERY_CONTEXT,
            "linear",
            {"VLLM_PROMPT_BS_BUCKET_LIMIT": "0.25"},
            {},
            "RuntimeError: VLLM_PROMPT_BS_BUCKET_LIMIT",
        ),
        (
            EVERY_CONTEXT,
            "linear-limit",
            {"VLLM_MERGED_PREFILL": "1"},
            {},
            "ValueError: too many values to unpack",
        ),
        (
            EVERY_CONTEXT,
            "exponential",
            {"VLLM_PREFIX_CACHING": "on"},
            {"max_model_len": 5000},
            "ValueError: math domain",
        ),
        (FIXED_LENGTHS, "linear-limit", {"VLLM_DECODE_BS_BUCKET_MIN": "0"}, {}, "hang: "),
        (
            CONTEXT_LADDER,
            "pad",
            {"VLLM_PROMPT_BS_BUCKET_PAD_PERCENT": "51"},
            {},
            "AssertionError: pad_percent must be between",
        ),
        (
            CONTEXT_LADDER,
            "pad",
            {"VLLM_BUCKETING_STRATEGY": "best"},
            {},
            "RuntimeError: bucketing_strategy: best is not in",
        ),
        (
            CONTEXT_LADDER,
            "linear",
            {},
            {"mamba_chunk_size": 300},
            "ValueError: max_num_batched_tokens (2048) must be divisible",
        ),
        (
            CONTEXT_LADDER,
            "file",
            {},
            {"bucket_file": "(4, 1, 64)\n"},
            "ValueError: max() arg is an empty sequence",
        ),
        (
            CONTEXT_LADDER,
            "file",
            {},
            {"bucket_file": "(1, 128, 0)\n1, 2\n"},
            "AttributeError: 'functools._lru_cache_wrapper'",
        ),
        (CONTEXT_LADDER, "file", {}, {}, "FileNotFoundError: "),
    ],
)
def test_engine_failures(
    engine: str, algorithm: str, env: dict[str, str], args: dict[str, Any], words: str
) -> None:
    with pytest.raises(BucketError) as raised:
        engine_buckets(engine, algorithm, env, {**SMALL, **args})
    assert str(raised.value).startswith(words)


def test_repeated_ladder_top_is_one_bucket() -> None:
    """A context ladder cut to its maximum holds it twice; found by running the plugin on random
    settings."""
    args = {
        **SMALL,
        "max_model_len": 10240,
        "max_num_batched_tokens": 10240,
        "num_hpu_blocks": 3782,
    }
    env = {"VLLM_CONTIGUOUS_PA": "1", "VLLM_MERGED_PREFILL": "true"}
    prompt = engine_model(CONTEXT_LADDER, "exponential", env, args).prompt.buckets()
    assert [bucket for bucket in prompt if bucket[1] == 512] == [[1, 512, 0], [1, 512, 76]]


def test_bucketing_switched_off_compiles_every_shape() -> None:
    case = (CONTEXT_LADDER, "exponential", {"VLLM_ENABLE_BUCKETING": "no"}, SMALL)
    assert lookups(*case).prompt(3, 77, 5) == Lookup([3, 77, 5], "recompile")
    assert engine_buckets(*case) == Buckets([], [])


def test_unknown_cache_size() -> None:
    unknown = {**SMALL, "num_hpu_blocks": None}
    assert (
        engine_model(CONTEXT_LADDER, "pad", {}, unknown).prompt.buckets()
        == engine_buckets(CONTEXT_LADDER, "pad", {}, SMALL).prompt
    )
    with failing("warmup_engine.blocks_unknown", ExitCode.USAGE):
        engine_buckets(CONTEXT_LADDER, "pad", {}, unknown)


@pytest.mark.parametrize(
    ("engine", "algorithm", "args", "id"),
    [
        ("vllm", "linear", SMALL, "warmup_engine.unknown_engine"),
        (PLAIN_GRID, "pad", SMALL, "warmup_engine.unknown_algorithm"),
        (PLAIN_GRID, "linear", {"max_num_seqs": 1}, "warmup_engine.missing_argument"),
    ],
)
def test_refusals(engine: str, algorithm: str, args: dict[str, Any], id: str) -> None:
    with raising(id):
        engine_buckets(engine, algorithm, {}, args)
    assert all(id in catalogue(language) for language in LANGUAGES)


@pytest.mark.parametrize(
    ("engine", "env", "with_limit", "algorithm"),
    [
        (PLAIN_GRID, {}, False, "linear"),
        (PLAIN_GRID, {"VLLM_EXPONENTIAL_BUCKETING": "1"}, False, "linear"),
        (PLAIN_GRID, {"VLLM_EXPONENTIAL_BUCKETING": "True"}, False, "exponential"),
        (EVERY_CONTEXT, {}, True, "exponential"),
        (EVERY_CONTEXT, {"VLLM_EXPONENTIAL_BUCKETING": "0"}, True, "linear-limit"),
        (EVERY_CONTEXT, {"VLLM_EXPONENTIAL_BUCKETING": "false"}, False, "linear"),
        (FIXED_LENGTHS, {"VLLM_EXPONENTIAL_BUCKETING": "true"}, True, "linear-limit"),
        (CONTEXT_LADDER, {}, False, "exponential"),
        (CONTEXT_LADDER, {"VLLM_BUCKETING_STRATEGY": "pad"}, False, "pad"),
        (
            CONTEXT_LADDER,
            {"VLLM_BUCKETING_STRATEGY": "pad", "VLLM_EXPONENTIAL_BUCKETING": "off"},
            False,
            "linear",
        ),
        (
            CONTEXT_LADDER,
            {"VLLM_BUCKETING_STRATEGY": "pad", "VLLM_BUCKETING_FROM_FILE": "b.txt"},
            False,
            "file",
        ),
    ],
)
def test_algorithm_of(engine: str, env: dict[str, str], with_limit: bool, algorithm: str) -> None:
    assert algorithm_of(engine, env, with_limit=with_limit) == algorithm
