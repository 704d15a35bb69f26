"""Walk the main path with drawn combinations, judged by other code.

    python scripts/acceptance/main_path.py --seed 1 [--count 500] [--source CODE] [--recommend]
        [--serve N] [--record]

For each combination: plan, warmup, render script and inspect, in this process. The judges are not
the planner's code: bash runs the script, shapes are enumerated against the bucket list, the
release's bucket code makes the list again (CODE has a folder per release, as RELEASES names it,
with vllm_gaudi or vllm_hpu_extension in it), options are looked up in the release's list, and
refusals are computed from the tables here. ``--recommend`` and ``--serve`` take one in twenty of
them further, ``--serve`` at most N: the simulated engine (``gaudi-launch setup cpu``) to an answer.
``--record`` writes ``tests/data/main_path.json.gz``: the digests of the lists that CODE made, with
which CI compares.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gzip
import hashlib
import io
import json
import os
import random
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import requests

from gaudi_launch.cli.main import run
from gaudi_launch.core.base import messages
from gaudi_launch.core.base.fields import option_of
from gaudi_launch.core.engines.introspect import ask_buckets
from gaudi_launch.core.launch.route import checked_plan
from gaudi_launch.core.planning.engine import BucketQuestion
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.option_table import variable_table
from tests.support.options_table import Refused, parse
from tests.support.places import DATA
from tests.support.release_plans import (
    BELOW,
    Planned,
    digest_of,
    exporting,
    question_of,
    record_of,
    unread,
)

RECORDED = Path(__file__).resolve().parents[2] / "tests" / "data" / "main_path.json.gz"
_FORKS = ("vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1")
# one accepted combination in this many is taken to recommend and serve
_FURTHER = 20
# the dimension of variables; no option
_EXPORTED = "exported"
# what the user writes after -- wins over ours
_AFTER = {"-l": "--max-model-len", "-b": "--max-num-seqs", "-t": "--max-num-batched-tokens"}


@dataclass(frozen=True)
class DrawnModel:
    """A model by its config.json: GB on the cards, KB of KV cache per token.

    ``half``: its weights are stored in 8 bits. ``config``: it is a folder, with this as its
    config.json. ``missing`` are the releases without
    its class.
    """

    family: str
    heads: int
    positions: int
    gigabytes: float
    kv: float
    config: Mapping[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    half: bool = False


_CONFIGS = json.loads((DATA / "models" / "families.json").read_text(encoding="utf-8"))["models"]


def _folder(
    family: str, name: str, gigabytes: float, kv: float, missing: tuple[str, ...] = ()
) -> DrawnModel:
    """Return a model of tests/data/models as a folder."""
    # transformers' BambaConfig and FalconH1Config have this chunk where config.json has none
    config = {"mamba_chunk_size": 256, **_CONFIGS[name]["config"]}
    heads, positions = config["num_attention_heads"], config["max_position_embeddings"]
    return DrawnModel(family, heads, positions, gigabytes, kv, config, missing)


_PLUGIN = (
    *("0.11.2", "0.13.0", "0.13.0.post1", "0.14.1", "0.15.1", "0.16.0", "0.17.1", "0.19.0"),
    *("0.19.0.post1", "0.19.1", "0.19.1.post1", "0.21.0", "0.24.0", "0.26.0"),
)


def _before(release: str) -> tuple[str, ...]:
    return tuple(f"vllm-gaudi@{each}" for each in _PLUGIN[: _PLUGIN.index(release)])


# The values of each dimension. "" leaves an option out. Releases have weights; the plugin's main
# branch is not offered, because its options were only read
RELEASES: Mapping[str, int] = {
    "vllm-fork@1.21": 4,
    "vllm-fork@1.22": 4,
    "deepseek_r1": 2,
    **{f"vllm-gaudi@{each}": 1 for each in _PLUGIN},
    "vllm-gaudi@0.21.0": 2,
    "vllm-gaudi@0.24.0": 2,
    "vllm-gaudi@0.26.0": 5,
}
# cards and GiB of each
PRODUCTS: Mapping[str, tuple[int, int]] = {
    "hls2": (8, 96),
    "gaudi2e-8": (8, 96),
    "gaudi2e-4": (4, 96),
    "gaudi3-oam": (8, 128),
    "gaudi3-pcie": (8, 128),
}
MODELS: Mapping[str, DrawnModel] = {
    "Qwen/QwQ-32B": DrawnModel("dense", 40, 40960, 65.5, 262),
    "Qwen/Qwen3-8B": DrawnModel("dense", 32, 40960, 16.4, 147, missing=("deepseek_r1",)),
    "meta-llama/Llama-3.1-8B-Instruct": DrawnModel("dense", 32, 131072, 16.1, 131),
    "Qwen/Qwen2-72B-Instruct": DrawnModel("dense", 64, 32768, 145.4, 328),
    "Qwen/Qwen3-30B-A3B": DrawnModel("mixture", 32, 40960, 61.1, 98, missing=("deepseek_r1",)),
    "mistralai/Mixtral-8x7B-Instruct-v0.1": DrawnModel("mixture", 32, 32768, 93.4, 131),
    "deepseek-ai/DeepSeek-R1": DrawnModel("mla", 128, 163840, 671.0, 70, half=True),
    "DeepSeek-V2-Lite-Chat": _folder("mla", "DeepSeek-V2-Lite-Chat", 31.4, 31),
    "ibm-granite/granite-4.0-h-small": DrawnModel(
        "hybrid", 32, 131072, 64.4, 16, missing=("deepseek_r1",)
    ),
    "Bamba-9B-v1": _folder(
        "hybrid", "Bamba-9B-v1", 19.6, 12, ("vllm-gaudi@0.26.0", "vllm-gaudi@0.24.0")
    ),
    "Falcon-H1-34B-Instruct": _folder(
        "hybrid", "Falcon-H1-34B-Instruct", 67.3, 147, ("vllm-fork@1.21", "deepseek_r1")
    ),
    "Qwen/Qwen3.5-35B-A3B": DrawnModel(
        "hybrid", 16, 262144, 70.2, 20, missing=(*_FORKS, *_before("0.17.1"))
    ),
    "Qwen/Qwen2.5-VL-7B-Instruct": DrawnModel("vision", 28, 128000, 16.6, 57),
    "e5-mistral-7b-instruct": _folder("embedding", "e5-mistral-7b-instruct", 14.2, 131),
}
VALUES: Mapping[str, Sequence[str]] = {
    "-n": ("", "1", "2", "4", "4", "8", "3"),
    # round, odd, k, one above and below a block, above most models
    "-l": ("", "", "4096", "16k", "32K", "8k", "5000", "300", "8193", "8191", "2049", "200k"),
    "-i": ("", "", "", "100,2000", "64,1k", "1,4097"),
    "-o": ("", "", "", "50,500", "1,2k"),
    "-t": ("", "", "", "", "8k", "2048", "9001"),
    "-b": ("", "", "1", "8", "33", "128", "256"),
    # the second is longer than most -l
    "-r": (*["", "8,2k", "8,24000", "1,100"] * 4, "8,0"),
    "-d": ("", "", "bf16", "bf16", "fp8", "awq"),
    "--tuning": ("", "", "auto", "reference"),
    "-m": (*[""] * 12, "0,1,2,3", "4-7", "1,0", "5", "0,1,2", "0,9", "3,3"),
    "--memory-utilization": (*[""] * 12, "0.9", "0.5", "1", "0.05", "1.5"),
    "--padding-limit": (*[""] * 12, "0", "0.1", "0.5", "1e-9", "0.7"),
    "--max-prefill-seqs": (*[""] * 12, "1", "4", "16", "300", "0"),
    # exported, one or several
    _EXPORTED: (
        *[""] * 8,
        "VLLM_DECODE_BS_BUCKET_STEP=24",
        "VLLM_PROMPT_BS_BUCKET_MAX=4 VLLM_DECODE_BLOCK_BUCKET_MAX=900",
        "VLLM_PROMPT_SEQ_BUCKET_STEP=256 VLLM_PROMPT_QUERY_BUCKET_STEP=256",
        "VLLM_CONTIGUOUS_PA=true",
        "VLLM_CONTIGUOUS_PA=false VLLM_EXPONENTIAL_BUCKETING=false",
        "VLLM_EXPONENTIAL_BUCKETING=true",
        "VLLM_SKIP_WARMUP=true",
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
        "HABANA_VISIBLE_MODULES=0,1,2,3",
        "VLLM_DECODE_BS_BUCKET_MIN=64 VLLM_DECODE_BS_BUCKET_MAX=2",
        "VLLM_PROMPT_BS_BUCKET_STEP=x",
    ),
    # engine options: one, several, repeated, unknown
    "--": (
        *[""] * 6,
        "--enable-prefix-caching",
        "--no-enable-prefix-caching",
        "--enforce-eager --enable-prefix-caching",
        "--max-model-len 4096 --max-num-seqs 16",
        "--max_num_seqs=8 --max-num-seqs 24 --seed 1 --seed 2",
        "--max-num-batched-tokens 9000 --no-enable-prefix-caching",
        "--swap-spaces 4 --seed 3",
    ),
}
# a combination that must be refused is kept once in this many
_WILD = 12


@dataclass(frozen=True)
class Drawn:
    """One combination: option or dimension -> value, "" where it is left out."""

    values: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")

    def but(self, name: str, value: str) -> Drawn:
        """Return the combination with another value of an option, also after --."""
        words = self.after
        if name != "--" and name in words:
            at = len(words) - 1 - words[::-1].index(name)
            words[at : at + 2] = [name, value] if value else []
            name, value = "--", " ".join(words)
        return Drawn({**self.values, name: value})

    @property
    def after(self) -> list[str]:
        """Return the options and values after --, with hyphens."""
        return self["--"].replace("_", "-").replace("=", " ").split()

    @property
    def engine(self) -> str:
        return self["--engine"]

    @property
    def model(self) -> DrawnModel:
        return MODELS[self["-w"].rpartition("models/")[2]]

    @property
    def gigabytes(self) -> float:
        """Return the GB of the weights in the data type of -d."""
        halved = self["-d"] == "fp8" and not self.model.half
        return self.model.gigabytes / (1 + halved)

    @property
    def machine(self) -> tuple[int, int]:
        return PRODUCTS[self["--machine"].partition(":")[2]]

    @property
    def cards(self) -> int:
        """Return the number of cards; 0 where the program chooses them."""
        if self["-n"]:
            return int(self["-n"])
        return len(self.modules) or 8 * (self.engine == "deepseek_r1")

    @property
    def modules(self) -> list[int]:
        # a range has two modules or more
        return [int(each) for each in self["-m"].replace("4-7", "4,5,6,7").split(",") if each]

    @property
    def exported(self) -> dict[str, str]:
        return dict(each.split("=") for each in self[_EXPORTED].split())

    def number(self, name: str) -> int:
        """Return the last number of an option, ours or after --; 0 without one."""
        given = _value(self.after, _AFTER.get(name, "")) or self[name].rpartition(",")[2]
        return number(given or "0")

    @property
    def words(self) -> list[str]:
        own = [each for each in self.values.items() if each[1] and each[0] not in (_EXPORTED, "--")]
        return [*chain(*own), *(["--", *self["--"].split()] if self["--"] else [])]

    def ask(self, *command: str) -> Answer:
        """Return the answer of a command with these options and exported variables."""
        with exporting(self.exported):
            return call(*command, *self.words)


def number(text: str) -> int:
    """Return a number of tokens as users write it: 16k, 32K, 4096."""
    scale = {"k": 1000, "K": 1024}.get(text[-1:], 1)
    return round(float(text.rstrip("kK")) * scale)


def draw(rng: random.Random, folder: Path) -> Drawn:
    """Return one combination; the models that are folders are in ``folder``/models."""
    while True:
        model = rng.choice([*MODELS])
        if MODELS[model].config:
            model = str(folder / "models" / model)
        found = {
            "-w": model,
            "--engine": rng.choices([*RELEASES], [*RELEASES.values()])[0],
            "--machine": f"simulated:{rng.choice([*PRODUCTS])}",
            **{name: rng.choice(values) for name, values in VALUES.items()},
        }
        drawn = Drawn(found)
        if not expected(drawn) or rng.randrange(_WILD) == 0:
            return drawn


# What the engine, its start script or the machine refuses, by the id of our refusal. Sources:
# HabanaAI/vllm-fork@aice/v1.22.0:scripts/start_gaudi_vllm_server.sh and
# @deepseek_r1:scripts/quickstart/start_vllm.sh (getopts), vllm-project/vllm@v0.26.0:
# vllm/config/model.py (heads, positions, weights), vllm/config/scheduler.py (tokens of a step),
# vllm-project/vllm-gaudi@v0.26.0:vllm_gaudi/extension/bucketing (chunks of Mamba)
# Classes by release: model_executor/models/registry.py of the fork and of vLLM, the plugin's own
# from v0.14.1 (Mamba) and v0.19.0 (GDN) on
REFUSALS: Mapping[str, Callable[[Drawn], bool]] = {
    "support.refused": lambda d: d.engine in d.model.missing,
    "gaudi.reference": lambda d: d["--tuning"] == "reference" and d.engine not in _FORKS,
    "plan.fork_task": lambda d: d.model.family == "embedding" and d.engine == "deepseek_r1",
    "plan.not_quantised": lambda d: d["-d"] in ("awq", "gptq"),
    "plan.heads": lambda d: d.cards > 0 and d.model.heads % d.cards > 0,
    "plan.no_such_option": lambda d: any(
        d[name] for name in _UNREAD.get((d.engine, d["--tuning"] == "reference"), ())
    ),
    "plan.too_long": lambda d: (
        d.number("-l") > d.model.positions and "ALLOW_LONG" not in d[_EXPORTED]
    ),
    "plan.input_over_length": lambda d: (
        d.model.family != "embedding" and 0 < d.number("-l") <= d.number("-i")
    ),
    "plan.deepseek_platform": lambda d: d.engine == "deepseek_r1" and "gaudi3" in d["--machine"],
    "placement.too_many": lambda d: d.cards > d.machine[0],
    "placement.unknown_modules": lambda d: max(d.modules, default=0) >= d.machine[0],
    "placement.doubled": lambda d: len(set(d.modules)) < len(d.modules),
    "placement.count_differs": lambda d: bool(d.modules) and len(d.modules) != d.cards,
    "plan.fraction": lambda d: (
        d["--padding-limit"] in ("1e-9", "0.7") or d["--memory-utilization"] == "1.5"
    ),
    "plan.buckets_fail": lambda d: (
        # without a list of buckets, the engine may not read it
        "=x" in d[_EXPORTED] and d.model.family != "embedding" and "-eager" not in d["--"]
    ),
    "plan.exponential": lambda d: (
        "VLLM_EXPONENTIAL_BUCKETING=true" in d[_EXPORTED] and d.engine == "vllm-fork@1.21"
    ),
    "placement.too_few_visible": lambda d: "MODULES=0,1,2,3" in d[_EXPORTED] and d.cards > 4,
    "options.refused": lambda d: "--swap-spaces" in d["--"],
    "plan.number": lambda d: d["--max-prefill-seqs"] == "0",
    "plan.reduce_words": lambda d: d["-r"] == "8,0",
    "gaudi.no_padding_limit": lambda d: (
        bool(d["--padding-limit"]) and d.engine in _before("0.21.0")
    ),
    "fit.plan_refused": lambda d: d.gigabytes / (d.cards or d.machine[0]) > d.machine[1] * 1.0737,
}
# right where they are true, and accepted by some releases
ALLOWED: Mapping[str, Callable[[Drawn], bool]] = {
    # less KV cache than one request (_capacity has the engines' places); a quarter is for graphs.
    # A hybrid's block has room for a state in addition to its keys (test_release_plans.py, STATES)
    "fit.plan_refused": lambda d: (
        (1 + (d.model.family == "hybrid"))
        * d.model.kv
        * (d.number("-l") or d.model.positions)
        / 1e6
        > (0.75 * 1.0737 * d.machine[1] * (d.cards or d.machine[0]) - d.gigabytes)
        * float(d["--memory-utilization"] or 1)
    ),
    "plan.input_over_length": lambda d: d.number("-l") <= d.number("-i"),
    # the scripts count cards by -n alone, and refuse a list of another length
    "placement.count_differs": lambda d: d["--tuning"] == "reference" and len(d.modules) > 1,
    # 1.22's extension reads an integer: vllm_hpu_extension/features.py VLLM_PROMPT_BS_BUCKET_LIMIT
    "plan.limit_unknown": lambda d: d.engine in _FORKS and d["--padding-limit"] not in ("", "0"),
    # releases that read these ranges stop where the least is above the most
    "plan.buckets_fail": lambda d: "BUCKET_MIN=64" in d[_EXPORTED] or "=x" in d[_EXPORTED],
    **dict.fromkeys(
        ("gaudi.contiguous", "plan.contiguous"),
        lambda d: "PA=true" in d[_EXPORTED] and "--enable-prefix-caching" in d["--"],
    ),
    "plan.deepseek_machine": lambda d: d.engine == "deepseek_r1" and d.machine[0] < 8,
    "plan.deepseek_cards": lambda d: d.engine == "deepseek_r1" and d.cards != 8,
    # its blocks of states are longer than 128 tokens
    "plan.length_below_block": lambda d: (
        d.model.family == "hybrid" and min(d.number("-l"), d.number("-t")) < 4096
    ),
    "gaudi.tokens_of_chunks": lambda d: d.model.family == "hybrid" and d.number("-t") % 128 > 0,
    # V0 splits no prompt: vllm/config.py SchedulerConfig._verify_args; pooling models of V1 neither
    "gaudi.unchunked_tokens": lambda d: (
        ("vllm-fork" in d.engine or d.model.family == "embedding")
        and 0 < d.number("-t") < (d.number("-l") or d.model.positions)
    ),
    # recommend: no step times of embeddings are published
    "capacity.pooling": lambda d: d.model.family == "embedding",
}


_SIMULATED = "vllm-gaudi@0.26.0"
_BY_SCRIPTS = (
    *("gaudi.reference", "plan.no_such_option", "plan.deepseek_platform"),
    *("plan.reduce_words", "options.refused"),
)
# options that the release reads neither (True) by its start script, nor (False) otherwise
_UNREAD: Mapping[tuple[str, bool], tuple[str, ...]] = {
    ("vllm-fork@1.21", False): ("--padding-limit",),
    ("vllm-fork@1.21", True): ("--padding-limit", "--max-prefill-seqs", "--memory-utilization"),
    ("vllm-fork@1.22", True): ("-i", "-o", "-t", "-r"),
    ("deepseek_r1", False): ("-i", "-o", "-t", "-d"),
    ("deepseek_r1", True): ("-i", "-o", "-t", "-d", "-r", "-m", "--memory-utilization"),
}


def expected(drawn: Drawn) -> list[str]:
    """Return the refusals that this combination must have one of."""
    found = [id for id, holds in REFUSALS.items() if holds(drawn)]
    if drawn["--tuning"] == "reference":
        # the start scripts check their own options only, and ours are read in any case
        return [id for id in found if id in _BY_SCRIPTS]
    return found


@dataclass(frozen=True)
class Answer:
    """Output of a command. ``fault`` is a traceback, "" without one."""

    code: int
    out: str
    err: str
    fault: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def call(*words: str) -> Answer:
    """Return the answer of a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    code, fault = -1, ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run(list(words))
        except Exception:
            fault = traceback.format_exc()
    if "Traceback" in err.getvalue():
        fault = err.getvalue()
    return Answer(code, out.getvalue(), err.getvalue(), fault)


