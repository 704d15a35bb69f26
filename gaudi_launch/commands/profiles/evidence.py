"""Check an evidence file of an acceptance test, and record it in the repository.

The file becomes one of tests/data/evidence, which a test compares with today's plans; the figures
of real cards become rows of profiles/performance/figures.csv.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.base.yaml_reader import shipped
from gaudi_launch.core.host import snapshot
from gaudi_launch.core.host.accelerators import Accelerator, accelerator_of, accelerators
from gaudi_launch.core.host.files import natural_number
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.hl_smi_text import parse_log, parse_table, parse_topo
from gaudi_launch.core.predict.published import shapes

KIND = "acceptance"
_FOLDER = "tests/data/evidence"
# a figure of one card or group: kind, model and data type of its row, and the figure's statistic
_RATES = {
    "memory_rate": ("bandwidth", "read of a weight", "", "median of the cards"),
    "host_to_card": ("bandwidth", "host to card", "", "median of the cards"),
    "matrix_bf16": ("gemm", "matmul, best of a few", "bf16", "median of the cards"),
    "matrix_fp8": ("gemm", "matmul, best of a few", "fp8", "median of the cards"),
    "sustained": ("gemm", "matmul, sustained", "bf16", "median of the cards"),
    "all_reduce": ("collective", "all_reduce", "float32", "slowest group"),
}
_NOT_SCORED = "not a speed of serving"
_SERVED = {
    "output_tokens_per_second": ("throughput", "output tokens/s", "total", ""),
    "ttft_ms": ("ttft", "ms", "mean", ""),
    "tpot_ms": ("tpot", "ms", "mean", ""),
    "kv_tokens": ("memory", "KV tokens", "total", _NOT_SCORED),
    "warmup_seconds": ("warmup", "s", "total", _NOT_SCORED),
}
_BUCKETS = re.compile(r"Generated (\d+) (prompt|decode) buckets [^:]*: \[(.*)\]")
# a stated share and the value differ by rounding
_ROUNDED = 0.005


@dataclass(frozen=True)
class RecordedEvidence:
    """The file that was written, and the number of new rows."""

    path: Path
    rows: int
    simulated: bool


def read(path: str) -> Mapping[str, Any]:
    """Return the document of a file. Raises LaunchError (USAGE)."""
    try:
        found = mapping(read_json(Path(path)))
    except OSError as error:
        raise file_error("accept.unreadable", error, path, ExitCode.USAGE) from None
    except ValueError as error:
        why = str(error)
        raise LaunchError("accept.unreadable", ExitCode.USAGE, path=path, why=why) from None
    if found.get("kind") != KIND or not isinstance(found.get("figures"), dict):
        why = f"kind != {KIND}"
        raise LaunchError("accept.unreadable", ExitCode.USAGE, path=path, why=why)
    return found


def add(path: str, top: Path) -> RecordedEvidence:
    """Record a file in the repository at ``top``.

    Raises LaunchError (USAGE): outside a clone, for what contradicts itself, and for a file that
    is recorded already.
    """
    document = read(path)
    try:
        found = contradictions(document)
        simulated, name = bool(document["simulated"]), re.sub("[^0-9]", "", document["began"])
        name = f"{'simulated-' * simulated}{document['product']}-{name}.json"
        # figures of simulated cards are not facts about cards
        rows = [] if found or simulated else list(rows_of(document, f"{_FOLDER}/{name}"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise LaunchError("accept.unreadable", ExitCode.USAGE, path=path, why=why) from None
    if found:
        listed = "; ".join(each.render() for each in found)
        raise LaunchError("evidence.contradicts", ExitCode.USAGE, path=path, found=listed)
    target = top / _FOLDER / name
    if not (top / "pyproject.toml").is_file() or not target.parent.is_dir():
        raise LaunchError("evidence.no_clone", ExitCode.USAGE, found=str(top))
    if target.exists():
        raise LaunchError("evidence.known", ExitCode.USAGE, path=str(target))
    figures = top / "profiles/performance/figures.csv"
    try:
        known = figures.read_text(encoding="utf-8")
        more = io.StringIO()
        names = known.partition("\n")[0].split(",")
        csv.DictWriter(more, names, restval="", lineterminator="\n").writerows(rows)
        paths.write_whole(target, json.dumps(document, ensure_ascii=False, indent=1) + "\n")
        paths.write_whole(figures, known + more.getvalue())
    except OSError as error:
        raise file_error("evidence.write", error, target) from None
    return RecordedEvidence(target, len(rows), simulated)


def rows_of(document: Mapping[str, Any], source: str) -> Iterator[dict[str, str]]:
    """Yield rows of figures.csv: rates of cards, and a served model of known sizes."""
    host = snapshot.from_json(document["host"])
    own = {"source": source, "card": document["product"], "software": host.driver_version or ""}
    for step, (kind, model, dtype, statistic) in _RATES.items():
        figure = mapping(mapping(document["figures"]).get(step))
        values = mapping(figure.get("values"))
        if values:
            groups = [len(str(who).split("-")) for who in values]
            value = min(values.values()) if kind == "collective" else median(values.values())
            yield {
                **{**own, "kind": kind, "harness": "acceptance", "model": model, "dtype": dtype},
                **{"cards": str(max(groups)), "value": f"{value:.6g}", "unit": figure["unit"]},
                **{"statistic": statistic, "not_scored": _NOT_SCORED},
            }
    details = _details(document, "served_model")
    name = str(details.get("model", "")).rpartition("/")[2]
    known = max((each for each in shapes() if name.startswith(each)), key=len, default="")
    if not known:
        return
    load = details["load"]
    own |= {"harness": "vllm", "model": known, "software": details["engine"]}
    own |= {"cards": str(len(details["modules"])), "input": str(load["-i"])}
    own |= {"output": str(load["-o"]), "batch": str(load["--concurrency"])}
    own |= {"dtype": {"bfloat16": "bf16"}.get(details["dtype"], details["dtype"])}
    own["requests"] = str(load["--requests"])
    for part, value in document["figures"]["served_model"]["values"].items():
        if part in _SERVED:
            row = dict(zip(("kind", "unit", "statistic", "not_scored"), _SERVED[part], strict=True))
            yield {**own, **row, "value": f"{value:.6g}"}


def _details(document: Mapping[str, Any], step: str) -> Mapping[str, Any]:
    for each in map(mapping, array(document.get("results"))):
        if each.get("name") == step:
            return mapping(each.get("details"))
    return {}


def logged_buckets(document: Mapping[str, Any], step: str) -> dict[str, list[list[int]]]:
    """Return the buckets that the engine logged in a step, by phase."""
    found = {}
    for line in map(str, array(_details(document, step).get("log"))):
        match = _BUCKETS.search(line)
        if match:
            listed = [[int(n) for n in re.findall(r"\d+", each)] for each in match[3].split("),")]
            found[match[2]] = listed
            if len(listed) != int(match[1]):
                found[match[2]] = []
    return found


# --- what contradicts itself ----------------------------------------------------------------------


def contradictions(document: Mapping[str, Any]) -> list[Message]:
    """Return what in a document cannot be true together, or not of its product."""
    product = accelerators().get(str(document.get("product")))
    if product is None:
        return [message("evidence.no_product", found=document.get("product") or "-")]
    host = snapshot.from_json(document.get("host"))
    found = [*_marks(document), *_topology(host, product), *_texts(host, document)]
    return [*found, *_memory(host, product), *_figures(document, host, product)]


def _marks(document: Mapping[str, Any]) -> Iterator[Message]:
    """Yield what a run of simulated cards, or a rehearsal, passes off as real."""
    simulated = document.get("simulated")
    parts = [_details(document, step).get("simulated") for step in ("served_small", "served_model")]
    if simulated not in (True, False) or (not simulated and True in parts):
        yield message("evidence.mark", found=simulated)
    if not simulated and document.get("scale") != 1:
        yield message("evidence.scaled", found=document.get("scale"))


def _topology(host: Host, product: Accelerator) -> Iterator[Message]:
    modules = host.modules
    nodes = {node.id for node in host.numa_nodes}
    fits = (
        accelerator_of(host) == product
        and len(modules) == len(host.cards)
        and all(module < product.cards for module in modules)
        and host.groups == product.groups(modules)
        and {card.numa_node for card in host.cards} <= {None, *nodes}
    )
    if not fits:
        listed = ", ".join(f"{card.product} {card.module}" for card in host.cards)
        yield message("evidence.topology", found=listed, product=product.title)


def _texts(host: Host, document: Mapping[str, Any]) -> Iterator[Message]:
    """Yield where hl-smi's own output differs from what was read of it and of sysfs."""
    texts = {name: str(text) for name, text in mapping(document.get("hl_smi")).items()}
    table, nodes = parse_table(texts.get("table", "")), parse_topo(texts.get("topo -c -N", ""))
    log = parse_log(texts.get("-L", ""))
    modules = {card.index: card.module for card in host.cards}
    memory = {card.index: card.memory_total_mib for card in host.cards}
    numa = {card.module: card.numa_node for card in host.cards}
    pairs: list[tuple[str, object, object]] = [
        (
            "hl-smi -L",
            {index: natural_number(facts.get("Module ID")) for index, facts in log.items()},
            modules,
        ),
        ("hl-smi", {row.index: row.memory_total_mib for row in table.rows}, memory),
        ("hl-smi topo", {row.module: row.numa_node for row in nodes}, numa),
        ("hl-smi", table.driver, host.driver_version),
    ]
    for what, found, expected in pairs:
        if found and found != expected:
            yield message("evidence.text", what=what, found=str(found), expected=str(expected))


