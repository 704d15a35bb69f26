"""Plans of many kinds for any release of vllm-gaudi, judged by its lists."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.engines.known_versions import version_of
from gaudi_launch.core.engines.version_facts import names_of, reads_variable
from gaudi_launch.core.launch.route import checked_plan
from gaudi_launch.core.launch.todo import CheckedPlan
from gaudi_launch.core.planning.engine import BucketQuestion, Context
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.plan import variables_of

Kind = Mapping[str, Any]
_EXPORTED = "exported"


def _kind(model: str, *extra: str, exported: Mapping[str, str] | None = None, **given: str) -> Kind:
    machine = given.pop("machine", "simulated:hls2")
    return {
        "model": model,
        "machine": machine,
        "extra": extra,
        _EXPORTED: dict(exported or {}),
        **given,
    }


_EXP = {"VLLM_EXPONENTIAL_BUCKETING": "true"}
_CONTIGUOUS = {"VLLM_CONTIGUOUS_PA": "true"}
_QUANT, _MEASURED = "quant.json", {"mode": "QUANTIZE", "dump_stats_path": "/m/stats/s"}
_SMALL = "Llama-3.1-8B-Instruct"

# the six of the review of 2026-11: one for each rule in which releases differed
SIX: Mapping[str, Kind] = {
    "exponential": _kind(
        "Qwen3-32B", cards="1", max_num_seqs="256", max_model_len="32768", exported=_EXP
    ),
    "file": _kind("Qwen2-72B-Instruct", cards="4"),
    "padding-limit": _kind("Qwen2-72B-Instruct", cards="4", padding_limit="0.25"),
    "no-prefix": _kind("Qwen3-8B", "--no-enable-prefix-caching", cards="1"),
    "contiguous": _kind(
        "Qwen3-8B", cards="1", max_num_seqs="64", max_model_len="8192", exported=_CONTIGUOUS
    ),
    "long": _kind(_SMALL, cards="1", max_num_seqs="64", max_model_len="131072"),
}
_EAGLE = '{"method":"eagle3","model":"/models/draft","num_speculative_tokens":3}'
_NGRAM = '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":3}'
_MTP = '{"method":"mtp","num_speculative_tokens":1}'
KINDS: Mapping[str, Kind] = {
    **SIX,
    "dense-1": _kind(_SMALL, cards="1"),
    "dense-2": _kind("Llama-3.1-70B-Instruct", cards="2"),
    "dense-8": _kind("Llama-3.1-405B-Instruct", cards="8", machine="simulated:gaudi3-oam"),
    "gaudi3": _kind("Llama-3.1-70B-Instruct", cards="4", machine="simulated:gaudi3-oam"),
    "pcie": _kind(_SMALL, cards="2", machine="simulated:gaudi3-pcie"),
    "moe": _kind("Qwen3-30B-A3B", cards="2"),
    "moe-8": _kind("Qwen3-235B-A22B", cards="8"),
    "mixtral": _kind("Mixtral-8x7B-Instruct-v0.1", cards="2"),
    "mla": _kind("DeepSeek-R1", cards="8", machine="simulated:gaudi3-oam", trust_remote_code="yes"),
    "gdn": _kind("Qwen3-Next-80B-A3B-Instruct", cards="4"),
    "mamba": _kind("granite-4.0-h-small", cards="2"),
    "mamba-prefix": _kind("granite-4.0-h-small", "--enable-prefix-caching", cards="2"),
    "windows": _kind("gpt-oss-20b", cards="1"),
    "windows-wide": _kind("gpt-oss-20b", cards="1", max_num_seqs="256", max_model_len="32768"),
    "parsers": _kind("GLM-4.5", cards="8", machine="simulated:gaudi3-oam"),
    "gemma": _kind("gemma-4-31b-it", cards="2"),
    "vision": _kind("Qwen2.5-VL-7B-Instruct", cards="1"),
    "vision-language-only": _kind("Qwen2.5-VL-7B-Instruct", "--language-model-only", cards="1"),
    "embedding": _kind("bge-m3", cards="1"),
    "reranker": _kind("bge-reranker-v2-m3", cards="1"),
    "eager": _kind(_SMALL, "--enforce-eager", cards="1"),
    "float8": _kind(_SMALL, cards="1", dtype="fp8", quant_config=_QUANT),
    "awq": _kind("Qwen2.5-7B-Instruct-AWQ", cards="1", dtype="awq"),
    "float8-cache": _kind(_SMALL, "--kv-cache-dtype", "fp8_inc", cards="1"),
    "lora": _kind(_SMALL, "--enable-lora", "--max-loras", "2", cards="1"),
    "eagle3": _kind(_SMALL, "--speculative-config", _EAGLE, cards="1"),
    "ngram": _kind(_SMALL, "--speculative-config", _NGRAM, cards="1"),
    "mtp": _kind("DeepSeek-R1", "--speculative-config", _MTP, cards="8", trust_remote_code="yes"),
    "prefix": _kind(_SMALL, "--enable-prefix-caching", cards="1"),
    "contiguous-exp": _kind(_SMALL, cards="1", exported={**_CONTIGUOUS, **_EXP}),
    "linear": _kind(
        _SMALL,
        cards="1",
        max_num_seqs="16",
        max_model_len="4096",
        exported={"VLLM_EXPONENTIAL_BUCKETING": "false"},
    ),
    "strategy": _kind(_SMALL, cards="1", exported={"VLLM_BUCKETING_STRATEGY": "exp"}),
    "context-bound": _kind(
        _SMALL, cards="1", exported={**_EXP, "VLLM_PROMPT_CTX_BUCKET_MAX": "32"}
    ),
    "one-token": _kind(_SMALL, cards="1", exported={**_EXP, "VLLM_PROMPT_QUERY_BUCKET_MIN": "1"}),
    "reduce": _kind(_SMALL, cards="1", reduce="32,2048"),
    "ranges": _kind(_SMALL, cards="1", input_range="100,2000", output_range="50,500"),
    "lengths-odd": _kind(_SMALL, cards="1", max_model_len="5000", max_num_seqs="33"),
    "one-sequence": _kind(_SMALL, cards="1", max_num_seqs="1", max_model_len="2048"),
    "wide-steps": _kind(_SMALL, cards="1", max_num_batched_tokens="8192"),
    "prefills": _kind(_SMALL, cards="1", max_prefill_seqs="8", exported=_EXP),
    "lazy": _kind(_SMALL, cards="2", exported={"PT_HPU_LAZY_MODE": "1"}),
    "no-async": _kind(_SMALL, "--no-async-scheduling", cards="1"),
    "skip-warmup": _kind(_SMALL, cards="1", skip_warmup="yes"),
    "no-fused": _kind(_SMALL, cards="1", no_fused_sdpa="yes", profile="yes"),
}
# a model with the fewest cards of each machine that fits it; windows, states, compressed keys,
# pictures, experts and pooling among them
_DRAWN_MODELS = (
    (_SMALL, 1),
    ("Qwen3-8B", 1),
    ("Qwen3-32B", 2),
    ("Qwen2-72B-Instruct", 4),
    ("Llama-3.1-405B-Instruct", 8),
    ("Qwen3-30B-A3B", 1),
    ("DeepSeek-R1", 8),
    ("gpt-oss-20b", 1),
    ("gpt-oss-120b", 2),
    ("gemma-4-31b-it", 2),
    ("gemma-4-26b-a4b-it", 2),
    ("granite-4.0-h-small", 2),
    ("Qwen3.5-35B-A3B", 2),
    ("Qwen3.6-35B-A3B", 2),
    ("Qwen2.5-VL-7B-Instruct", 1),
    ("bge-m3", 1),
    ("bge-reranker-v2-m3", 1),
    ("Mixtral-8x7B-Instruct-v0.1", 2),
)
_DRAWN_ARGUMENTS: tuple[tuple[str, ...], ...] = (
    ("--no-enable-prefix-caching",),
    ("--enable-prefix-caching",),
    ("--kv-cache-dtype", "fp8_inc"),
    ("--enable-lora", "--max-loras", "4"),
    ("--enforce-eager",),
    ("--no-async-scheduling",),
    ("--speculative-config", _NGRAM),
    ("--no-enable-chunked-prefill",),
    ("--pipeline-parallel-size", "2"),
    ("--data-parallel-size", "2"),
    ("--enable-expert-parallel",),
)
_DRAWN_VARIABLES = (
    _EXP,
    _CONTIGUOUS,
    {"VLLM_EXPONENTIAL_BUCKETING": "false"},
    {"VLLM_BUCKETING_STRATEGY": "exp"},
    {"VLLM_BUCKETING_STRATEGY": "lin"},
    {"VLLM_PROMPT_BS_BUCKET_MAX": "4"},
    {"VLLM_DECODE_BS_BUCKET_STEP": "24"},
    {"VLLM_DECODE_BLOCK_BUCKET_MAX": "900"},
    {"VLLM_PROMPT_QUERY_BUCKET_MIN": "256"},
)
_DRAWN_VALUES: Mapping[str, tuple[str, ...]] = {
    "max_model_len": ("1000", "3000", "4096", "10000", "16384", "32768", "65000", "131072"),
    "max_num_seqs": ("1", "3", "16", "48", "100", "200", "256", "512"),
    "max_num_batched_tokens": ("1024", "2048", "5000", "16384"),
    "max_prefill_seqs": ("2", "4", "16"),
    "padding_limit": ("0.1", "0.5"),
    "input_range": ("1,900", "500,700"),
    "reduce": ("16,1024",),
}


def drawn(seed: int, number: int) -> dict[str, Kind]:
    """Return kinds of plans at random, with arguments and variables in some."""
    chance = random.Random(seed)
    found = {}
    for at in range(number):
        model, least = chance.choice(_DRAWN_MODELS)
        cards = min(8, least * chance.choice((1, 1, 2, 4)))
        arguments = chance.sample(_DRAWN_ARGUMENTS, chance.choice((0, 0, 1, 1, 2)))
        values = {
            name: chance.choice(choices)
            for name, choices in _DRAWN_VALUES.items()
            if chance.random() < (0.5 if name.startswith("max_") else 0.15)
        }
        values["machine"] = chance.choice(("simulated:hls2", "simulated:gaudi3-oam"))
        exported = chance.choice(_DRAWN_VARIABLES) if chance.random() < 0.4 else {}
        extra = [part for each in arguments for part in each]
        found[f"{seed}-{at}"] = _kind(
            model, *extra, exported=exported, cards=str(cards), trust_remote_code="yes", **values
        )
    return found


_SWITCHES = ("trust_remote_code", "skip_warmup", "no_fused_sdpa", "profile")


@dataclass(frozen=True)
class Planned:
    """A plan as its engine receives it: options, variables and its bucket question.

    ``question`` is None without a warm-up.
    """

    argv: list[str]
    variables: Mapping[str, str]
    prompt: list[list[int]]
    decode: list[list[int]]
    question: BucketQuestion | None
    exported: Mapping[str, str]


@contextlib.contextmanager
def exporting(variables: Mapping[str, str]) -> Iterator[None]:
    """Export these variables of engines, and no others."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith(("VLLM_", "PT_HPU_"))]:
        del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def planned(engine: str, kind: Kind) -> Planned | str:
    """Return the plan of a kind for an engine, or the id of its refusal."""
    given = {name: value for name, value in kind.items() if name != _EXPORTED}
    for name in _SWITCHES:
        given[name] = name in given
    with exporting(kind[_EXPORTED]), tempfile.TemporaryDirectory() as folder:
        if given.get("quant_config") == _QUANT:
            given["quant_config"] = str(Path(folder) / _QUANT)
            Path(folder, _QUANT).write_text(json.dumps(_MEASURED), encoding="utf-8")
        try:
            checked = checked_plan(LaunchOptions(engine=engine, **given))
        except LaunchError as error:
            return error.id
    plan = checked.plan
    # what the user wrote after -- is the user's
    words = list(plan.command.argv[: len(plan.command.argv) - len(plan.command.user)])
    return Planned(
        words[words.index("serve") + 2 :],
        variables_of(plan.settings),
        plan.buckets.prompt if plan.buckets else [],
        plan.buckets.decode if plan.buckets else [],
        question_of(checked),
        kind[_EXPORTED],
    )