@dataclass
class Report:
    """The walk: drawn, accepted, refused and wrong, with questions to engines."""

    seconds: float = 0.0
    drawn: int = 0
    accepted: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    taken_further: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    compared: int = 0
    not_recorded: int = 0

    def lines(self) -> Iterator[str]:
        """Yield the report."""
        for name in ("--engine", "--machine", "family", *VALUES):
            found = sorted((value, n) for (each, value), n in self.counts.items() if each == name)
            yield f"{name:10} " + ", ".join(f"{value or 'none'} {n}" for value, n in found)
        yield (
            f"drawn {self.drawn}, accepted {self.accepted}, refused {self.refused.total()}, "
            f"lists compared {self.compared} (not recorded {self.not_recorded}), "
            f"further {dict(self.taken_further)}, wrong {len(self.wrong)}, "
            f"{self.seconds / 60:.1f} minutes"
        )
        for id, n in self.refused.most_common():
            # of fewer, a share says little
            finding = " A FINDING: over 10 %" * (self.drawn >= 100 and n > self.drawn / 10)
            yield f"refused {id}: {n}, {n / self.drawn:.1%}{finding}"
        yield from (f"WRONG {each}" for each in self.wrong)


@dataclass(frozen=True)
class Asked:
    """A question to an engine's bucket code, and the plan's answer."""

    line: str
    engine: str
    question: BucketQuestion
    prompt: list[list[int]]
    decode: list[list[int]]

    @property
    def two_sizes(self) -> bool:
        """Return True if prompts count other blocks than decode does.

        vllm-project/vllm-gaudi@v0.21.0:vllm_gaudi/v1/worker/hpu_model_runner.py:2443: a context is
        then padded to target_blocks * (128 // 528) blocks, to no bucket.
        """
        taken = self.question.arguments
        return taken.get("decode_block_size") not in (None, taken["block_size"])

    @property
    def key(self) -> str:
        """Return the question as a short text, without paths."""
        made = record_of("", self.question, {"prompt": [], "decode": []})
        env = {name: value for name, value in made["env"].items() if "BUCKET" in name}
        env.pop("VLLM_BUCKETING_FROM_FILE", None)
        text = json.dumps([self.engine, made["algorithm"], sorted(env.items()), made["args"]])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Walk:
    """One walk in a new ``folder``; ``further`` are the steps of one in twenty."""

    folder: Path
    source: Path | None = None
    recommend: bool = False
    serves: int = 0

    def run(self, seed: int, count: int) -> Report:
        """Draw and judge ``count`` combinations."""
        began, rng, report = time.monotonic(), random.Random(seed), Report()
        _lay(self.folder)
        for _ in range(count):
            drawn, accepted = draw(rng, self.folder), report.accepted
            report.drawn += 1
            report.counts.update((name, drawn[name]) for name in ("--engine", "--machine", *VALUES))
            report.counts[("family", drawn.model.family)] += 1
            line = " ".join([drawn[_EXPORTED], *drawn.words]).strip().replace(f"{self.folder}/", "")
            report.wrong += [f"{line}: {each}" for each in self.judge(drawn, line, report)]
            if report.accepted > accepted and report.accepted % _FURTHER == 1:
                report.wrong += [f"{line}: {each}" for each in self.further(drawn, report)]
        self.compare(report)
        report.seconds = time.monotonic() - began
        return report

    def judge(self, drawn: Drawn, line: str, report: Report) -> Iterator[str]:
        """Yield what is wrong with a combination."""
        planned = drawn.ask("plan", "--json")
        if planned.fault:
            yield f"plan ended with {planned.fault.strip().splitlines()[-1]}"
            return
        if planned.code:
            id = planned.json["error"]["id"]
            report.refused[id] += 1
            yield from _refusal(drawn, planned.json["error"])
            for other in ("warmup", "render script"):
                also = drawn.ask(*other.split())
                if also.fault or (not also.code and other != "warmup"):
                    yield f"plan refuses with {id}, {other} ends with {also.code} {also.fault}"
            return
        report.accepted += 1
        yield from (f"accepted in spite of {id}" for id in expected(drawn))
        plan = planned.json
        yield from _options(drawn, plan)
        yield from _promises(drawn, plan)
        shown = drawn.ask("plan")
        yield from _screen(shown)
        yield from _next(drawn, shown.out, plan)
        yield from self._script(drawn, plan)
        yield from _inspected(drawn, plan)
        yield from _warmup(drawn, plan)
        asked = _question(drawn, line)
        if asked is not None:
            report.asked.append(asked)
            yield from _capacity(asked, plan)
            texts = str([each["message"] for each in plan["warnings"]])
            if asked.two_sizes and "padded to no bucket" not in texts:
                yield "no warning says that contexts have no bucket"
            found, stated = _holes(asked), _stated_holes(plan)
            # the sentence about exported ranges has no number for texts; the scripts' lists, and
            # deepseek_r1's, are the engine's own
            ranges = not asked.decode and "plan.own_buckets" in _warned(plan)
            theirs = drawn["--tuning"] == "reference" or asked.engine == "deepseek_r1"
            if found != stated and not ranges and not theirs:
                yield f"{found} shapes have no bucket, the plan states {stated}"

    def _script(self, drawn: Drawn, plan: Mapping[str, Any]) -> Iterator[str]:
        """Run the rendered script with stand-ins of the engine and of numactl."""
        rendered = drawn.ask("render", "script", "--json")
        if rendered.fault or rendered.code:
            yield f"render script ended with {rendered.code}: {rendered.out} {rendered.fault}"
            return
        script = self.folder / "serve.sh"
        # the interpreter of an engine to install: the stand-in is in PATH
        text = re.sub(
            r"/\S+\.current/venv/bin/python\b", "python3", rendered.json["files"][0]["text"]
        )
        script.write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["bash", str(script)],
            env={"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "HOME": str(self.folder)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        argv, _, environment = done.stdout.partition("\1")
        if argv.split("\0")[1:-1] != plan["argv"][1:]:
            yield f"the script starts other arguments than the plan: {done.stderr.strip()[-200:]}"
        found = dict(each.partition("=")[::2] for each in environment.split("\0"))
        other = sorted(name for name, value in plan["env"].items() if found.get(name) != value)
        for name in other:
            yield f"the script exports {name}={found.get(name)}, the plan {plan['env'][name]}"
        buckets = found.get("VLLM_BUCKETING_FROM_FILE")
        if buckets and plan["buckets"]:
            lines = Path(buckets).read_text(encoding="utf-8").splitlines()
            written = [list(ast.literal_eval(line)) for line in lines if line.startswith("(")]
            # the engine may add buckets, and its smallest one, to those of the file
            known = plan["buckets"]["prompt"] + plan["buckets"]["decode"]
            lost = [each for each in written if each not in known]
            if lost:
                yield f"the engine drops buckets of the script's file: {lost[:3]}"

    def further(self, drawn: Drawn, report: Report) -> Iterator[str]:
        """Yield what is wrong with the answers of recommend and serve."""
        yield from _screen(drawn.ask("warmup"), refused=True)
        if self.recommend:
            report.taken_further["recommend"] += 1
            yield from _recommended(drawn)
        # simulated cards have times for generated text only, and run vLLM's classes of 0.26.0
        able = drawn.model.family != "embedding" and _SIMULATED not in drawn.model.missing
        if able and self.serves > report.taken_further["serve"]:
            report.taken_further["serve"] += 1
            yield from _served(drawn, self.folder)

    def compare(self, report: Report) -> None:
        """Compare the lists with those of the engines' code, or of its record."""
        recorded: dict[str, str] = {}
        if self.source is None and RECORDED.is_file():
            recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))
        if self.source is not None:
            recorded = executed(self.source, report)
        for asked in report.asked:
            theirs = recorded.get(asked.key)
            if theirs is None:
                report.not_recorded += 1
                continue
            report.compared += 1
            if theirs != digest_of(asked.prompt, asked.decode):
                report.wrong.append(f"{asked.line}: the engine's list is another one: {theirs}")


