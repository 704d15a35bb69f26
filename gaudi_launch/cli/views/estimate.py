"""The output of ``gaudi-launch estimate``: table and JSON."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.short_page import NotedRow, ShortPage, next_line
from gaudi_launch.cli.views.speed import (
    figures_json,
    latency_json,
    lengths,
    load_json,
    nearness,
    number,
)
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.launch.command_line import serve_command
from gaudi_launch.core.launch.prediction import of_figure
from gaudi_launch.core.predict.evidence import Band
from gaudi_launch.core.predict.learned import values
from gaudi_launch.core.predict.published import Kind, scored

if TYPE_CHECKING:
    from rich.text import Text

    from gaudi_launch.core.buckets.warmup_time import Estimate
    from gaudi_launch.core.launch.prediction import SpeedEstimate
    from gaudi_launch.core.planning.launch_options import LaunchOptions
    from gaudi_launch.core.predict.evidence import Evidence
    from gaudi_launch.core.predict.published import Figure
    from gaudi_launch.core.predict.simulate import Outcome
    from gaudi_launch.core.predict.step_model import Parts


def to_json(found: SpeedEstimate) -> dict[str, Any]:
    """Return the object of --json.

    In seconds, output tokens per second, requests per second; step times in milliseconds. Without a
    percentile a latency is the mean.
    """
    made = found.outcome
    figures = figures_json(made)
    setup, evidence = made.setup.speed.setup, made.evidence
    prefill, decode = made.steps
    plan = found.plan
    return {
        "schema": 1,
        "model": found.model.path,
        "accelerator": found.hardware,
        "cards": setup.cards,
        "dtype": found.dtype,
        "engine": found.engine or None,
        "software": None if plan is None else plan.engine.exact,
        "experts": _experts(found),
        "load": figures["load"],
        "requests_simulated": made.requests * made.seeds,
        "ttft_seconds": figures["ttft_seconds"],
        "tpot_seconds": figures["tpot_seconds"],
        "e2e_seconds": latency_json(made, made.e2e),
        "per_user": {"output_tokens_per_second": _per_user(made).to_json()},
        "throughput": figures["throughput"],
        "share": {part: round(share, 4) for part, share in made.share.items()},
        "steps": {"prefill": _parts(prefill), "decode": _parts(decode)},
        "step_time": made.setup.speed.cost.constants(),
        "limited_by": figures["limited_by"],
        "sequences_at_once": round(made.inside, 2),
        "saturated": made.saturated,
        "graphs": mapped(lambda one: mapped(lambda each: each.graphs, one.buckets), plan),
        "warmup_seconds": mapped(lambda one: mapped(warmup_json, one.estimate), plan),
        "num_blocks": mapped(lambda one: one.num_blocks, plan),
        "evidence": evidence_json(evidence),
        "notes": [note.to_json() for note in found.notes],
    }


def evidence_json(evidence: Evidence) -> dict[str, Any]:
    """Return what a prediction is based on: measured figures with the model's values."""
    of_class = [figure for figure in scored() if figure.kind is evidence.kind]
    return {
        "kind": evidence.word,
        "class": evidence.kind.value,
        "points": evidence.points,
        "typical_factor": evidence.typical,
        "near": evidence.near,
        "figures": [
            {**_point(one.figure), "distance": round(one.distance, 2)}
            for one in evidence.neighbours
        ],
        "classes": _classes(),
        "measured": list(map(_point, of_class)),
    }


def _experts(found: SpeedEstimate) -> str | None:
    """Return which experts a step reads; None for a dense model."""
    speed = found.outcome.setup.speed
    if not speed.shape.experts:
        return None
    return "fused" if speed.setup.fused else "unfused"


def warmup_json(estimate: Estimate) -> dict[str, float]:
    """Return the seconds of a warm-up, from low to high."""
    return {"low": round(estimate.low_seconds, 1), "high": round(estimate.high_seconds, 1)}


def _per_user(made: Outcome) -> Band:
    return made.evidence.speed(1 / max(made.tpot.mean, 1e-9))


def _parts(parts: Parts) -> dict[str, float]:
    """Return milliseconds by part."""
    found = {
        field.name: round(1000 * float(getattr(parts, field.name)), 4) for field in fields(parts)
    }
    return {**found, "total": round(1000 * float(parts.total), 4)}


def _point(figure: Figure) -> dict[str, Any]:
    """Return a measured figure and what the model gives for its load."""
    predicted = of_figure(figure)
    return {
        "source": figure.source,
        "software": figure.software,
        "load": figure.title,
        "measure": figure.measure,
        "value": figure.value,
        "unit": "output tokens/s" if figure.measure == "throughput" else "s",
        "predicted": float(f"{predicted:.4g}"),
        "relative_error": round(predicted / figure.value - 1, 3),
    }


def _classes() -> list[dict[str, Any]]:
    """Return each class, its figures and the typical factor of their left-out fits."""
    known = values()
    rows = [
        {
            "class": kind.value,
            "points": int(known.get(f"band.{kind.value}.points", 0)),
            "typical_factor": known.get(f"band.{kind.value}.typical"),
        }
        for kind in Kind
    ]
    return [row for row in rows if row["points"]]