def question_of(checked: CheckedPlan) -> BucketQuestion | None:
    """Return a plan's question to its engine's bucket code; None without a warm-up."""
    plan, made = checked.plan, checked.prepared
    if plan.buckets is None:
        return None
    limits = made.engine.limits(made.request, made.host, made.model)
    context = Context(made.request, made.host, made.model, plan.placement, limits)
    return made.engine.bucket_question(plan.settings, context, plan.num_blocks)


# read by Gaudi's PyTorch bridge, its driver or neural compressor, not by the engine's Python code
# (docs.habana.ai "Runtime Environment Variables"; vllm-project/vllm-gaudi@091bbadd:
# docs/configuration/env_variables.md, .cd/templates/template_vllm_server.sh)
BELOW = {
    "HABANA_VISIBLE_MODULES",
    "PT_ENABLE_INT64_SUPPORT",
    "PT_HPU_EAGER_CACHE",
    "PT_HPU_ENABLE_EAGER_CACHE",
    "PT_HPU_ENABLE_LAZY_COLLECTIVES",
    "PT_HPU_LAZY_MODE",
    "PT_HPU_RECIPE_CACHE_CONFIG",
    "PT_HPU_WEIGHT_SHARING",
    "QUANT_CONFIG",
    "RUNTIME_SCALE_PATCHING",
}


