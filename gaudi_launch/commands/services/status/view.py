"""One service with its plan, phases and cards."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.cells import set_cell_size

from gaudi_launch.cli.console import can_show, console, known, table
from gaudi_launch.cli.short_page import NotedRow, ShortPage, next_line
from gaudi_launch.cli.sparkline import sparkline
from gaudi_launch.cli.views.memory_bar import memory_words
from gaudi_launch.cli.views.run_record import run_line
from gaudi_launch.cli.views.services import to_json as service_to_json
from gaudi_launch.commands.services.status.case import ServiceStatus
from gaudi_launch.core.base.durations import duration, rough, span
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.optional import mapped, mean
from gaudi_launch.core.services.history import HistoryPoint
from gaudi_launch.core.services.log.phase_names import phase_text
from gaudi_launch.core.services.state.registry import ServiceRecord, phase


def to_json(status: ServiceStatus) -> dict[str, Any]:
    """Return all facts of a service for programs."""
    service, plan = status.service, status.plan
    if status.history is None:
        found = {}
    else:
        found = {"history": [asdict(point) for point in status.history]}
    # the seconds of the warm-up as measured, and as they were estimated
    facts = service.state.get("facts", {})
    estimate = (plan.get("estimate") or {}).get("warmup_seconds")
    buckets = plan.get("buckets") or {}
    return {
        "schema": 1,
        **service_to_json(service, status.load, time.time()),
        "phases": service.state.get("phases", []),
        "facts": service.state.get("facts", {}),
        "run_time_compiles": service.state.get("run_time_compiles", 0),
        "warmup": {
            "graphs": buckets.get("graphs"),
            "estimated": estimate,
            "seconds": facts.get("warmup_seconds"),
        },
        "cards": [
            {
                "module": card.module,
                "index": card.index,
                "memory_used_mib": card.memory_used_mib,
                "memory_total_mib": card.memory_total_mib,
                "temperature_c": card.temperature_c,
                "utilization_percent": card.utilization_percent,
            }
            for card in status.cards
        ],
        "plan": {
            key: plan.get(key)
            for key in ("dtype", "argv", "env", "cpus", "numa_nodes", "memory", "cache")
        },
        "simulated": service.state.get("simulated") is True,
        "simulated_run": mapped(lambda run: run.to_json(), status.run),
        "ray": mapped(asdict, status.ray),
        "folder": str(service.folder),
        **found,
    }


def show(service: ServiceRecord, document: dict[str, Any], *, complete: bool) -> None:
    """Print what the service does, the next command, its facts and its cards."""
    facts = [(text(f"services.word_{id}"), value) for id, value in _facts(service, document)]
    if complete:
        facts.append((text("services.word_cpus"), document["plan"]["cpus"]))
    lines = [
        text("common.pair", label=label, value=value)
        for label, value in facts
        if value not in (None, "", [], {})
    ]
    if document["simulated_run"]:
        lines.append(run_line(document["simulated_run"]))
    sentence, command = _answer(service, document)
    page = ShortPage(
        [sentence, next_line(command), *lines],
        text("services.card_columns").split("|"),
        [NotedRow(_card_row(card)) for card in document["cards"]],
        right=(0, 1, 2, 3),
    )
    page.show(complete=complete)
    if document["ray"]:
        _show_ray(document["ray"])


def _answer(service: ServiceRecord, document: dict[str, Any]) -> tuple[str, str]:
    name = service.name
    if not service.alive:
        if service.failed:
            return text("services.has_failed", name=name), f"gaudi-launch why {name}"
        return text("services.ended", name=name), f"gaudi-launch restart {name}"
    if service.phase == "ready":
        up = mapped(duration, document["uptime_seconds"]) or text("services.moment")
        answer = text("services.answers_at", name=name, url=document["url"], up=up)
        return answer, f"gaudi-launch chat {name}"
    answer = text("services.is_starting", name=name, phase=phase(service))
    if document["left_seconds"] is not None:
        left = rough(document["left_seconds"])
        answer = text("services.is_starting_left", name=name, phase=phase(service), left=left)
    return answer, f"gaudi-launch wait {name}"


def _facts(service: ServiceRecord, document: dict[str, Any]) -> list[tuple[str, object]]:
    """Return the label and the value of each line; empty ones are not known."""
    requests = document["requests"] and text("services.load", **document["requests"])
    ray = document["ray"] and document["ray"]["dashboard"]
    phases = [
        f"{phase_text(each['name'])} {_time(each, service.alive)}" for each in document["phases"]
    ]
    return [
        ("error", document["error"]),
        ("requests", requests),
        ("model", document["model"]),
        ("engine", document["engine"]),
        ("url", document["url"]),
        ("cards", ",".join(map(str, service.modules))),
        ("plan", _plan(document["plan"])),
        ("memory", memory_words(document["plan"]["memory"] or {})),
        ("warmup", _warmup_line(document["warmup"], simulated=document["simulated"])),
        ("phases", text("common.between").join(phases)),
        ("restarts", document["restarts"] or None),
        ("compiles", document["run_time_compiles"] or None),
        ("ray", ray),
        ("log", document["log"]),
    ]


def _show_ray(ray: Mapping[str, Any]) -> None:
    """Print the state of the deployments in Ray Serve, or why it is unknown."""
    out = console()
    if ray["trouble"]:
        out.print(text("services.no_ray", why=ray["trouble"]))
        return
    rows = [
        (each["name"], each["status"], f"{each['running']}/{each['wanted']}", each["message"])
        for each in ray["deployments"]
    ]
    title = f"{ray['application']}: {ray['status']}"
    out.print(table(title, text("services.ray_columns").split("|"), rows))
    if ray["message"]:
        out.print(ray["message"])


def _warmup_line(warmup: dict[str, Any], *, simulated: bool) -> str:
    """Return the graphs with the measured and the estimated time of their warm-up."""
    if not warmup["graphs"]:
        return ""
    known = [text("services.warmup_graphs", n=warmup["graphs"])]
    if warmup["seconds"] is not None:
        id = "services.warmup_simulated" if simulated else "services.warmup_measured"
        known.append(text(id, time=duration(warmup["seconds"])))
    if warmup["estimated"]:
        time = span(warmup["estimated"]["low"], warmup["estimated"]["high"])
        known.append(text("services.warmup_estimated", time=time))
    return text("common.between").join(known)


def show_history(points: Sequence[HistoryPoint], seconds: float) -> None:
    """Draw the history of this time, the newest at the right."""
    out = console()
    if not points:
        out.print(text("services.no_history"))
        return
    end = max(time.time(), points[-1].at)
    width = max(10, min(_MOST_CHART, out.width - _CHART_LABEL - _CHART_VALUES))
    ascii = not can_show("▁▂█", out)
    began = time.strftime("%H:%M", time.localtime(end - seconds))
    out.print(text("services.history_since", time=began))
    for name, value, form, most in _CHARTS:
        spans = _spans([(point.at, value(point)) for point in points], end - seconds, end, width)
        line = sparkline(spans, width, most, ascii=ascii)
        label = set_cell_size(text(f"services.history_{name}"), _CHART_LABEL)
        out.print(f"{label}{line} {_last_and_most(spans, form)}", soft_wrap=True)


def _card_row(card: Mapping[str, Any]) -> tuple[str, ...]:
    shown = {name: known(value, unknown="?") for name, value in card.items()}
    return (
        str(card["module"]),
        f"{shown['memory_used_mib']} / {shown['memory_total_mib']} MiB",
        shown["temperature_c"],
        shown["utilization_percent"],
    )


def _spans(
    readings: Sequence[tuple[float, float | None]], begin: float, end: float, width: int
) -> list[float | None]:
    """Return the mean of each of ``width`` spans of time.

    None where nothing was read."""
    groups: list[list[float]] = [[] for _ in range(width)]
    for at, value in readings:
        place = int((at - begin) / (end - begin) * width) if end > begin else 0
        if value is not None and 0 <= place <= width:
            groups[min(place, width - 1)].append(value)
    return list(map(mean, groups))


def _last_and_most(spans: Sequence[float | None], form: str) -> str:
    known = [value for value in spans if value is not None]
    if not known:
        return "-"
    return text(
        "services.history_values", last=form.format(known[-1]), most=form.format(max(known))
    )


def _times(factor: float, value: float | None) -> float | None:
    """Return the value in a smaller unit; None stays None."""
    if value is None:
        return None
    return value * factor


_CHART_LABEL = 12
_CHART_VALUES = 32
_MOST_CHART = 100
# name, value of a point, form of a number, value of a full character
_CHARTS: tuple[tuple[str, Callable[[HistoryPoint], float | None], str, float | None], ...] = (
    ("ttft", lambda point: _times(1000, point.ttft_seconds), "{:.0f} ms", None),
    ("tpot", lambda point: _times(1000, point.tpot_seconds), "{:.0f} ms", None),
    ("load", lambda point: point.load, "{:.1f}", None),
    ("tokens", lambda point: point.tokens_per_second, "{:.0f}", None),
    ("kv", lambda point: _times(100, point.kv_use), "{:.0f}%", 100.0),
    ("preemptions", lambda point: point.preemptions, "{:.1f}", None),
    ("power", lambda point: point.power_w, "{:.0f} W", None),
)


def _plan(plan: dict[str, Any]) -> str:
    """Return the plan in one line, in vLLM's or TGI's options.

    It shows data type, longest request and concurrent requests.
    """
    from gaudi_launch.core.services.endpoint import option

    length = option(plan, "--max-model-len") or option(plan, "--max-total-tokens")
    requests = option(plan, "--max-num-seqs") or option(plan, "--max-batch-size")
    parts = [str(plan["dtype"] or "")]
    if length:
        parts.append(text("services.plan_length", count=length))
    if requests:
        parts.append(text("services.plan_requests", count=requests))
    return text("common.between").join(part for part in parts if part)


def _time(phase: dict[str, Any], alive: bool) -> str:
    """Return the duration of a phase, also of one that lasts.

    Its times are those of this boot's clock.
    """
    if phase["end"] is not None:
        return duration(phase["end"] - phase["begin"])
    if not alive:
        return "..."
    return f"{duration(time.monotonic() - phase['begin'])} ..."