def _memory(host: Host, product: Accelerator) -> Iterator[Message]:
    for card in host.cards:
        used, total = card.memory_used_mib or 0, card.memory_total_mib
        if total is not None and (used > total or total != product.memory_total_mib):
            size = product.memory_total_mib
            yield message("evidence.memory", who=card.module, used=used, total=total, size=size)


def _figures(document: Mapping[str, Any], host: Host, product: Accelerator) -> Iterator[Message]:
    """Yield figures above the peak, of unknown cards, or with another share."""
    limits = shipped("acceptance.yaml")
    for step, figure in mapping(document["figures"]).items():
        values, shares = mapping(figure.get("values")), mapping(figure.get("shares"))
        if step.startswith("served"):
            continue
        for who, value in values.items():
            if not {int(each) for each in str(who).split("-")} <= set(host.modules):
                yield message("evidence.no_card", step=step, who=who)
                continue
            share, (least, most) = shares.get(who), _peaks(step, str(who), product, limits)
            shown = {"step": step, "who": who, "value": f"{value:.4g}", "unit": figure["unit"]}
            if value > limits["above_peak"] * most or (share or 0) > limits["above_peak"]:
                yield message("evidence.above_peak", peak=f"{most:.4g}", **shown)
            elif share and not least * (1 - _ROUNDED) <= value / share <= most * (1 + _ROUNDED):
                yield message("evidence.share", share=f"{share:.3g}", **shown)
    for step in ("served_small", "served_model"):
        logged = logged_buckets(document, step)
        graphs = mapping(mapping(document["figures"].get(step)).get("values")).get("graphs")
        if logged and graphs != sum(map(len, logged.values())):
            yield message("evidence.buckets", step=step, graphs=graphs or 0)


def _peaks(
    step: str, who: str, product: Accelerator, limits: Mapping[str, Any]
) -> tuple[float, float]:
    """Return the lowest and highest peak; that of a matrix rate is by the clock."""
    fp8 = step == "matrix_fp8"
    peaks = {
        "clock": product.peak_tflops_fp8 if fp8 else product.peak_tflops_bf16,
        "memory": product.bandwidth_gb_s,
        "size": product.memory_total_mib,
        "group": (product.pair_gb_s or 0) * (len(who.split("-")) - 1),
    }
    kind = limits["limits"].get(step, {}).get("peak")
    peak = peaks.get(kind)
    if not peak:
        return 0.0, float("inf")
    slow, fast = limits["clock_range"] if kind == "clock" else (1.0, 1.0)
    return slow * peak, fast * peak