_PARSERS = {"--reasoning-parser": "reasoning", "--tool-call-parser": "tool"}


def unread(plan: Planned, release: str) -> list[str]:
    """Return the variables and options of a plan that are not in the release's lists.

    What the user exported or wrote is the user's.
    """
    facts = version_of("vllm-gaudi", release)
    assert facts is not None
    names = names_of(facts)
    found = [
        name
        for name in plan.variables
        if name not in BELOW and name not in plan.exported and not reads_variable(facts, name)
    ]
    for word, after in zip(plan.argv, [*plan.argv[1:], ""], strict=True):
        if not word.startswith("--"):
            continue
        kind = _PARSERS.get(word)
        if kind is not None and after not in names.parsers[kind]:
            found.append(f"{word} {after}")
        option = names.option(word.partition("=")[0])
        if option is None:
            found.append(word)
        elif option.values and not after.startswith("--") and after not in option.values:
            found.append(f"{word} {after}")
    return found


def record_of(kind: str, asked: BucketQuestion, reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question to a release's bucket code with its answer, for CI."""
    return {
        "kind": kind,
        "algorithm": asked.algorithm,
        "env": {n: v for n, v in asked.environment.items() if n.startswith(("VLLM_", "PT_HPU_"))},
        "args": dict(asked.arguments),
        "graphs": [len(reply["prompt"]), len(reply["decode"])],
        "lists": digest_of(reply["prompt"], reply["decode"]),
    }


def digest_of(prompt: list[list[int]], decode: list[list[int]]) -> str:
    """Return the digest of two bucket lists."""
    return hashlib.sha256(json.dumps([prompt, decode]).encode()).hexdigest()[:16]
