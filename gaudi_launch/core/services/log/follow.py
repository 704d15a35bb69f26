"""An engine's log as phases and progress.

Pure: text and the time go in, a frozen LaunchProgress comes out.

Lines are those of vLLM's Gaudi fork (1.21, 1.22, deepseek_r1), today's vllm-gaudi plugin, upstream
vLLM and TGI; each rule below names the line's source file in one of them. A log may contain
anything: unrecognised lines are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from gaudi_launch.core.services.log.line import json_message, uncarried

_MOST_LINE = 65_536
_MOST_WARNINGS = 200
# api_server.py and uvicorn; TGI's router says Connected, TEI's Ready; Ray Serve's own lines
# (ray: serve/_private/api.py, serve/scripts.py)
READY = re.compile(
    r"Application startup complete|Uvicorn running on http|\bConnected\s*$|\.rs:\d{1,6}: Ready$"
    r"|Application '[^']{0,200}' is ready at http|Deployed app '[^']{0,200}' successfully"
)
STOPPING = re.compile(r"Shutting down|Shutdown initiated")
# lines of other ranks repeat rank 0's; V0's rank 0 has no prefix, V1's is Worker_TP0 (or plain
# Worker)
_COUNTED = re.compile(r"^(APIServer\w*|EngineCore(_(DP)?0)?|Worker(_DP0)?(_PP0)?(_TP0)?(_EP0)?)$")
_RANK = re.compile(r"^(?:EngineCore|\w{0,40}Worker)")

# the forks and the plugin warm up prompts first (hpu_model_runner.py warmup_model, warmup_graphs)
_WARMUP_ORDER = ("warmup_prompt", "warmup_decode")

Facts = Mapping[str, "str | int | float"]


@dataclass(frozen=True)
class LaunchPhase:
    """One phase of a launch: name, begin, end (None: it lasts), number of items."""

    name: str
    begin: float
    end: float | None = None
    items: int = 0


@dataclass(frozen=True)
class LaunchProgress:
    """The state of a launch.

    ``done`` of ``total`` items of the phase (0: unknown), ``bucket`` the last one as text.
    ``left_seconds`` is for this phase and the warm-up phases that are planned after it, from the
    items done so far; None until two are done.
    ``facts`` are values from the log: num_blocks, cpu_blocks, max_concurrency, usable_gib, kv_gib,
    graphs_prompt, graphs_decode, warmup_seconds, init_seconds, port, ... ``warnings`` are shapes
    that compiled at run time.
    """

    phase: str = "start"
    done: int = 0
    total: int = 0
    bucket: str = ""
    left_seconds: float | None = None
    facts: Facts = field(default_factory=dict)
    phases: tuple[LaunchPhase, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class PhaseItem:
    """One item of a phase: its number (from 1), the total, and its bucket as text.

    ``begun``: it only began, and the one before is finished.
    """

    number: int
    total: int
    bucket: str = ""
    begun: bool = False

    @property
    def finished(self) -> int:
        return self.number - int(self.begun)


class Follower:
    """Follows a log that is fed as it grows, in any pieces."""

    def __init__(self, planned: Mapping[str, int] | None = None) -> None:
        """Follow a log; ``planned`` are items of the warm-up phases, where known.

        The phases are ``warmup_prompt`` and ``warmup_decode``.
        """
        self.progress = LaunchProgress()
        self._line = ""
        self._planned = planned or {}
        # of the current warm-up phase, or of the one before until two items are done
        self._item_seconds: float | None = None
        # items finished when the phase's first was seen, and when that was: the speed is measured
        # from there
        self._first: tuple[int, float] | None = None

    def feed(self, text: str, now: float) -> LaunchProgress:
        """Read more text of the log; return the progress after it.

        ``now`` is in seconds of any clock.
        """
        # a progress bar ends its lines with CR
        pieces = text.replace("\r", "\n").split("\n")
        for piece in pieces[:-1]:
            self._take((self._line + piece)[:_MOST_LINE], now)
            self._line = ""
        self._line = (self._line + pieces[-1])[:_MOST_LINE]
        return self.progress

    def _take(self, raw: str, now: float) -> None:
        if not self.progress.phases:
            self.enter("start", now)
        line, _, who = uncarried(raw)
        # a message may contain several lines; the first states its subject
        line = json_message(line.strip()).partition("\n")[0]
        rules = _RULES
        if who and not _COUNTED.match(who):
            # another rank's progress repeats rank 0's, but it may be the only one that fails; a
            # replica of Ray Serve is replaced when it fails
            rules = _FAILURES if _RANK.match(who) else ()
        for expression, act in rules:
            found = expression.search(line)
            if found is not None:
                act(self, found, now)
                return

    def enter(self, phase: str, now: float) -> None:
        """Begin a phase, if it is not the current one; ended ones keep their times."""
        progress = self.progress
        if progress.phase == phase and progress.phases:
            return
        phases = list(progress.phases)
        if phases and phases[-1].end is None:
            phases[-1] = replace(phases[-1], end=now)
        phases.append(LaunchPhase(phase, now))
        self._first = None
        if not (phase in _WARMUP_ORDER and progress.phase in _WARMUP_ORDER):
            self._item_seconds = None
        self.progress = replace(
            progress,
            phase=phase,
            done=0,
            total=0,
            bucket="",
            left_seconds=None,
            phases=tuple(phases),
        )

    def item(self, phase: str, item: PhaseItem, now: float) -> None:
        """Record that a phase is at this item."""
        self.enter(phase, now)
        number, total, finished = item.number, item.total, item.finished
        phases = list(self.progress.phases)
        first, since = self._first = self._first or (finished, now)
        phases[-1] = replace(phases[-1], items=max(phases[-1].items, number))
        if first < finished <= total and now > since:
            self._item_seconds = (now - since) / (finished - first)
        left = None
        if self._item_seconds is not None and finished <= total:
            left = self._item_seconds * (total - finished + self._items_after(phase))
        self.progress = replace(
            self.progress,
            done=number,
            total=total,
            bucket=item.bucket,
            left_seconds=left,
            phases=tuple(phases),
        )

    def _items_after(self, phase: str) -> int:
        """Return the number of planned items of the warm-up phases after this one."""
        if phase not in _WARMUP_ORDER:
            return 0
        later = _WARMUP_ORDER[_WARMUP_ORDER.index(phase) + 1 :]
        return sum(self._planned.get(each, 0) for each in later)

    def know(self, **facts: str | int | float) -> None:
        self.progress = replace(self.progress, facts={**self.progress.facts, **facts})

    def warn(self, line: str) -> None:
        if len(self.progress.warnings) < _MOST_WARNINGS:
            self.progress = replace(self.progress, warnings=(*self.progress.warnings, line[:300]))


_Act = Callable[[Follower, "re.Match[str]", float], None]
_WARMUP_PHASES = {
    "prompt": "warmup_prompt",
    "decode": "warmup_decode",
    "graph/prompt": "graph_prompt",
    "graph/decode": "graph_decode",
    "multimodal": "multimodal",
    "graph/multimodal": "multimodal",
}


def _integer(text: str) -> int:
    return int(text.replace(",", "")[:18] or 0)


def _gib(text: str, unit: str) -> float:
    scale = {"B": 2**-30, "KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0, "TiB": 1024.0}
    return round(float(text) * scale[unit], 4)


def _warmup(follower: Follower, found: re.Match[str], now: float) -> None:
    kind = found["kind"].lower().split("(")[0]
    phase = _WARMUP_PHASES.get(kind)
    if phase is None:
        return
    # the 1.22 fork warms and captures in one pass, and writes Graph/prompt for it
    if found["kind"].startswith("Graph/") and found["kind"][6:7].islower():
        phase = phase.replace("graph_", "warmup_")
    bucket = " ".join(
        re.findall(
            r"(?:batch_size|seq_len|query_len|num_blocks|resolution|img_args):\S+", found["rest"]
        )
    )
    # hpu_model_runner.py calls log_warmup before it warms up the graph
    item = PhaseItem(_integer(found["done"]), _integer(found["total"]), bucket, begun=True)
    follower.item(phase, item, now)


def _bar(follower: Follower, found: re.Match[str], now: float) -> None:
    phase = "warmup_prompt" if found["kind"] == "Prompt" else "warmup_decode"
    done, total = _integer(found["done"]), _integer(found["total"])
    progress = follower.progress
    # every rank draws bars, and none has a prefix: a bar that is not the foremost is another rank's
    if phase == "warmup_prompt" and any(each.name == "warmup_decode" for each in progress.phases):
        return
    if progress.phase != phase or done > progress.done:
        follower.item(phase, PhaseItem(done, total), now)


def _shards(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.item("load", PhaseItem(_integer(found["done"]), _integer(found["total"])), now)


def _captured(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.know(**{f"captured_{found['kind'].lower()}": _integer(found["count"])})


def _generated(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.know(**{f"graphs_{found['kind'].lower()}": _integer(found["count"])})


def _memory(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.enter("profile", now)
    for name in ("free", "usable", "graphs", "kv"):
        follower.know(**{f"{name}_gib": _gib(found[name], found[f"{name}_unit"])})


def _value(text: str) -> str | int | float:
    number = text.replace(",", "")
    if number.isdecimal():
        return _integer(number)
    try:
        return float(number)
    except ValueError:
        return text


def _knows(phase: str = "") -> _Act:
    """Return what keeps each named group of a rule as a fact, and enters a phase."""

    def act(follower: Follower, found: re.Match[str], now: float) -> None:
        follower.know(**{name: _value(text) for name, text in found.groupdict().items()})
        if phase:
            follower.enter(phase, now)

    return act


def _phase(name: str) -> _Act:
    def act(follower: Follower, found: re.Match[str], now: float) -> None:
        follower.enter(name, now)

    return act


def _failed(follower: Follower, found: re.Match[str], now: float) -> None:
    # an ordered stop of V1 prints an EngineDeadError too (seen with vLLM's CPU build)
    if follower.progress.phase not in ("stopping", "ready"):
        follower.enter("failed", now)


def _run_time(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.warn(found[0])


def _size(name: str) -> str:
    return rf"(?P<{name}>-?\d+(?:\.\d+)?(?:e[+-]?\d+)?) (?P<{name}_unit>B|KiB|MiB|GiB|TiB)"


_RULES: tuple[tuple[re.Pattern[str], _Act], ...] = tuple(
    (re.compile(expression), act)
    for expression, act in (
        # hpu_model_runner.py log_warmup, all forks; the plugin in developer mode
        (
            r"\[Warmup\]\[(?P<kind>[A-Za-z/]+(?:\([^)]*\))?)\]\[(?P<done>\d+)/(?P<total>\d+)\](?P<rest>.*)",
            _warmup,
        ),
        # the plugin's tqdm bars
        (
            (
                r"^(?P<kind>Prompt|Decode) warmup processing:"
                r".*?(?<!\d)(?P<done>\d{1,9})/(?P<total>\d{1,9})"
            ),
            _bar,
        ),
        (r"(?:Graph/)?(?P<kind>Prompt|Decode) captured:(?P<count>\d+)", _captured),
        (r"Generated (?P<count>\d+) (?P<kind>prompt|decode) buckets", _generated),
        # weight_utils.py
        (
            (
                r"(?:checkpoint shards|Loading weights)"
                r".*?\|\s{0,4}(?P<done>\d{1,9})/(?P<total>\d{1,9})"
            ),
            _shards,
        ),
        (
            r"Loading safetensors checkpoint shards|Starting to load model|Loading weights on ",
            _phase("load"),
        ),
        (
            r"Preparing model with INC|Pre-loading model weights|Wrapping in HPU ?Graph took",
            _phase("load"),
        ),
        # hpu_worker.py, hpu_model_runner.py profile_run
        (
            r"profiling run with max_batch_size|Profile run with bs|Running profile run with",
            _phase("profile"),
        ),
        (
            rf"Free device memory: {_size('free')}, {_size('usable')} usable .*?"
            rf"{_size('graphs')} reserved for HPUGraphs.*?{_size('kv')} reserved for KV cache",
            _memory,
        ),
        (
            r"Model profiling run took|Loading model weights took|Compiling took|Compilation took",
            _phase("profile"),
        ),
        # executor_base.py; upstream kv_cache_utils.py
        (
            r"# (?:hpu|HPU|cpu|CPU) blocks: (?P<num_blocks>\d+), # CPU blocks: (?P<cpu_blocks>\d+)",
            _knows("kv_cache"),
        ),
        (r"(?:GPU|CPU|HPU) KV cache size: (?P<kv_tokens>[\d,]+) tokens", _knows("kv_cache")),
        (
            (
                r"Maximum concurrency for (?P<max_model_len>[\d,]+) tokens per request: "
                r"(?P<max_concurrency>\d[\d,]*(?:\.\d+)?)x"
            ),
            _knows(),
        ),
        (r"Initializing cache engine took", _phase("kv_cache")),
        # the plugin's sampler and defragmenter warm-up
        (
            r"Warming up sampler with batch sizes|Starting sampler warmup|Warming up defragmenter",
            _phase("sampler"),
        ),
        (r"Warmup finished in (?P<warmup_seconds>\d+) secs", _knows()),
        (
            (
                r"init engine \(profile, create kv cache, warmup model\) took "
                r"(?P<init_seconds>\d+(?:\.\d+)?) s"
            ),
            _knows(),
        ),
        # TGI: launcher/src/main.rs, backends/v3/src/lib.rs, flash_causal_lm.py and causal_lm.py of
        # its Gaudi server
        (
            (
                r"Starting check and download process for|: Starting shard|"
                r"^Starting shard$|Download: \["
            ),
            _phase("load"),
        ),
        (r"(?:^|: )Warming up model$", _phase("warmup_prompt")),
        (r"KV-cache blocks: (?P<num_blocks>\d{1,18}), size: \d", _knows()),
        (r"Following prefill warmup successfully", _phase("warmup_decode")),
        (
            r"warmup hpu graph time (?P<warmup_seconds>\d{1,9})s "
            r"warmup shape count (?P<warmup_shapes>\d{1,9})",
            _knows(),
        ),
        (r"Started engine process with PID (?P<engine_pid>\d+)", _knows()),
        # engines/ray_serve/runtime/gaudi_ray_head.py
        (
            (
                r"^gaudi-launch ray: Ray \S+ with (?P<ray_hpus>\d+) HPU, dashboard "
                r"(?P<ray_dashboard>http://127\.0\.0\.1:\d{1,5})$"
            ),
            _knows(),
        ),
        (r"^gaudi-launch ray: token (?P<ray_token>/\S+)", _knows()),
        (
            (
                r"^gaudi-launch ray: deployment \S+ \S+, replicas "
                r"(?P<replicas_running>\d{1,9})/(?P<replicas_wanted>\d{1,9}) running"
            ),
            _knows(),
        ),
        (r"^gaudi-launch ray: Shutting down", _phase("stopping")),
        (r"^gaudi-launch ray: FAILED: ", _failed),
        (r"Starting vLLM (?:API )?server.*? on https?://\S{0,300}:(?P<port>\d{1,5})", _knows()),
        (READY.pattern, _phase("ready")),
        (r"Shutting down FastAPI HTTP server|^INFO:\s+Shutting down$", _phase("stopping")),
        (r"was not warmed-up!|bucket for \(.*\) was not prepared", _run_time),
        (r"^Error: (?:Shard|Webserver|Download|ArgumentValidation|NotEnough)", _failed),
        (
            r"Engine process failed to start|Engine core initialization failed|^FATAL ERROR ::",
            _failed,
        ),
        (
            r"^(?:[A-Za-z_]+\.)*[A-Z]\w*(?:Error|Exception): "
            r"|error: (?:unrecognized|unexpected argument|invalid value|argument|the )",
            _failed,
        ),
    )
)
_FAILURES = tuple(rule for rule in _RULES if rule[1] is _failed)
