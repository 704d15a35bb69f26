"""The output of ``gaudi-launch recommend``: first screen, JSON, picture."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaudi_launch.cli.console import console
from gaudi_launch.cli.short_page import NotedRow, ShortPage, command_line
from gaudi_launch.cli.views.estimate import (
    basis,
    basis_lines,
    evidence_json,
    show_classes,
    warmup_json,
)
from gaudi_launch.core.base.durations import duration, span
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message, rendered, text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.buckets.past_requests import LEFT_OUT
from gaudi_launch.core.host.accelerators import product_of
from gaudi_launch.core.launch.machine import load
from gaudi_launch.extensions.recommend.case import Recommended
from gaudi_launch.extensions.recommend.finder import Recommendation, Sensitivity
from gaudi_launch.extensions.recommend.front import cards_for_rates
from gaudi_launch.extensions.recommend.space import SearchCase, SearchedEngine, layout_name, layouts
from gaudi_launch.extensions.recommend.trial import Limit, Trial


@dataclass(frozen=True)
class ComparedSizes:
    """The layouts of a search.

    ``tensor`` and ``stages`` are the sizes in them; ``experts`` are the numbers of cards over which
    the experts of a mixture are divided, with 0 for each expert over all cards; empty without
    experts.
    """

    layouts: tuple[str, ...]
    tensor: tuple[int, ...]
    stages: tuple[int, ...]
    experts: tuple[int, ...]
    notes: tuple[Message, ...]


def compared(case: SearchCase) -> ComparedSizes:
    """Return the parallel sizes of a search, with what is known about their speeds."""
    first = case.engines[0]
    pairs = list(dict.fromkeys(layouts(case, first)))
    return ComparedSizes(
        layouts=tuple(layout_name(*pair) for pair in pairs),
        tensor=tuple(sorted({cards for cards, _ in pairs})),
        stages=tuple(sorted({stages for _, stages in pairs})),
        experts=_experts(case, first),
        notes=(*_stage_notes(case, first), *_expert_notes(case, first)),
    )


def _experts(case: SearchCase, searched: SearchedEngine) -> tuple[int, ...]:
    if not case.model.moe:
        return ()
    sizes = {searched.experts(case.model, cards) for cards, _ in layouts(case, searched)}
    if not searched.decides_experts():
        sizes |= {0, *(cards for cards, _ in layouts(case, searched))}
    return tuple(sorted(sizes))


def _stage_notes(case: SearchCase, searched: SearchedEngine) -> list[Message]:
    label = searched.engine.identity.label
    found: list[Message] = []
    if searched.spreads:
        found.append(message("recommend.spread_assumed"))
    if not searched.engine.runs_stages(case.model):
        found.append(message("recommend.no_stages", engine=label))
    elif not searched.spreads:
        found.append(message("recommend.stages_assumed"))
    return found


def _expert_notes(case: SearchCase, searched: SearchedEngine) -> list[Message]:
    if not case.model.moe:
        return []
    if searched.decides_experts():
        return [message("recommend.experts_given")]
    return [message("recommend.experts_equal")]


_OPTIONS = {
    "dtype": "-d",
    "cards": "-n",
    "layout": "--tensor-parallel x --pipeline-parallel",
    "experts": "--enable-expert-parallel",
    "engine": "--engine",
    "batch": "-b",
    "prompts": "--max-prefill-seqs",
    "tokens": "-t",
}
# goals of tune that are not its default
_MEASURED_GOALS = ("throughput", "latency")
_FRONT_ROWS, _JSON_TRIALS, _SHOWN_CHANGES = 4, 5, 4
_WIDTH = 78
_NOTABLE = 0.02


def to_json(answer: Recommended) -> dict[str, Any]:
    """Return the object of --json. Seconds, tokens, output tokens per second."""
    found = answer.found
    search, goal = found.case, found.goal
    sizes = compared(search)
    return {
        "schema": 1,
        "model": search.model.path,
        "accelerator": search.pool.accelerator.id,
        "cards_per_node": search.pool.cards_per_node,
        "nodes": search.pool.nodes,
        "goal": goal.name,
        "targets": {
            "ttft": goal.targets.ttft,
            "tpot": goal.targets.tpot,
            "e2e": goal.targets.e2e,
            "percentile": goal.targets.percentile,
            "start": goal.most_start,
        },
        "load": {
            "rate": goal.rate or None,
            "concurrency": goal.clients or None,
            "mean_input": round(search.load.mean_input, 2),
            "mean_output": round(search.load.mean_output, 2),
        },
        "winner": mapped(_trial_json, found.winner),
        "command": list(answer.command) or None,
        "stack_entry": answer.stack_entry,
        "plan": mapped(lambda plan: plan.to_json(), answer.plan),
        "cluster": _cluster_json(answer),
        "compared": {
            "layouts": list(sizes.layouts),
            "tensor_parallel": list(sizes.tensor),
            "pipeline_parallel": list(sizes.stages),
            "expert_parallel": list(sizes.experts),
            "notes": [note.to_json() for note in sizes.notes],
        },
        "band": _bands(answer),
        "limit": mapped(_limit_json, found.limit),
        "runner_up": mapped(
            lambda one: {**_trial_json(one), "why": _why_lost(answer)}, found.runner_up
        ),
        "top": [_trial_json(trial) for trial in found.trials[:_JSON_TRIALS]],
        "front": [_trial_json(trial) for trial in found.front],
        "cards_for_rates": [
            {"rate": _rounded(rate), "cards": cards}
            for rate, cards in cards_for_rates(search, found.trials, goal.rate)
        ],
        "sensitivity": [
            {
                "option": _OPTIONS[each.field],
                "value": each.value,
                "factor": _rounded(each.factor),
                "ended": each.ended or None,
            }
            for each in found.sensitivity
        ],
        "unmet": [
            {"name": each[0], "found": each[1], "target": each[2], "factor": each[3]}
            for each in _unmet(answer)
        ],
        "searched": found.searched,
        "simulated": found.simulated,
        "evidence": mapped(
            lambda one: {
                **evidence_json(one),
                "low": _rounded(one.low),
                "high": _rounded(one.high),
            },
            found.evidence,
        ),
        "notes": [note.to_json() for note in search.notes],
    }


def _cluster_json(answer: Recommended) -> dict[str, Any] | None:
    """Return the layout of a replica for ``cluster``; None for ``serve``."""
    if answer.cluster is None:
        return None
    layout = answer.cluster.layout
    return {
        "hosts": layout.hosts,
        "cards_per_host": layout.cards_per_host,
        "tensor_parallel": layout.tensor,
        "pipeline_parallel": layout.pipeline,
        "expert_parallel": layout.expert,
        "ray": layout.ray,
        "settings": [
            {"name": setting.name, "value": setting.value, "reason": setting.reason.render()}
            for setting in answer.cluster.settings
        ],
    }


def _limit_json(limit: Limit) -> dict[str, Any]:
    shares = {name: round(share, 4) for name, share in limit.shares.items()}
    return {"name": limit.name, "shares": shares}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _trial_json(trial: Trial) -> dict[str, Any]:
    candidate, served = trial.candidate, trial.served
    found: dict[str, Any] = {
        "engine": candidate.engine,
        "dtype": candidate.dtype,
        "kv_dtype": candidate.kv_dtype or None,
        "tensor_parallel": candidate.cards,
        "expert_parallel": candidate.experts,
        "pipeline_parallel": candidate.pipeline,
        "hosts": candidate.hosts,
        "max_num_seqs": candidate.batch,
        "max_prefill_seqs": candidate.prompts,
        "max_num_batched_tokens": candidate.tokens,
        "max_model_len": candidate.length,
        "prefix_caching": candidate.prefix_caching,
        "chunked_prefill": candidate.tokens < candidate.length,
        "padding_limit": candidate.padding or None,
        "missed": list(trial.missed),
        "why_not": rendered(trial.why_not),
        "graphs": trial.graphs,
        "warmup_seconds": None,
        "served": None,
    }
    if trial.plan is not None and trial.plan.estimate is not None:
        found["warmup_seconds"] = warmup_json(trial.plan.estimate)
    if served is not None:
        found["objective"] = _rounded(trial.score)
        found["served"] = {
            "replicas": served.replicas,
            "data_parallel": served.replicas,
            "cards": served.cards,
            "nodes": served.nodes,
            "ttft": _rounded(served.ttft),
            "tpot": _rounded(served.tpot),
            "e2e": _rounded(served.e2e),
            "output_tokens_per_second": _rounded(served.tokens),
            "output_tokens_per_second_per_card": _rounded(served.per_card),
        }
    return found


def _bands(answer: Recommended) -> dict[str, Any] | None:
    """Return the ranges of the winner's figures, by the evidence and by other seeds."""
    found = answer.found
    if found.winner is None or found.winner.outcome is None or found.evidence is None:
        return None
    served, outcome, evidence = found.winner.served, found.winner.outcome, found.evidence
    assert served is not None, "it was simulated"
    percentile = found.goal.targets.percentile
    tokens = evidence.speed(served.tokens)
    if found.goal.rate:
        tokens = evidence.speed(served.spare)
    return {
        "ttft": outcome.time(outcome.ttft, percentile).to_json(),
        "tpot": outcome.time(outcome.tpot, percentile).to_json(),
        "e2e": outcome.time(outcome.e2e, percentile).to_json(),
        "most_output_tokens_per_second": tokens.to_json(),
        "cards": mapped(
            lambda cards: {"low": cards[0], "expected": served.cards, "high": cards[1]},
            found.cards or None,
        ),
    }


