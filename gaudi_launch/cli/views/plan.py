"""A plan for people: each setting with its source and reason."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from gaudi_launch.cli.console import console, table
from gaudi_launch.cli.views.estimate import summary
from gaudi_launch.host.cpus import format_cpus
from gaudi_launch.messages import text

if TYPE_CHECKING:
    from gaudi_launch.app.estimate import SpeedEstimate
    from gaudi_launch.app.prepare import Prepared
    from gaudi_launch.planning.plan import Plan, Setting


def show(made: Plan, prepared: Prepared, speed: SpeedEstimate | None, *, verbose: bool) -> None:
    """Print a plan for people."""
    from rich.cells import set_cell_size

    out = console()

    def line(id: str, value: str) -> None:
        out.print(f"{set_cell_size(text(id), 10)} {value}", markup=False)

    python = f", {made.engine.python}" if made.engine.python else ""
    line("plan.word_engine", f"{made.engine.exact}{python}")
    line("plan.word_model", _model(made))
    if made.placement.modules:
        cards = ",".join(str(module) for module in made.placement.modules)
        nodes = ",".join(str(node) for node in made.placement.numa_nodes)
        line("plan.word_cards", f"{cards}  (NUMA {nodes or '-'})")
        line("plan.word_cpus", format_cpus(made.placement.cpus) or text("plan.cpus_unbound"))
        for reason in made.placement.reasons:
            out.print(f"           {reason.render()}", markup=False)
    line("plan.word_url", made.url)
    if made.buckets is not None:
        prompt, decode = len(made.buckets.prompt), len(made.buckets.decode)
        counts = text("plan.buckets", prompt=prompt, decode=decode, graphs=made.buckets.graphs)
        line("plan.word_buckets", f"{made.bucket_strategy}: {counts}")
    if made.estimate is not None:
        low, high = round(made.estimate.low_seconds), round(made.estimate.high_seconds)
        line("plan.word_warmup", f"{low} - {high} s  ({made.estimate.basis.render()})")
    if speed is not None:
        line("plan.word_speed", summary(speed))
    if made.cache:
        line("plan.word_cache", f"{made.cache['state']}: {made.cache['because']} ({made.cache['folder']})")
    if made.memory:
        line("plan.word_memory", "  ".join(f"{name} {value:.1f}" for name, value in made.memory.items()))
    if made.kv_cache is not None:
        line("plan.word_kv", made.kv_cache.render())
    for step in prepared.steps:
        state = text("prepare.done" if step.done else "prepare.to_do")
        line("prepare.title", f"{state}: {step.what.render()}")
    columns = [text(f"plan.column_{name}") for name in ("name", "value", "source", "reason")]
    for kind in ("env", "option"):
        rows = [_row(s, verbose) for s in _changed_first([s for s in made.settings if s.kind == kind])]
        if rows:
            out.print(table(text(f"plan.title_{kind}"), columns, rows))
    if made.container is not None:
        # what is started, for those who want to run it by hand
        out.print(f"$ {shlex.join(made.command.argv)}", markup=False, soft_wrap=True)
    if made.reference_differences:
        out.print(text("reference.title"), markup=False)
        for difference in made.reference_differences:
            out.print(f"  - {difference.render()}", markup=False)
    for warning in made.warnings:
        out.print(f"{text('plan.word_warning')}: {warning.render()}", markup=False)
    if prepared.host.origin != "live":
        out.print(text("plan.for_machine", machine=prepared.host.origin), markup=False)


def _model(made: Plan) -> str:
    facts = made.model
    words = [str(facts["path"])]
    if facts.get("architecture"):
        words.append(str(facts["architecture"]))
    if facts.get("parameters"):
        words.append(f"{facts['parameters'] / 1e9:.1f}B")
    if facts.get("moe"):
        words.append(f"MoE {facts['experts']}")
    return "  ".join(words)


def _changed_first(settings: list[Setting]) -> list[Setting]:
    """Return what the user or a rule changed first, what is merely stated last."""
    order = {"flag": 0, "environment": 1, "profile": 2, "computed": 3, "engine": 4}
    return sorted(settings, key=lambda s: (order[s.source], not s.beaten))


def _row(setting: Setting, verbose: bool) -> tuple[str, str, str, str]:
    reason = setting.reason.render()
    if setting.beaten:
        lost = ", ".join(f"{beaten.value} ({beaten.source})" for beaten in setting.beaten)
        reason = f"{reason}; {text('plan.beats', lost=lost)}"
    if verbose and setting.origin:
        reason = f"{reason} [{setting.origin}]"
    return setting.name, setting.value or "", setting.source, reason
