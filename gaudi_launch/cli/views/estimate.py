"""The output of ``gaudi-launch estimate``: table and JSON."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaudi_launch.app.estimate import SpeedEstimate
    from gaudi_launch.performance.evidence import Band, Neighbour
    from gaudi_launch.performance.step_model import Parts


def to_json(found: SpeedEstimate) -> dict[str, Any]:
    """Return the object of --json.

    In seconds, output tokens per second, requests per second.
    """
    case, made = found.case, found.prediction
    load = case.load
    requests = {
        name: float(f"{value / load.output:.4g}")
        for name, value in (
            ("low", made.throughput.low),
            ("expected", made.throughput.expected),
            ("high", made.throughput.high),
        )
    }
    return {
        "schema": 1,
        "model": case.model.path,
        "accelerator": case.hardware,
        "cards": case.setup.cards,
        "dtype": case.dtype,
        "engine": case.engine or None,
        "software": case.software or None,
        "experts": case.experts or None,
        "load": {
            "kind": load.kind,
            "input_tokens": load.input,
            "output_tokens": load.output,
            "sequences": load.most,
            "rate": load.rate if load.kind == "rate" else None,
        },
        "ttft_seconds": made.ttft.to_json(),
        "tpot_seconds": made.tpot.to_json(),
        "per_user": {"output_tokens_per_second": made.per_user.to_json()},
        "throughput": {
            "output_tokens_per_second": made.throughput.to_json(),
            "requests_per_second": requests,
        },
        "share": {part: round(share, 4) for part, share in made.share.items()},
        "steps": {"prefill": _parts(made.prefill), "decode": _parts(made.decode)},
        "limited_by": made.bound,
        "sequences_at_once": round(made.batch, 2),
        "saturated": made.saturated,
        "evidence": {
            "kind": made.evidence.word,
            "class": made.evidence.kind.value,
            "points": made.evidence.points,
            "typical_factor": made.evidence.typical,
            "near": made.evidence.near,
            "figures": [_neighbour(one) for one in made.evidence.neighbours],
        },
        "notes": [note.to_json() for note in case.notes],
    }


def _parts(parts: Parts) -> dict[str, float]:
    """Return milliseconds by part."""
    found = {
        field.name: round(1000 * float(getattr(parts, field.name)), 4) for field in fields(parts)
    }
    return {**found, "total": round(1000 * float(parts.total), 4)}


def _neighbour(one: Neighbour) -> dict[str, Any]:
    figure = one.figure
    return {
        "source": figure.source,
        "software": figure.software,
        "load": figure.title,
        "measure": figure.measure,
        "value": figure.value,
        "unit": "output tokens/s" if figure.measure == "throughput" else "s",
        "distance": round(one.distance, 2),
    }


def speed_json(found: SpeedEstimate | None) -> dict[str, Any] | None:
    """Return the prediction as ``plan --json`` has it."""
    if found is None:
        return None
    complete = to_json(found)
    names = ("load", "ttft_seconds", "tpot_seconds", "throughput", "limited_by")
    return {**{name: complete[name] for name in names}, "near": found.prediction.evidence.near}


def summary(found: SpeedEstimate) -> str:
    """Return the prediction in one line, as ``plan`` shows it."""
    from gaudi_launch.messages import text

    made = found.prediction
    evidence = text("estimate.near" if made.evidence.near else "estimate.far")
    if made.evidence.learned:
        evidence = text("estimate.learned", version=made.evidence.learned)
    return text(
        "estimate.line",
        sequences=f"{made.batch:.0f}",
        input=found.case.load.input,
        output=found.case.load.output,
        throughput=_range(made.throughput),
        ttft=_range(made.ttft, 1000),
        tpot=_range(made.tpot, 1000),
        evidence=evidence,
    )


def _range(band: Band, factor: float = 1.0) -> str:
    low, expected, high = (
        _number(value * factor) for value in (band.low, band.expected, band.high)
    )
    return f"{expected} ({low} - {high})"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def show(found: SpeedEstimate) -> None:
    """Print a prediction for people."""
    from gaudi_launch.cli.console import console, table
    from gaudi_launch.messages import text

    case, made = found.case, found.prediction
    out = console()

    def say(id: str, **values: Any) -> None:
        out.print(text(id, **values))

    say(
        "estimate.title",
        model=case.model.path,
        dtype=case.dtype,
        cards=case.setup.cards,
        accelerator=case.hardware,
        engine=case.engine or text("estimate.static"),
    )
    load = case.load
    say(
        f"estimate.load_{load.kind}",
        input=load.input,
        output=load.output,
        sequences=load.most,
        rate=f"{load.rate:g}",
    )
    names = [text(f"estimate.column_{name}") for name in ("measure", "low", "expected", "high")]
    rows = [
        _row("ttft", made.ttft, 1000),
        _row("tpot", made.tpot, 1000),
        _row("per_user", made.per_user),
        _row("throughput", made.throughput),
    ]
    out.print(table("", names, rows, right=(1, 2, 3)))
    parts = [text(f"estimate.column_{name}") for name in ("part", "prefill", "decode", "share")]
    out.print(table("", parts, _part_rows(found), right=(1, 2, 3)))
    say("estimate.bound", part=text(f"estimate.part_{made.bound}"))
    if made.saturated:
        say("estimate.saturated", rate=f"{made.throughput.expected / load.output:.3g}")
    _show_evidence(found)
    if made.evidence.learned:
        say("estimate.note", what=text("estimate.learned", version=made.evidence.learned))
    for note in case.notes:
        say("estimate.note", what=note.render())


def _row(name: str, band: Band, factor: float = 1.0) -> list[str]:
    from gaudi_launch.messages import text

    values = [_number(value * factor) for value in (band.low, band.expected, band.high)]
    return [text(f"estimate.row_{name}"), *values]


def _part_rows(found: SpeedEstimate) -> list[list[str]]:
    from gaudi_launch.messages import text

    made = found.prediction
    rows: list[list[str]] = []
    for part, share in made.share.items():
        prefill = 1000 * float(getattr(made.prefill, part))
        decode = 1000 * float(getattr(made.decode, part))
        name = text(f"estimate.part_{part}")
        rows.append([name, f"{prefill:.2f}", f"{decode:.2f}", f"{100 * share:.0f} %"])
    total = [f"{1000 * float(parts.total):.2f}" for parts in (made.prefill, made.decode)]
    rows.append([text("estimate.part_total"), *total, "100 %"])
    return rows


def _show_evidence(found: SpeedEstimate) -> None:
    from gaudi_launch.cli.console import console
    from gaudi_launch.messages import text

    evidence = found.prediction.evidence
    out = console()
    line = text(
        "estimate.assumed" if evidence.word == "assumed" else "estimate.evidence",
        points=evidence.points,
        kind=text(f"estimate.class_{evidence.kind.value}"),
        typical=f"{100 * (evidence.typical - 1):.0f}",
        low=f"{evidence.low:.2f}",
        high=f"{evidence.high:.2f}",
    )
    out.print(line)
    out.print(text("estimate.nearest" if evidence.near else "estimate.extrapolated"))
    for one in evidence.neighbours:
        figure = one.figure
        if figure.measure == "throughput":
            value = f"{figure.value:,.0f} tokens/s"
        else:
            value = f"{figure.measure.upper()} {1000 * figure.value:,.1f} ms"
        out.print(f"  - {figure.title}: {value} [{figure.source}]")