def _unmet(answer: Recommended) -> list[tuple[str, float, float, float]]:
    """Return (name, found, target, factor) of the nearest trial's missed targets."""
    found, goal = answer.found, answer.found.goal
    if found.winner is not None or not found.trials:
        return []
    nearest = found.trials[0]
    served = nearest.served
    if served is None:
        return []
    rows: list[tuple[str, float, float, float]] = []
    for name in nearest.missed:
        if name == "cards":
            most = found.case.pool.most_replicas(nearest.candidate.world) or 0
            pair = (float(served.cards), float(most * nearest.candidate.world))
        elif name == "start":
            assert goal.most_start is not None, "the start is missed"
            pair = (nearest.start, goal.most_start)
        else:
            pair = (getattr(served, name), getattr(goal.targets, name))
        rows.append(
            (name, _rounded(pair[0]), _rounded(pair[1]), _rounded(pair[0] / max(pair[1], 1e-9)))
        )
    return rows


def show(answer: Recommended, plot: Path | None, *, complete: bool) -> None:
    """Print the page for people: the answer, its command and speed, the others."""
    found = answer.found
    facts, sentences = Sentences(), Sentences()
    if found.winner is None:
        _tell_unmet(answer, facts)
    else:
        _tell_winner(answer, facts)
        for warning in answer.plan.warnings if answer.plan is not None else ():
            sentences("plan.warning", what=warning.render())
        _tell_others(answer, sentences)
        sentences("recommend.check")
    _tell_search(answer, sentences)
    tail = [text("plot.drawn", path=str(plot))] if plot is not None else []
    columns = text("recommend.columns").split("|")
    page = ShortPage(
        facts.lines,
        columns,
        [NotedRow(tuple(_row(trial, trial is found.winner))) for trial in _front_rows(answer)],
        right=range(len(columns)),
        tail=tail,
        warnings=sentences.lines,
        left_out="page.notes",
    )
    page.show(complete=complete)
    if complete and found.evidence is not None:
        show_classes()
    if complete:
        from gaudi_launch.core.render.yaml_text import dump

        entry = answer.stack_entry
        if entry is not None:
            console().print(text("recommend.stack_entry"))
            print(dump({"schema": 1, "models": [entry]}), end="")


