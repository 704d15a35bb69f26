"""The complete plan: each setting with its source, and each reason once."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from gaudi_launch.cli.console import beside, console, labelled
from gaudi_launch.cli.short_page import ShortPage
from gaudi_launch.cli.views.memory_bar import memory_words
from gaudi_launch.cli.views.speed import summary
from gaudi_launch.commands.plan.view import engine_line, first_lines, model_line
from gaudi_launch.core.base.durations import span
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.host.cpus import format_cpus

if TYPE_CHECKING:
    from rich.console import Console

    from gaudi_launch.core.launch.todo import CheckedPlan
    from gaudi_launch.core.planning.placement import Placement
    from gaudi_launch.core.planning.plan import Plan, Setting
    from gaudi_launch.core.predict.simulate import Outcome


def show_all(
    checked: CheckedPlan,
    speed: Outcome | None,
    serve_command: Sequence[str],
    *,
    verbose: bool,
) -> None:
    """Print everything that a plan has; ``verbose``: also the sources of its rules."""
    out = console()
    made, prepared = checked.plan, checked.prepared
    ShortPage([*first_lines(checked, serve_command), ""]).show(complete=True)
    for id, value in _facts(checked, speed):
        for line in labelled(text(id) if id else "", Text(value), out):
            out.print(line)
    _show_rules(out, made.settings, verbose=verbose)
    out.print()
    if made.container is not None:
        # the command that is started, for those who run it manually
        out.print(f"$ {shlex.join(made.command.argv)}", soft_wrap=True)
    if made.reference_differences:
        out.print(text("reference.title"))
    for difference in made.reference_differences:
        out.print(f"  - {difference.render()}")
    for warning in made.warnings:
        out.print(text("plan.warning", what=warning.render()))
    if prepared.host.origin != "live":
        out.print(text("plan.for_machine", machine=prepared.host.origin))


def _facts(checked: CheckedPlan, speed: Outcome | None) -> Iterator[tuple[str, str]]:
    """Yield the id of each line's label, empty for a line without one, and its text."""
    made = checked.plan
    python = f", {made.engine.python}" if made.engine.python else ""
    yield "plan.word_engine", f"{engine_line(made)}{python}"
    yield "plan.word_model", model_line(made)
    if made.placement.modules:
        yield from _placement_facts(made.placement)
    yield "plan.word_url", made.url
    yield from _warmup_facts(made)
    if speed is not None:
        yield "plan.word_speed", summary(speed)
    if made.cache:
        state = text(f"plan.cache_{made.cache['state']}")
        found = text("common.pair", label=state, value=made.cache["because"])
        yield "plan.word_cache", f"{found} ({made.cache['folder']})"
    if made.memory:
        yield "plan.word_memory", memory_words(made.memory)
    if made.kv_cache is not None:
        yield "plan.word_kv", made.kv_cache.render()
    for step in checked.prepared.steps:
        if step.done:
            value = text("common.pair", label=text("prepare.done"), value=step.what.render())
            yield "prepare.title", value
    for each in checked.todo:
        yield "plan.word_todo", each.what.render()
        if each.command:
            yield "", f"$ {shlex.join(each.command)}"


def _placement_facts(placement: Placement) -> Iterator[tuple[str, str]]:
    cards = ",".join(str(module) for module in placement.modules)
    nodes = ",".join(str(node) for node in placement.numa_nodes) or "-"
    yield "plan.word_cards", f"{cards}  (NUMA {nodes})"
    yield "plan.word_cpus", format_cpus(placement.cpus) or text("plan.cpus_unbound")
    for reason in placement.reasons:
        yield "", reason.render()


def _warmup_facts(made: Plan) -> Iterator[tuple[str, str]]:
    if made.buckets is not None:
        prompt, decode = len(made.buckets.prompt), len(made.buckets.decode)
        counts = text("plan.buckets", prompt=prompt, decode=decode, graphs=made.buckets.graphs)
        yield "plan.word_buckets", text("common.pair", label=made.bucket_strategy, value=counts)
    if made.estimate is not None:
        time = span(made.estimate.low_seconds, made.estimate.high_seconds)
        yield "plan.word_warmup", f"{time}  ({made.estimate.reason.render()})"


def _show_rules(out: Console, settings: Sequence[Setting], *, verbose: bool) -> None:
    """Print the settings of each kind, then with ``verbose`` the sources by number."""
    # the number of each source, in the order of the rules
    sources: dict[str, int] | None = {} if verbose else None
    for kind in ("env", "option"):
        of_kind = [setting for setting in settings if setting.kind == kind]
        if of_kind:
            out.print(f"\n{text(f'plan.title_{kind}')}", style="bold")
            _show_settings(out, of_kind, sources)
    if sources:
        out.print(f"\n{text('plan.title_sources')}", style="bold")
    for source, number in (sources or {}).items():
        for folded in beside(Text(f" {number:>2}  "), Text(source), out):
            out.print(folded)


def _show_settings(
    out: Console, settings: Sequence[Setting], sources: dict[str, int] | None
) -> None:
    """Print settings below their source and reason, each reason once."""
    widest = max(len(setting.name) for setting in settings)
    for (source, reason), same in _by_reason(settings, sources).items():
        line = text("common.pair", label=text(f"plan.source_{source}"), value=reason)
        for folded in beside(Text(), Text(line, style="dim"), out):
            out.print(folded)
        for setting in same:
            out.print(
                f"   {setting.name:<{widest}}  {setting.value or ''}".rstrip(),
                soft_wrap=True,
            )


def _by_reason(
    settings: Sequence[Setting], sources: dict[str, int] | None
) -> dict[tuple[str, str], list[Setting]]:
    """Group settings by source and reason.

    Changes by the user or a rule come first, defaults last.
    """
    order = {"flag": 0, "environment": 1, "profile": 2, "computed": 3, "engine": 4}
    groups: dict[tuple[str, str], list[Setting]] = {}
    for setting in sorted(settings, key=lambda each: (order[each.source], not each.beaten)):
        groups.setdefault((setting.source, _reason(setting, sources)), []).append(setting)
    return groups


def _reason(setting: Setting, sources: dict[str, int] | None) -> str:
    reason = setting.reason.render()
    if setting.beaten:
        lost = ", ".join(
            f"{each.value} ({text(f'plan.source_{each.source}')})" for each in setting.beaten
        )
        reason = f"{reason}; {text('plan.beats', lost=lost)}"
    if sources is not None and setting.origin:
        reason = f"{reason} [{sources.setdefault(setting.origin, len(sources) + 1)}]"
    return reason
