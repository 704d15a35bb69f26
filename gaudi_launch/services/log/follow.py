"""An engine's log as phases and progress.

Pure: text and the time go in, a frozen LaunchProgress comes out.

Lines are those of vLLM's Gaudi fork (1.21, 1.22, deepseek_r1), today's vllm-gaudi plugin, upstream
vLLM and TGI; each rule below names the line's source file in one of them. A log may contain
anything: unrecognised lines are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from gaudi_launch.json_values import mapping

_MOST_LINE = 65_536
_MOST_WARNINGS = 200
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\^\[\[[0-9;]*m|\x1b\][^\x07\x1b]{0,512}\x07")
# every repetition is bounded: one hostile line of 64 KiB must not block the launcher

# prefixes of processes: "(name pid=1)" of vLLM and Ray, "[rank0]:" of torch; "(Pdb)" is a debugger
# that waits
_PREFIX = re.compile(
    r"^(?:\((?!Pdb\))(?P<who>[A-Za-z][\w:]*)(?:[ ,]+(?:pid|ip)=[^)]*)?\)|\[rank\d{1,5}\]:)\s?"
)
# prefixes of transports: docker compose, time stamps of docker and kubectl (nine digits; TGI has
# six), kubectl logs --prefix, journalctl in any language (host and unit[pid] after the time)
_CARRIED = re.compile(
    r"^(?:[\w.-]{1,100} {1,100}\| "
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d) "
    r"|\[pod/[^\]\s]{1,300}\] "
    r"|(?:\S{1,10} {1,2}\d{1,2} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S{8,25})"
    r" \S{1,100} [^\s\[\]]{1,100}\[\d{1,10}\]: )"
)
_MOST_CARRIERS = 3
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

    def to_json(self) -> dict[str, str | float | int | None]:
        return {"name": self.name, "begin": self.begin, "end": self.end, "items": self.items}


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


def _said(line: str) -> str:
    """Return the message of a JSON line (TGI with --json-output), or the line."""
    if not line.startswith("{"):
        return line
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return line
    outer = mapping(document)
    message = mapping(outer.get("fields", outer)).get("message")
    # a message may contain several lines; the first states its subject
    if isinstance(message, str):
        return message.strip().split("\n")[0]
    return line


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
        line = _said(_uncarried(_ANSI.sub("", raw).strip()))
        prefix = _PREFIX.match(line)
        rules = _RULES
        if prefix is not None:
            line = line[prefix.end() :]
            if prefix["who"] and not _COUNTED.match(prefix["who"]):
                # another rank's progress repeats rank 0's, but it may be the only one that fails; a
                # replica of Ray Serve is replaced when it fails
                rules = ()
                if _RANK.match(prefix["who"]):
                    rules = _FAILURES
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

    @property
    def was_up(self) -> bool:
        return any(phase.name in ("ready", "stopping") for phase in self.progress.phases)


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


def bare(line: str) -> str:
    """Return a log line without colours, transport prefix and process prefix."""
    return _PREFIX.sub("", _uncarried(_ANSI.sub("", line).strip())).strip()


def _uncarried(line: str) -> str:
    """Return a line as its process wrote it.

    Prefixes stack: compose shows docker's time stamps, too.
    """
    for _ in range(_MOST_CARRIERS):
        found = _CARRIED.match(line)
        if found is None:
            break
        line = line[found.end() :]
    return line


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


def _blocks(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.know(num_blocks=_integer(found["blocks"]), cpu_blocks=_integer(found["cpu"]))
    follower.enter("kv_cache", now)


def _concurrency(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.know(
        max_concurrency=float(found["times"].replace(",", "")),
        max_model_len=_integer(found["tokens"]),
    )


def _memory(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.enter("profile", now)
    for name in ("free", "usable", "graphs", "kv"):
        follower.know(**{f"{name}_gib": _gib(found[name], found[f"{name}_unit"])})


def _tokens(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.know(kv_tokens=_integer(found["tokens"]))
    follower.enter("kv_cache", now)


def _finished(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.know(warmup_seconds=_integer(found["seconds"]))


def _tgi_blocks(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.know(num_blocks=_integer(found["blocks"]))


def _tgi_warm(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.know(
        warmup_seconds=_integer(found["seconds"]), warmup_shapes=_integer(found["shapes"])
    )


def _init(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.know(init_seconds=float(found["seconds"]))


def _listening(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.know(port=_integer(found["port"]))


def _dashboard(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.know(ray_dashboard=found["url"], ray_hpus=_integer(found["hpus"]))


def _ray_token(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.know(ray_token=found["path"])


def _replicas(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.know(
        replicas_running=_integer(found["running"]), replicas_wanted=_integer(found["wanted"])
    )


def _process(follower: Follower, found: re.Match[str], now: float) -> None:
    follower.know(engine_pid=_integer(found["pid"]))


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
        (r"# (?:hpu|HPU|cpu|CPU) blocks: (?P<blocks>\d+), # CPU blocks: (?P<cpu>\d+)", _blocks),
        (r"(?:GPU|CPU|HPU) KV cache size: (?P<tokens>[\d,]+) tokens", _tokens),
        (
            (
                r"Maximum concurrency for (?P<tokens>[\d,]+) tokens per request: "
                r"(?P<times>\d[\d,]*(?:\.\d+)?)x"
            ),
            _concurrency,
        ),
        (r"Initializing cache engine took", _phase("kv_cache")),
        # the plugin's sampler and defragmenter warm-up
        (
            r"Warming up sampler with batch sizes|Starting sampler warmup|Warming up defragmenter",
            _phase("sampler"),
        ),
        (r"Warmup finished in (?P<seconds>\d+) secs", _finished),
        (
            (
                r"init engine \(profile, create kv cache, warmup model\) took "
                r"(?P<seconds>\d+(?:\.\d+)?) s"
            ),
            _init,
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
        (r"KV-cache blocks: (?P<blocks>\d{1,18}), size: \d", _tgi_blocks),
        (r"Following prefill warmup successfully", _phase("warmup_decode")),
        (
            r"warmup hpu graph time (?P<seconds>\d{1,9})s warmup shape count (?P<shapes>\d{1,9})",
            _tgi_warm,
        ),
        (r"Started engine process with PID (?P<pid>\d+)", _process),
        # engines/ray_serve/runtime/gaudi_ray_head.py; Ray Serve's own lines
        # (ray: serve/_private/api.py, serve/scripts.py)
        (
            (
                r"^gaudi-launch ray: Ray \S+ with (?P<hpus>\d+) HPU, dashboard "
                r"(?P<url>http://127\.0\.0\.1:\d{1,5})$"
            ),
            _dashboard,
        ),
        (r"^gaudi-launch ray: token (?P<path>/\S+)", _ray_token),
        (
            (
                r"^gaudi-launch ray: deployment \S+ \S+, replicas "
                r"(?P<running>\d{1,9})/(?P<wanted>\d{1,9}) running"
            ),
            _replicas,
        ),
        (r"^gaudi-launch ray: Shutting down", _phase("stopping")),
        (r"^gaudi-launch ray: FAILED: ", _failed),
        (r"Application '[^']{0,200}' is ready at http", _phase("ready")),
        # api_server.py and uvicorn; TGI's router says Connected
        (r"Starting vLLM (?:API )?server.*? on https?://\S{0,300}:(?P<port>\d{1,5})", _listening),
        (r"Application startup complete|^.*\bConnected\b\s*$", _phase("ready")),
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