class Sentences:
    """Lines of a page, each a sentence of the catalogue or a command."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def __call__(self, id: str, **values: Any) -> None:
        self.lines.append(text(id, **values))

    def command(self, words: Sequence[str]) -> None:
        """Add a command to be copied."""
        self.lines += [command_line(line) for line in wrapped(words)]


def _tell_search(answer: Recommended, say: Sentences) -> None:
    """Add the evidence of the speeds, what was compared, and the notes."""
    found = answer.found
    if found.evidence is not None:
        say.lines += basis_lines(found.evidence)
    sizes = compared(found.case)
    notes = [note.render() for note in (*found.case.notes, *sizes.notes)]
    served = found.winner.served if found.winner is not None else None
    if served is not None and served.replicas > 1:
        notes += [text("capacity.assume_split"), text("capacity.assume_no_spare")]
    # the search and the plan of its answer may say the same
    warned = [each.render() for each in answer.plan.warnings] if answer.plan is not None else []
    for note in dict.fromkeys(notes):
        if note not in warned:
            say("recommend.note", what=note)
    say(
        "recommend.searched",
        n=found.searched,
        simulated=found.simulated,
        layouts=", ".join(sizes.layouts),
    )


def show_saved(answer: Recommended, files: Sequence[Path]) -> None:
    """Print where the best plans are, and the command that measures them here."""
    folder, goal = files[0].parent, answer.found.goal.name
    command = f"gaudi-launch tune {shlex.quote(str(folder))}/*.yaml"
    if goal in _MEASURED_GOALS:
        command += f" --for {goal}"
    if product_of(load(None)) != answer.case.search.pool.accelerator.id:
        command += " --engine simulated"
    said = text("recommend.saved", count=len(files), file=str(files[0]), command=command)
    console(stderr=True).print(said, soft_wrap=True)


def _tell_load(answer: Recommended, say: Sentences) -> None:
    """Add the load, and what the speeds are based on."""
    found = answer.found
    goal, search = found.goal, found.case
    kind = "full"
    if goal.name == "latency":
        kind = "one"
    if goal.demand:
        kind = "clients" if goal.clients else "rate"
    lengths = {
        "input": _number(search.load.mean_input),
        "output": _number(search.load.mean_output),
    }
    say(f"recommend.load_{kind}", load=_number(goal.demand), **lengths)
    for note in search.notes:
        if note.id == LEFT_OUT:
            say("recommend.note", what=note.render())
    if found.evidence is not None:
        say.lines.append(basis(found.evidence))


def _tell_winner(answer: Recommended, say: Sentences) -> None:
    """Add the answer, its command, and what it gives."""
    found, winner = answer.found, answer.found.winner
    assert (
        winner is not None
        and winner.served is not None
        and answer.launch is not None
        and answer.plan is not None
    )
    served, search = winner.served, found.case
    goal = "cost_alone" if found.goal.name == "cost" and not found.goal.demand else found.goal.name
    say(
        "recommend.title",
        model=search.model.path,
        product=search.pool.accelerator.title,
        goal=text(f"recommend.goal_{goal}"),
        n=served.replicas,
        cards=winner.candidate.world,
    )
    say.command(answer.command)
    if winner.candidate.hosts > 1:
        say("recommend.hosts", hosts=winner.candidate.hosts)
    if served.replicas > 1:
        say("recommend.replicas", cards=served.cards, nodes=served.nodes)
    _tell_load(answer, say)
    if found.cards is not None and found.cards[0] != found.cards[1]:
        say("recommend.cards_band", cards=served.cards, low=found.cards[0], high=found.cards[1])
    say(
        "recommend.served",
        percentile=f"{found.goal.targets.percentile:g}",
        ttft=_number(served.ttft),
        tpot=_number(1000 * served.tpot),
        e2e=_number(served.e2e),
    )
    if found.evidence is not None and not found.goal.demand:
        band = found.evidence.speed(served.tokens)
        say(
            "recommend.tokens",
            tokens=_number(band.expected),
            low=_number(band.low),
            high=_number(band.high),
            per_card=_number(served.per_card),
        )
    blocks, estimate = answer.plan.num_blocks, answer.plan.estimate
    if estimate is None or answer.plan.buckets is None:
        say("recommend.no_start", blocks=blocks)
    else:
        say(
            "recommend.start",
            time=span(estimate.low_seconds, estimate.high_seconds),
            graphs=answer.plan.buckets.graphs,
            blocks=blocks,
        )
    _tell_limit(answer, say)


def wrapped(words: Sequence[str]) -> list[str]:
    """Return a command over lines that a shell reads as one.

    >>> wrapped(["gaudi-launch", "serve", "m", "-n", "8"])
    ['  gaudi-launch serve m -n 8']
    """
    lines, line = [], " "
    for word in words:
        quoted = shlex.quote(word)
        if len(line) + 1 + len(quoted) + 2 > _WIDTH:
            lines.append(f"{line} \\")
            line = "   "
        line = f"{line} {quoted}"
    return [*lines, line]


def _tell_limit(answer: Recommended, say: Sentences) -> None:
    limit = answer.found.limit
    if limit is None:
        return
    if limit.name in ("cache", "start"):
        say(f"recommend.limit_{limit.name}")
        return
    share = f"{100 * limit.shares[limit.name]:.0f}"
    say("recommend.limit", part=text(f"estimate.part_{limit.name}"), share=share)


def _front_rows(answer: Recommended) -> list[Trial]:
    """Return the front with the answer in it, at most `_FRONT_ROWS` rows."""
    found = answer.found
    rows: list[Trial] = [found.winner] if found.winner is not None else []
    known = {_shape(trial) for trial in rows}
    for trial in found.trials:
        # what was simulated in part is not shown; prompts of a step have no column
        if trial.settled and trial.served is not None and _shape(trial) not in known:
            known.add(_shape(trial))
            rows.append(trial)
    rows.sort(key=lambda trial: trial.served.tpot if trial.served is not None else 0.0)
    while len(rows) > _FRONT_ROWS:
        # the fastest, the answer and the most tokens stay
        spare = next(trial for trial in rows[1:] if trial is not found.winner)
        rows.remove(spare)
    return rows


def _shape(trial: Trial) -> tuple[object, ...]:
    candidate, served = trial.candidate, trial.served
    replicas = served.replicas if served is not None else 0
    return (replicas, candidate.layout, candidate.dtype, candidate.batch, candidate.tokens)


def _row(trial: Trial, chosen: bool) -> list[str]:
    candidate, served = trial.candidate, trial.served
    assert served is not None, "trials of a table were simulated"
    return [
        f"{served.replicas}{' *' * chosen}",
        candidate.layout,
        _short(candidate.dtype),
        str(candidate.batch),
        str(candidate.tokens),
        _number(served.per_card),
        _number(served.ttft),
        _number(1000 * served.tpot),
        _number(served.e2e),
    ]


def _tell_others(answer: Recommended, say: Sentences) -> None:
    """Add the runner-up, the effect of other values and the cards for other rates."""
    found, goal = answer.found, answer.found.goal
    if found.runner_up is not None:
        say("recommend.runner_up", options=_options(found.runner_up), why=_why_lost(answer))
    shown = _notable(found.sensitivity)
    if shown:
        counted = goal.name == "cost" and goal.demand
        pairs = text("common.between").join(
            _pair(each, counts_cards=bool(counted)) for each in shown
        )
        say("recommend.cards_with" if counted else "recommend.score_with", pairs=pairs)
    rates = cards_for_rates(found.case, found.trials, goal.rate)
    counts = [text("recommend.rate_pair", rate=_number(rate), cards=cards) for rate, cards in rates]
    say("recommend.rates", pairs=text("common.between").join(counts))


def _notable(found: Sequence[Sensitivity]) -> list[Sensitivity]:
    """Return the best other value of each option, where it makes a difference."""
    first: dict[str, Sensitivity] = {}
    for each in sorted(found, key=lambda one: -one.factor):
        first.setdefault(each.field, each)
    shown = [
        first[name]
        for name in _OPTIONS
        if name in first and abs(first[name].factor - 1) >= _NOTABLE
    ]
    return shown[:_SHOWN_CHANGES]


def _pair(each: Sensitivity, *, counts_cards: bool) -> str:
    option = f"{_OPTIONS[each.field]} {_short(each.value)}"
    if not each.factor:
        return text("recommend.pair_none", option=option)
    factor = _number(1 / each.factor if counts_cards else each.factor)
    if each.ended:
        return text("recommend.pair_ended", option=option, factor=factor, date=each.ended)
    return text("recommend.pair", option=option, factor=factor)


def _why_lost(answer: Recommended) -> str:
    """Return the reason why the runner-up is not the answer."""
    found, goal = answer.found, answer.found.goal
    other, winner = found.runner_up, found.winner
    assert other is not None and winner is not None, "there is a runner-up"
    if other.missed:
        shown = {"cards": "--nodes", "start": "--max-start"}
        names = (shown.get(name, f"--{name}") for name in other.missed)
        return text("recommend.lost_target", names=", ".join(names))
    share = other.score / winner.score
    rank = found.case.rank
    if share > 1 + _NOTABLE and rank(other.candidate) > rank(winner.candidate):
        kind = "engine" if found.case.keeps_type(other.candidate) else "type"
        return text(
            f"recommend.other_{kind}",
            factor=_number(share),
            dtype=_short(other.candidate.dtype),
            engine=other.candidate.engine,
        )
    if share > 1 - _NOTABLE / 4:
        if other.candidate.splits_layers and not winner.candidate.splits_layers:
            return text("recommend.lost_split")
        return text("recommend.lost_alike")
    if goal.name == "cost" and goal.demand:
        return text("recommend.lost_cards", factor=_number(1 / share))
    return text("recommend.lost_score", percent=f"{100 * share:.0f}")


def _options(trial: Trial) -> str:
    candidate = trial.candidate
    sizes = f"-n {candidate.cards}"
    if candidate.pipeline > 1:
        sizes = f"--tensor-parallel {candidate.cards} --pipeline-parallel {candidate.pipeline}"
    return f"{sizes} -d {_short(candidate.dtype)} -b {candidate.batch} -t {candidate.tokens}"


def _short(value: str) -> str:
    return {"bfloat16": "bf16"}.get(value, value)


def _tell_unmet(answer: Recommended, say: Sentences) -> None:
    """Add which targets cannot be met, by how much, and what is possible."""
    found, goal = answer.found, answer.found.goal
    nearest = found.trials[0]
    search = found.case
    say("recommend.unmet", model=search.model.path, product=search.pool.accelerator.title)
    say("recommend.nearest", options=_options(nearest))
    _tell_load(answer, say)
    if nearest.why_not is not None:
        say("recommend.note", what=nearest.why_not.render())
    for name, value, most, factor in _unmet(answer):
        if name == "cards":
            assert nearest.served is not None, "its cards were counted"
            share = most / value
            amount = goal.demand * share
            if goal.rate:
                amount = nearest.served.spare / found.case.load.mean_output * share
            unit = text("recommend.unit_clients" if goal.clients else "recommend.unit_rate")
            say(
                "recommend.unmet_cards",
                needed=f"{value:g}",
                have=f"{most:g}",
                possible=_number(amount),
                unit=unit,
            )
        elif name == "start":
            say("recommend.unmet_start", found=duration(value), most=duration(most))
        else:
            scale, unit = (1000, "ms") if name == "tpot" else (1, "s")
            say(
                "recommend.unmet_latency",
                name=name.upper(),
                found=_number(scale * value),
                most=_number(scale * most),
                unit=unit,
                factor=_number(factor),
            )


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def draw(path: Path, answer: Recommended) -> None:
    """Write the picture of the front. Raises LaunchError (USAGE)."""
    from gaudi_launch.core.base.plotting import label, write_picture

    found = answer.found
    if not any(trial.served is not None for trial in found.trials):
        raise LaunchError("recommend.nothing_to_draw", ExitCode.USAGE)
    title = label("plot.front_title", model=found.case.model.name)
    write_picture(path, front_picture(found, title, path.suffix.lower()))


def front_picture(found: Recommendation, title: str, ending: str) -> bytes:
    """Return a PNG or SVG file of speed against TPOT, and cards against the rate.

    Raises LaunchError (FAILED).
    """
    from gaudi_launch.core.base.plotting import BLUE, GREEN, GREY, dress, label, rendered, sheet

    with sheet(title, rows=2, size=(9, 8)) as made:
        speed, cards = made.axes
        dress(speed, label("plot.front"), label("plot.tpot_ms"), label("plot.per_card"))
        others = _points([trial for trial in found.trials if trial not in found.front])
        if others:
            speed.scatter(*zip(*others, strict=True), color=GREY, s=18, label=label("plot.others"))
        best = _points(found.front)
        if best:
            speed.plot(
                *zip(*best, strict=True),
                color=BLUE,
                marker="o",
                markersize=4,
                label=label("plot.front"),
            )
        if found.winner is not None:
            answer = _points([found.winner])
            speed.scatter(
                *zip(*answer, strict=True),
                color=GREEN,
                s=60,
                marker="*",
                label=label("plot.answer"),
            )
        speed.legend(loc="best")
        dress(cards, label("plot.cards"), label("plot.requests_per_s"), label("plot.cards"))
        rates = cards_for_rates(found.case, found.trials, found.goal.rate)
        x, y = [rate for rate, _ in rates], [count for _, count in rates]
        cards.step(x, y, color=BLUE, where="post", marker="o")
        return rendered(made, ending)


def _points(trials: list[Trial] | tuple[Trial, ...]) -> list[tuple[float, float]]:
    """Return (TPOT in ms, tokens per second and card) of simulated trials."""
    found: list[tuple[float, float]] = []
    for trial in trials:
        if trial.served is not None:
            found.append((1000 * trial.served.tpot, trial.served.per_card))
    return found
