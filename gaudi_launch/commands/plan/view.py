"""The first screen of a plan, within 24 lines.

It shows verdict, next command, cards, memory, time and warnings.

The complete plan is `commands.plan.all_view`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gaudi_launch.cli.console import LABEL_WIDTH, can_show, console, labelled
from gaudi_launch.cli.short_page import ShortPage, command_line, first_sentence, next_line
from gaudi_launch.cli.views.memory_bar import PARTS, bar, legend
from gaudi_launch.cli.views.speed import summary
from gaudi_launch.core.base.durations import span
from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from gaudi_launch.core.launch.todo import CheckedPlan
    from gaudi_launch.core.planning.plan import Plan
    from gaudi_launch.core.predict.simulate import Outcome

# short forms of the sentences of buckets/warmup_time.py
_EVIDENCE = {
    "warmup.basis_published": "plan.start_published",
    "warmup.basis_measured": "plan.start_measured",
    "warmup.basis_similar": "plan.start_similar",
}


def show(checked: CheckedPlan, speed: Outcome | None, serve_command: Sequence[str]) -> None:
    """Print the first screen; ``serve_command`` is what would start this plan."""
    head, facts = first_lines(checked, serve_command), _facts(checked, speed, console())
    page = ShortPage([*head, "", *facts], tail=_end(checked), warnings=_warnings(checked))
    page.show(complete=False)


def first_lines(checked: CheckedPlan, serve_command: Sequence[str]) -> list[Text]:
    """Return the verdict, and the command to type next."""
    from rich.text import Text

    command = _next(checked, serve_command)
    lines = [next_line(shlex.join(command))] if command else []
    return [Text(*_verdict(checked)), *lines]


def _verdict(checked: CheckedPlan) -> tuple[str, str]:
    """Return the sentence, and its style on a terminal."""
    made = checked.plan
    count = len(made.placement.modules)
    values = {"model": made.model["name"] or made.model["path"], "cards": count}
    if checked.refusal is not None:
        return checked.refusal.text.render(), "bold red"
    if checked.failed and checked.prepared.host.origin == "live":
        why = " ".join(finding.message.render() for finding in checked.failed)
        return text("plan.verdict_stops", why=why), "bold red"
    if not made.placement.modules:
        return text("plan.verdict_cpu", **values), "bold green"
    if checked.prepared.model.is_only_a_name:
        return text("plan.verdict_unknown", **values), "bold yellow"
    if not made.memory:
        return text("plan.verdict_unchecked", **values), "bold yellow"
    if made.num_blocks is None and made.memory["free"] <= 0:
        return text("plan.verdict_too_large", **values), "bold red"
    if any(warning.id == "fit.tight" for warning in made.warnings):
        return text("plan.verdict_tight", **values), "bold yellow"
    return text("plan.verdict_fits", **values), "bold green"


def _facts(checked: CheckedPlan, speed: Outcome | None, out: Console) -> list[Text]:
    """Return the lines between the verdict and the warnings, each below a label."""
    from rich.text import Text

    made = checked.plan
    lines: list[Text] = []

    def row(id: str | None, value: str | Text) -> None:
        label = "" if id is None else text(id)
        lines.extend(labelled(label, Text(value) if isinstance(value, str) else value, out))

    row("plan.word_engine", engine_line(made))
    row("plan.word_model", model_line(made))
    if made.placement.modules:
        choice = made.placement.choice
        row(
            "plan.word_cards",
            _cards(checked) if choice is None else f"{_cards(checked)}  {choice.render()}",
        )
    if made.memory:
        ascii = not can_show("".join(part.mark for part in PARTS), out)
        row("plan.word_card_memory", bar(made.memory, out.width - LABEL_WIDTH - 1, ascii=ascii))
        row(None, legend(made.memory, made.kv_tokens, ascii=ascii))
    if made.placement.modules:
        row("plan.word_start", _start_time(made))
    if speed is not None:
        row("plan.word_speed", summary(speed))
    for number, each in enumerate(checked.todo):
        # without a command the sentences say what to do
        what = str(first_sentence(each.what.render())) if each.command else each.what.render()
        row(None if number else "plan.word_todo", what)
        if each.line:
            lines.append(command_line(f"{' ' * LABEL_WIDTH} {each.line}"))
    return lines


def engine_line(made: Plan) -> str:
    """Return the engine with the month of its facts."""
    if not made.engine.facts_date:
        return made.engine.exact
    facts = text("engines.as_of", month=made.engine.facts_date[:7])
    return f"{made.engine.exact}, {facts}"


def model_line(made: Plan) -> str:
    """Return the model with its architecture, parameters and experts."""
    facts = made.model
    words = [str(facts["path"])]
    if facts.get("architecture"):
        words.append(str(facts["architecture"]))
    if facts.get("parameters"):
        words.append(f"{facts['parameters'] / 1e9:.1f}B")
    if facts.get("moe"):
        words.append(f"MoE {facts['experts']}")
    return "  ".join(words)


def _cards(checked: CheckedPlan) -> str:
    modules = ",".join(str(module) for module in checked.plan.placement.modules)
    return text("plan.cards_of", modules=modules, all=len(checked.prepared.host.cards))


def _start_time(made: Plan) -> str:
    """Return how long the warm-up is expected to take, and on what evidence."""
    if made.skips_warmup:
        return text("plan.start_skipped")
    if made.estimate is None:
        return text("plan.start_unknown")
    evidence = text(_EVIDENCE[made.estimate.basis.id])
    if made.estimate.cached:
        evidence = text("plan.start_cached", graphs=made.estimate.cached, evidence=evidence)
    return text(
        "plan.start_warmup",
        time=span(made.estimate.low_seconds, made.estimate.high_seconds),
        graphs=made.buckets.graphs if made.buckets is not None else 0,
        evidence=evidence,
    )


def _warnings(checked: CheckedPlan) -> list[Text]:
    """Return the warnings: failed checks, memory, then the others."""
    failed = [finding.message for finding in checked.failed]
    others = [each for each in checked.plan.warnings if each not in failed]
    others.sort(key=lambda each: not each.id.startswith("fit."))
    # the first line names them
    if checked.prepared.host.origin == "live":
        failed = []
    refusal = checked.refusal
    others = [each for each in others if refusal is None or each != refusal.text]
    return [
        *(_warning(each.render(), "bold red") for each in failed),
        *(_warning(each.render(), "yellow") for each in others),
    ]


def _warning(sentence: str, style: str) -> Text:
    from rich.text import Text

    found = Text(text("plan.warning", what=sentence))
    found.stylize(style, 0, len(text("plan.word_warning")))
    return found


def _next(checked: CheckedPlan, serve_command: Sequence[str]) -> Sequence[str] | None:
    """Return the one command to run now; None where there is none."""
    host = checked.prepared.host
    if checked.incomplete is not None:
        return ("gaudi-launch", "inspect", checked.prepared.model.path)
    if checked.failed and host.origin == "live":
        checks = ",".join(finding.id for finding in checked.failed)
        return ("gaudi-launch", "doctor", "--only", checks)
    left = [each.command for each in checked.todo if not each.by_serve] + [tuple(serve_command)]
    return next(filter(None, left), None)


def _end(checked: CheckedPlan) -> list[str]:
    """Return which machine was planned for, and what --all shows."""
    made, host = checked.plan, checked.prepared.host
    lines = []
    if host.origin != "live":
        lines.append(text("plan.for_machine", machine=host.origin))
    if made.reference_differences:
        lines.append(text("reference.count", count=len(made.reference_differences)))
    lines.append(text("plan.more", count=len(made.settings)))
    return lines