def executed(source: Path, report: Report) -> dict[str, str]:
    """Return the digests of the lists that the engines' own code makes, by question."""
    found: dict[str, str] = {}
    for engine in sorted({each.engine for each in report.asked}):
        asked = [each for each in report.asked if each.engine == engine]
        cases = [
            {"env": dict(each.question.environment), "args": dict(each.question.arguments)}
            for each in asked
        ]
        # one process for each: the engine keeps what it read
        package = asked[0].question.package
        replies = ask_buckets(
            sys.executable, package, [*cases, cases[0]], search=[str(source / engine)], seconds=600
        )
        if not replies.replies:
            report.wrong.append(f"{engine}: its code does not answer: {replies.last_line}")
        for each, reply in zip(asked, replies.replies, strict=False):
            found[each.key] = str(reply)
            if reply and "prompt" in reply:
                # a pooling model has prompts only
                decode = reply["decode"] if each.decode else []
                found[each.key] = digest_of(reply["prompt"], decode)
    return found


def _lay(folder: Path) -> None:
    """Write the models that are folders, and the stand-ins for scripts."""
    for name, model in MODELS.items():
        if model.config:
            path = folder / "models" / name
            path.mkdir(parents=True, exist_ok=True)
            (path / "config.json").write_text(json.dumps(model.config), encoding="utf-8")
            words = {"type": "WordLevel", "vocab": {"Paris": 0}, "unk_token": "Paris"}
            tokenizer = {"added_tokens": [], "model": words}
            (path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
            # weights whose size is not known
            (path / "pytorch_model.bin").touch()
    (folder / "bin").mkdir(exist_ok=True)
    engine = "#!/bin/sh\nprintf '%s\\0' \"$0\" \"$@\"\nprintf '\\1'\nexec env -0\n"
    numactl = '#!/bin/sh\nshift 4\nexec "$@"\n'
    for name, text in (("python3", engine), ("numactl", numactl)):
        (folder / "bin" / name).write_text(text, encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)


def _options(drawn: Drawn, plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options, values and variables that the release does not have."""
    name, _, release = drawn.engine.partition("@")
    argv = plan["argv"]
    if drawn.engine not in _FORKS:
        made = Planned(argv[5:], plan["env"], [], [], None, {})
        yield from (f"the release has no {each}" for each in unread(made, release))
        return
    try:
        parse(release or name, argv[3:])
    except Refused as error:
        yield f"the release's parser says: {error}"
    if drawn["--tuning"] == "reference" or drawn.engine == "deepseek_r1":
        # those of the start script
        return
    # read by PyTorch's gloo, HCCL, Gaudi's driver and the tokenizers
    known = {"GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "HLS_MODULE_ID", "TOKENIZERS_PARALLELISM"}
    known |= BELOW | {*variable_table(f"vllm-fork-{release or name}")}
    yield from (f"the release has no {each}" for each in plan["env"] if each not in known)


def _value(argv: Sequence[str], name: str) -> str:
    """Return the last value of an option; "" without one."""
    found = [after for word, after in pairwise(argv) if word.replace("_", "-") == name]
    return found[-1] if found else ""


def _promises(drawn: Drawn, plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the user gave and the plan does not have, and what does not add up."""
    argv, cards = plan["argv"], len(plan["modules"])
    if drawn.cards and cards != drawn.cards:
        yield f"-n {drawn.cards}, planned on {cards} cards"
    if int(_value(argv, "--tensor-parallel-size") or 1) != cards:
        yield f"{cards} cards, --tensor-parallel-size {_value(argv, '--tensor-parallel-size')}"
    if drawn.modules and drawn.modules != plan["modules"]:
        yield f"-m {drawn['-m']}, planned on {plan['modules']}"
    share = _value(argv, "--gpu-memory-utilization")
    if drawn["--memory-utilization"] not in ("", share):
        yield f"--memory-utilization {drawn['--memory-utilization']}, planned {share}"
    for flag, option in (("-l", "--max-model-len"), ("-b", "--max-num-seqs")):
        planned, block = int(_value(argv, option) or 0), 128
        if drawn.number(flag) and not drawn.number(flag) <= planned < drawn.number(flag) + block:
            yield f"{flag} {drawn.number(flag)}, planned {option} {planned}"
    length = drawn.number("-r")
    reached = int(_value(argv, "--max-model-len") or 0)
    said = _warned(plan)
    if length > reached and "plan.reduce_beyond" not in said:
        yield f"-r {drawn['-r']} is beyond the length {reached} without a warning"
    writes = drawn.model.family != "embedding"
    if writes and drawn.number("-o") >= reached and "plan.length_rule" not in said:
        yield f"-o {drawn['-o']} is beyond the length {reached} without a warning"
    memory = {} if drawn["--tuning"] == "reference" else plan["memory"] or {}
    used = sum(memory.get(part, 0) for part in ("weights", "activations", "graphs", "kv"))
    if memory and used > memory["card"] + 0.5:
        yield f"the parts of the memory are more than the card: {memory}"


_ID = re.compile(r"\b[a-z_0-9]+\.[a-z_0-9]+\b")


def _raw_ids(text: str) -> list[str]:
    known = messages.catalogue("en")
    return [word for word in _ID.findall(text) if word in known]


def _screen(answer: Answer, refused: bool = False) -> Iterator[str]:
    """Yield the ids, missing values and tracebacks of a screen.

    ``refused``: it may be an error.
    """
    if answer.fault or (answer.code and not refused):
        yield f"the screen ended with {answer.code}: {answer.err[-300:]} {answer.fault}"
    shown = answer.out + answer.err
    yield from (f"the screen shows the id {each}" for each in _raw_ids(shown))
    if re.search(r"\bNone\b|\bnan\b|\{[a-z_]+\}", shown):
        yield "the screen shows None, nan or a placeholder"


def _next(drawn: Drawn, shown: str, plan: Mapping[str, Any]) -> Iterator[str]:
    """Plan the command of the line ``next:``, which must start the same."""
    if "\nnext: gaudi-launch " not in shown and plan["verdict"] != "refused":
        yield "no line next:"
    found = re.search(r"^next: gaudi-launch serve (.*)$", shown, re.MULTILINE)
    if found is None:
        return
    with exporting(drawn.exported):
        answer = call("plan", "--json", "--machine", drawn["--machine"], *shlex.split(found[1]))
    if answer.code or answer.json["argv"] != plan["argv"]:
        yield f"the line next: starts something else: {found[1]}"


def _inspected(drawn: Drawn, plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the facts of the model that inspect states otherwise."""
    answer = call("inspect", drawn["-w"], "--json")
    if answer.fault or answer.code:
        yield f"inspect ended with {answer.code}: {answer.out} {answer.fault}"
        return
    found = answer.json
    for name in ("parameters", "layers", "heads", "kv_heads", "max_position_embeddings"):
        if found[name] != plan["model"][name]:
            yield f"inspect has {name} {found[name]}, plan {plan['model'][name]}"


def _warmup(drawn: Drawn, plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield what warmup states otherwise than plan: graphs, lengths, blocks."""
    answer = drawn.ask("warmup", "--json")
    pools = plan["buckets"] and not plan["buckets"]["decode"]
    if answer.fault or (answer.code and plan["buckets"] is not None and not pools):
        yield f"warmup ended with {answer.code}: {answer.out[:300]} {answer.fault}"
        return
    if answer.code:
        return
    found, argv = answer.json, plan["argv"]
    chosen = next(each for each in found["plans"] if each["chosen"])
    graphs = [chosen["prompt_graphs"], chosen["decode_graphs"]]
    ours = plan["buckets"] and [len(plan["buckets"][each]) for each in ("prompt", "decode")]
    if ours and graphs != ours:
        yield f"warmup has {graphs} graphs, plan {ours}"
    limits = found["limits"]
    for name, option in (("max_model_len", "--max-model-len"), ("max_num_seqs", "--max-num-seqs")):
        if str(limits[name]) != _value(argv, option):
            yield f"warmup has {name} {limits[name]}, plan {_value(argv, option)}"
    blocks = limits["cache_blocks"] or limits["num_blocks"]
    if plan["num_blocks"] and blocks != plan["num_blocks"]:
        yield f"warmup has {blocks} KV blocks, plan {plan['num_blocks']}"
    if drawn["--tuning"] != "reference" and chosen["uncovered"] != _stated_holes(plan):
        yield f"warmup has {chosen['uncovered']} uncovered shapes, plan {_stated_holes(plan)}"


def _warned(plan: Mapping[str, Any]) -> dict[str, str]:
    return {each["id"]: each["message"] for each in plan["warnings"]}


def _stated_holes(plan: Mapping[str, Any]) -> int:
    """Return the number of shapes without a bucket in the plan's warnings."""
    return int(_NUMBER.findall(_warned(plan).get("plan.uncovered", "0").replace(",", ""))[0])


def _question(drawn: Drawn, line: str) -> Asked | None:
    """Return a plan's question to its engine's bucket code; None if no warm-up."""
    scripted = drawn["--tuning"] == "reference"
    if scripted and (drawn["-r"] or drawn.engine != "vllm-fork@1.21"):
        # 1.21 compiles a part of the list. The scripts of 1.22 and deepseek_r1 set limits since
        # vllm-fork pulls 1986 and 2029, for vllm-hpu-extension pulls 371 and 379; the branches at
        # f5f9ecb and 0bc6b42 are older. tests/data/parity/buckets has lists of the later texts
        return None
    given: dict[str, Any] = {"extra": tuple(drawn["--"].split())}
    for each in fields(LaunchOptions):
        option = option_of(each)
        for name in option.names if option else ():
            if drawn[name]:
                given[each.name] = drawn[name]
    with exporting(drawn.exported):
        checked = checked_plan(LaunchOptions(**given))
    question, buckets = question_of(checked), checked.plan.buckets
    if question is None or buckets is None:
        return None
    return Asked(line, drawn.engine, question, buckets.prompt, buckets.decode)


def _capacity(asked: Asked, plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield if the cache has less than one request of the model's length.

    vLLM 0.26.0:vllm/v1/core/kv_cache_utils.py _check_enough_kv_cache_memory;
    HabanaAI/vllm-fork@277a33cd9:vllm/worker/hpu_worker.py raise_if_cache_size_invalid: it ends.
    """
    taken = asked.question.arguments
    block = taken.get("decode_block_size") or taken["block_size"]
    if plan["num_blocks"] and plan["num_blocks"] * block < taken["max_model_len"]:
        yield f"{plan['num_blocks']} blocks of {block} tokens are less than one request"


def _holes(asked: Asked) -> int:
    """Enumerate the engine's shapes, and return the number without a bucket.

    Prompts are padded to blocks, alone and together within the tokens of a step, whose own number
    is the length of a piece. Decoding sequences name any number of blocks: by ID, or without
    shared prefixes, those of the cache; else up to three times as many
    (vllm-gaudi@v0.26.0:vllm_gaudi/extension/bucketing/exponential.py), and all of them where the
    engine does not cut there. The forks' lowest free ID is taken first
    (HabanaAI/vllm-fork@277a33cd9, 17a7946f4 and 016b6bd20:vllm/core/block/naive_block.py, heappop),
    so that no ID is above the blocks in use.
    """
    taken = asked.question.arguments
    block, length = taken["block_size"], taken["max_model_len"]
    budget, seqs = taken["max_num_batched_tokens"], taken["max_num_seqs"]
    found, blocks = 0, -(-length // block)
    lengths = {min(each * block, budget) for each in range(1, blocks + 1)}
    for batch in range(1, min(seqs, taken["max_num_prefill_seqs"]) + 1):
        for tokens in lengths:
            fits = batch * tokens <= budget
            if fits and not any(b >= batch and q >= tokens for b, q, _ in asked.prompt):
                found += 1
    if asked.engine not in _FORKS and not asked.two_sizes:
        found += sum(_behind(asked, context) for context in range(1, -(-(length - 1) // block) + 1))
    if not asked.decode:
        return found
    contiguous = _contiguous(asked)
    most = _named(asked)
    if contiguous and asked.engine not in _FORKS:
        # a block's ID is any of the cache, however few are in use
        most = taken["num_hpu_blocks"]
    blocks = -(-length // (taken.get("decode_block_size") or block))
    for batch in range(1, seqs + 1):
        longest = max((context for b, _, context in asked.decode if b >= batch), default=0)
        top = most if contiguous else min(most, batch * blocks)
        found += sum(context > longest for context in range(batch, top + 1))
    return found


def _behind(asked: Asked, context: int) -> int:
    """Return how many lengths behind a context, in blocks, have no bucket."""
    taken = asked.question.arguments
    block = taken["block_size"]
    before = (context - 1) * block + 1
    top = min(taken["max_num_batched_tokens"], taken["max_model_len"] - before)
    rest = (min(each * block, top) for each in range(1, -(-top // block) + 1))
    return sum(not any(q >= each and c >= context for _, q, c in asked.prompt) for each in rest)


def _contiguous(asked: Asked) -> bool:
    default = "true" if "vllm-fork" in asked.engine else "false"
    chosen = asked.question.environment.get("VLLM_CONTIGUOUS_PA", default)
    return chosen.lower() in ("1", "true") and not asked.question.arguments["prefix_caching"]


def _named(asked: Asked) -> int:
    """Return the most blocks that a decode step can name."""
    taken = asked.question.arguments
    worst = taken["max_num_seqs"] * -(-taken["max_model_len"] // taken["block_size"])
    if not taken["prefix_caching"] or asked.engine in _FORKS:
        return int(min(worst, taken["num_hpu_blocks"]))
    if taken["skip_decode_block_clamp"]:
        return int(worst)
    return int(max(min(worst, 3 * taken["num_hpu_blocks"]), taken["max_num_seqs"]))


# an option and a value for it in a message: "-n 4"; an option alone: "Leave -d out", "Raise -t"
_GIVE = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*) ([0-9][\w,.]*|auto|vllm-gaudi)\b")
_ALONE = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)\b")
_ENGINE = re.compile(r"vllm-(?:fork|gaudi)@[0-9.]*[0-9]")
# with the commas of thousands
_NUMBER = re.compile(r"\b[0-9]+(?:,[0-9]{3})*\b")
# "Unset A, B", "Export A=1"
_EXPORT = re.compile(r"(?:nset|xport) ((?:[A-Z][A-Z_]+(?:, )?)+)=?((?<==)\w+|)")


def _remedies(drawn: Drawn, text: str) -> Iterator[Drawn]:
    """Yield the combination changed as a message says, one change after the other."""
    advice = text.partition(" (--force")[0].rstrip().rpartition(". ")[2]
    for engine in _ENGINE.findall(text):
        if engine in RELEASES and engine != drawn.engine:
            yield drawn.but("--engine", engine)
    for option, value in _GIVE.findall(advice):
        if option in (*drawn.values, *drawn.after):
            placed = drawn.but("-m", "") if "in place of -m" in advice else drawn
            yield placed.but(option, "vllm-gaudi@0.26.0" if value == "vllm-gaudi" else value)
    yield from _exports(drawn, text)
    for wrong in re.findall(r"^(--\S+) would end", text):
        near = re.findall(r"nearest name is (--[a-z-]*[a-z])", text)
        yield drawn.but("--", drawn["--"].replace(wrong, near[0])) if near else drawn.but(wrong, "")
    if "larger cards" in text:
        yield drawn.but("--machine", "simulated:gaudi3-oam").but("-n", "8")
    yield from _lengths(drawn, advice, text)
    named = [name for name in _ALONE.findall(advice) if name in (*drawn.values, *drawn.after)]
    if "eave" in advice:
        for name in [*named, *_ALONE.findall(text)][:1]:
            yield drawn.but(name, "")


def _exports(drawn: Drawn, text: str) -> Iterator[Drawn]:
    """Yield the combination with the variables that a message unsets or exports."""
    # "A is exported; ... Unset it."
    text = re.sub(r"^(\w+)(.*)nset it\.", r"\1\2nset \1.", text)
    for names, value in _EXPORT.findall(text):
        changed = dict.fromkeys(names.strip(", ").split(", "), value)
        rest = {**drawn.exported, **changed}
        kept = [f"{name}={each}" for name, each in rest.items() if each or name not in changed]
        yield drawn.but(_EXPORTED, " ".join(kept))


def _lengths(drawn: Drawn, advice: str, text: str) -> Iterator[Drawn]:
    """Yield the combination with a length of the message raised or lowered."""
    # smaller numbers are cards and values of variables
    found = [int(each.replace(",", "")) for each in _NUMBER.findall(text)]
    numbers = [each for each in found if each >= 128]
    for verb, pick in (("aise", max), ("ower", min)):
        for option in re.findall(rf"{verb} (--?[a-z][a-z-]*)", advice) if numbers else ():
            low = "1," if "," in drawn[option] or option == "-i" else ""
            yield drawn.but(option, f"{low}{pick(numbers) - (verb == 'ower' and low != '')}")


def _refusal(drawn: Drawn, error: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a refusal is wrong: nothing would fail, or its remedy does not help."""
    id = error["id"]
    rules = [each[id] for each in (REFUSALS, ALLOWED) if id in each]
    if not rules:
        yield f"refused by {id}, for which no rule is known: {error['message']}"
    elif not any(holds(drawn) for holds in rules):
        yield f"refused by {id} without a reason: {error['message']}"
    yield from (f"the refusal shows the id {each}" for each in _raw_ids(error["message"]))
    known, changed = {error["message"]}, drawn
    for _ in range(6):
        for candidate in _remedies(changed, error["message"]):
            answer = candidate.ask("plan", "--json")
            if not answer.code:
                return
            if answer.json["error"]["message"] not in known:
                changed, error = candidate, answer.json["error"]
                known.add(error["message"])
                break
        else:
            yield f"the remedy gives no plan: {error['message']}"
            return


def _recommended(drawn: Drawn) -> Iterator[str]:
    """Plan the command that recommend prints, which must start what it planned."""
    goal = [drawn["-w"], "--machine", drawn["--machine"], "--engine", drawn.engine]
    yield from _screen(call("recommend", *goal), refused=True)
    answer = call("recommend", "--json", *goal)
    if answer.fault:
        yield f"recommend ended with {answer.fault.strip().splitlines()[-1]}"
    elif answer.code and "error" not in answer.json:
        if not all(each["why_not"] for each in answer.json["top"]):
            yield "recommend has no answer, and a configuration without a reason"
    elif answer.code:
        error = answer.json["error"]
        cannot = [each for each in (REFUSALS, ALLOWED) if error["id"] in each]
        if not any(each[error["id"]](drawn) for each in cannot):
            yield f"recommend is refused by {error['id']}: {error['message']}"
    else:
        found, words = answer.json, answer.json["command"][2:]
        again = call("plan", "--json", *words, "--machine", drawn["--machine"])
        if again.code:
            yield f"the recommended command is refused: {again.json['error']['message']}"
            return
        for name in ("argv", "buckets", "modules", "memory", "num_blocks"):
            if found["plan"][name] != again.json[name]:
                yield f"recommend has another {name} than the plan of its command"


def _served(drawn: Drawn, folder: Path) -> Iterator[str]:
    """Serve a combination on simulated cards to an answer, and compare with its plan."""
    drawn = drawn.but("--engine", "simulated").but("--tuning", "").but("-d", "")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = ["-p", str(free.getsockname()[1]), "--time-scale", "100"]
    words = [*address, *drawn.words]
    planned = call("plan", "--json", *words)
    if planned.code:
        yield f"the simulated plan ended with {planned.code}: {planned.out[:300]}"
        return
    serve = [sys.executable, "-m", "gaudi_launch", "serve", "--name", "walk", "--detach", *words]
    done = subprocess.run(serve, capture_output=True, text=True, timeout=1200, check=False)
    if done.returncode:
        yield f"serve ended with {done.returncode}: {done.stdout[-300:]} {done.stderr[-300:]}"
        return
    kept = folder / "state" / "gaudi-launch" / "services" / "walk" / "plan.json"
    found, plan = json.loads(kept.read_text(encoding="utf-8")), planned.json
    for name in ("argv", "modules", "buckets", "memory", "num_blocks"):
        if found[name] != plan[name]:
            yield f"serve has {name} {str(found[name])[:200]}, plan {str(plan[name])[:200]}"
    listed = requests.get(f"{plan['url']}/v1/models", timeout=60).json()["data"][0]
    if str(listed["max_model_len"]) != _value(plan["argv"], "--max-model-len"):
        yield f"it serves {listed['max_model_len']} tokens, plan {plan['argv']}"
    pooling = plan["buckets"] and not plan["buckets"]["decode"]
    route, asked = "completions", {"prompt": "The capital of France is", "max_tokens": 4}
    if pooling:
        route, asked = "embeddings", {"input": "Paris"}
    body = {"model": _value(plan["argv"], "--served-model-name") or drawn["-w"], **asked}
    answer = requests.post(f"{plan['url']}/v1/{route}", json=body, timeout=120)
    if not answer.ok:
        yield f"it answers {answer.status_code}: {answer.text[:300]}"
    call("stop", "walk", "--drain", "0")


def main() -> int:
    """Print the report; return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--recommend", action="store_true")
    parser.add_argument("--serve", type=int, default=0)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, alone(Path(folder), engines=options.serve > 0):
        walk = Walk(Path(folder), options.source, options.recommend, options.serve)
        report = walk.run(options.seed, options.count)
        if options.record and options.source is not None:
            made = json.dumps(executed(options.source, report), sort_keys=True)
            RECORDED.write_bytes(gzip.compress(made.encode(), mtime=0))
    print("\n".join(report.lines()))
    return int(bool(report.wrong))


@contextlib.contextmanager
def alone(folder: Path, *, engines: bool = False) -> Iterator[None]:
    """Give this process new folders, no network and no engine variables.

    ``engines``: those that `setup` installed stay.
    """
    before = dict(os.environ)
    for name in [*os.environ]:
        if name.startswith(("VLLM_", "PT_HPU_", "HABANA_", "GAUDI_", "QUANT", "HF_")):
            del os.environ[name]
    for kind in ("STATE", "CACHE", "CONFIG", *(() if engines else ("DATA",))):
        os.environ[f"XDG_{kind}_HOME"] = str(folder / kind.lower())
    os.environ |= {"HF_HUB_OFFLINE": "1", "LC_ALL": "C.UTF-8"}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    raise SystemExit(main())