def show(found: SpeedEstimate, options: LaunchOptions, *, complete: bool) -> None:
    """Print the speed, the next command and the latencies.

    ``complete``: also the parts of a step, and the evidence.
    """
    made = found.outcome
    head: list[str | Text] = [_answer(made)]
    command = shlex.join(serve_command(options))
    head += [next_line(command), *_load_lines(found)]
    names = [text(f"estimate.column_{name}") for name in ("measure", "low", "expected", "high")]
    rows = [NotedRow(tuple(row)) for row in _measures(made)]
    bound = text(
        "estimate.bound",
        part=text(f"estimate.part_{made.bound}"),
        share=f"{100 * made.share[made.bound]:.0f}",
    )
    if not complete:
        tail = [bound, basis(made.evidence), *_notes(found), text("estimate.more")]
        ShortPage(head, names, rows, right=(1, 2, 3), tail=tail).show(complete=False)
        return
    ShortPage(head, names, rows, right=(1, 2, 3), tail=[bound]).show(complete=True)
    parts = [text(f"estimate.column_{name}") for name in ("part", "prefill", "decode", "share")]
    shares = [NotedRow(tuple(row)) for row in _part_rows(found)]
    shown = ShortPage(
        [], parts, shares, right=(1, 2, 3), tail=[*basis_lines(made.evidence), *_notes(found)]
    )
    shown.show(complete=True)
    show_classes()


def show_classes() -> None:
    """Print each class with its figures and their typical error."""
    classes = []
    for row in _classes():
        off = f"{100 * (row['typical_factor'] - 1):.0f} %"
        name = text(f"estimate.class_{row['class']}")
        classes.append(NotedRow((name, str(row["points"]), off)))
    columns = text("estimate.columns_class").split("|")
    ShortPage([], columns, classes, right=(1, 2)).show(complete=True)


def basis(evidence: Evidence) -> str:
    """Return the measured figure nearest to the load, with the model's value for it."""
    if evidence.word == "assumed":
        return _fit_line(evidence)
    nearest = evidence.neighbours[0].figure
    return text("estimate.based", evidence=nearness(evidence), figure=_figure_line(nearest))


def _answer(made: Outcome) -> str:
    if made.saturated:
        return text("estimate.saturated", rate=f"{made.full:.3g}")
    return text(
        "estimate.answer",
        throughput=number(made.throughput.expected),
        ttft=number(1000 * made.time(made.ttft).expected),
        tpot=number(1000 * made.time(made.tpot).expected),
    )


def _load_lines(found: SpeedEstimate) -> list[str]:
    """Return what was simulated: the launch and its load."""
    made = found.outcome
    load = made.load
    kind = load_json(load)["kind"]
    if load.rate and load.recorded:
        kind = "recorded"
    lines = [
        text(
            "estimate.title",
            model=found.model.path,
            dtype=found.dtype,
            cards=made.setup.speed.setup.cards,
            accelerator=found.hardware,
            engine=found.engine or text("estimate.static"),
        ),
        text(
            f"estimate.load_{kind}",
            input=lengths(load.input_range),
            output=lengths(load.output_range),
            sequences=load.batch or load.clients or made.setup.limits.max_num_seqs,
            rate=f"{load.rate:.4g}",
        ),
    ]
    if not load.batch:
        lines.append(text("estimate.simulated", requests=f"{made.requests * made.seeds:,}"))
    return lines


def _measures(made: Outcome) -> list[list[str]]:
    rows = [_row("ttft", made.time(made.ttft), 1000)]
    if not made.load.batch:
        rows.append(_row("ttft_p95", made.time(made.ttft, 95), 1000))
    return [
        *rows,
        _row("tpot", made.time(made.tpot), 1000),
        _row("per_user", _per_user(made)),
        _row("throughput", made.throughput),
    ]


def _row(name: str, band: Band, factor: float = 1.0) -> list[str]:
    values = [number(value * factor) for value in (band.low, band.expected, band.high)]
    return [text(f"estimate.row_{name}"), *values]


def _part_rows(found: SpeedEstimate) -> list[list[str]]:
    made = found.outcome
    rows: list[list[str]] = []
    for part, share in made.share.items():
        prefill, decode = (1000 * float(getattr(step, part)) for step in made.steps)
        name = text(f"estimate.part_{part}")
        rows.append([name, f"{prefill:.2f}", f"{decode:.2f}", f"{100 * share:.0f} %"])
    total = [f"{1000 * float(parts.total):.2f}" for parts in made.steps]
    rows.append([text("estimate.part_total"), *total, "100 %"])
    return rows


def basis_lines(evidence: Evidence) -> list[str]:
    """Return what a speed is fitted to, and the figures nearest to the load."""
    lines = [
        _fit_line(evidence),
        text("estimate.nearest" if evidence.near else "estimate.extrapolated"),
        *(f"  - {_figure_line(one.figure)} [{one.figure.source}]" for one in evidence.neighbours),
    ]
    if evidence.learned:
        what = text("estimate.learned", version=evidence.learned)
        lines.append(text("estimate.note", what=what))
    return lines


def _notes(found: SpeedEstimate) -> list[str]:
    return [text("estimate.note", what=note.render()) for note in found.notes]


def _fit_line(evidence: Evidence) -> str:
    """Return what the speed is fitted to, or that it is assumed, and its range."""
    return text(
        "estimate.assumed" if evidence.word == "assumed" else "estimate.evidence",
        points=evidence.points,
        kind=text(f"estimate.class_{evidence.kind.value}"),
        typical=f"{100 * (evidence.typical - 1):.0f}",
        low=f"{evidence.low:.2f}",
        high=f"{evidence.high:.2f}",
    )


def _figure_line(figure: Figure) -> str:
    """Return a measured figure with the model's value for its load."""
    predicted = of_figure(figure)
    unit, factor = "tokens/s", 1.0
    if figure.measure != "throughput":
        unit, factor = f"ms {figure.measure.upper()}", 1000.0
    return text(
        "estimate.point",
        load=figure.title,
        value=f"{number(factor * figure.value)} {unit}",
        predicted=number(factor * predicted),
        error=f"{100 * (predicted / figure.value - 1):+.0f}",
    )
