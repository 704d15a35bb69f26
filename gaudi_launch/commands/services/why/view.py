"""The explanation of a failed launch, for people and for programs."""

from __future__ import annotations

from typing import Any

from gaudi_launch.cli.console import console
from gaudi_launch.core.base.messages import rendered, text
from gaudi_launch.core.services.diagnosis.diagnose import Cause
from gaudi_launch.core.services.diagnosis.explain import Explanation
from gaudi_launch.core.services.log.excerpt import Excerpt
from gaudi_launch.core.services.log.phase_names import phase_text

# of a log without a known cause
_LOG_LINES, _FEW_LOG_LINES = 30, 15


def to_json(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation for programs."""
    found = explanation.found
    return {
        "schema": 1,
        "log": explanation.log,
        "failed": found.failed,
        "phase": found.phase,
        "permanent": found.permanent,
        "note": rendered(explanation.note),
        "causes": _documents(found.causes, explanation.content),
        "findings": _documents(found.findings, explanation.content),
        "simulated": explanation.simulated,
        "history": [event.to_json() for event in explanation.history],
    }


def _documents(causes: tuple[Cause, ...], content: Excerpt) -> list[dict[str, Any]]:
    """Return causes as JSON, their lines numbered as in the log."""
    documents = [cause.to_json() for cause in causes]
    for document in documents:
        for evidence in document["evidence"]:
            evidence["line"] = content.line_in_file(evidence["line"])
    return documents


def lines_of(explanation: Explanation, *, complete: bool = True) -> list[str]:
    """Return the text of an explanation: the causes with their remedies and evidence.

    Without ``complete`` each has the first line of its evidence, and no source.
    """
    found, content = explanation.found, explanation.content
    lines = _answer(explanation)
    lines += _unexplained(explanation, _LOG_LINES if complete else _FEW_LOG_LINES)
    lines += _lines(found.causes, content, text("diagnose.word_cause"), complete=complete)
    if found.permanent:
        lines.append("\n" + text("diagnose.permanent"))
    if found.findings:
        lines.append("\n" + text("diagnose.findings"))
    lines += _lines(found.findings, content, text("diagnose.word_finding"), complete=complete)
    if explanation.history:
        lines.append("\n" + text("diagnose.history"))
    lines += [f"  {event.render()}" for event in explanation.history]
    if not complete and (found.causes or found.findings):
        lines.append(text("diagnose.more"))
    return [part for line in lines for part in line.split("\n")]


def _answer(explanation: Explanation) -> list[str]:
    """Return how the run ended, the next command, and what is known of the service."""
    lines = [_outcome(explanation)]
    commands = [each for cause in explanation.found.causes for each in cause.commands]
    if commands:
        lines.append(text("page.next", command=commands[0]))
    lines.append(rendered(explanation.note) or "")
    if explanation.simulated:
        lines.append(text("diagnose.simulated"))
    return [line for line in lines if line]


def show(explanation: Explanation, *, complete: bool) -> None:
    """Print the text of an explanation; commands are not folded."""
    out = console()
    for line in lines_of(explanation, complete=complete):
        out.print(line, soft_wrap=line.lstrip().startswith("$ ") or None)


def _outcome(explanation: Explanation) -> str:
    """Return how the run ended; "" where the note is complete."""
    found = explanation.found
    phase = phase_text(found.phase)
    if found.failed and explanation.content.text:
        if found.causes:
            cause = found.causes[0].title.render()
            return text("diagnose.failed_because", phase=phase, cause=cause)
        return text("diagnose.failed", phase=phase)
    if found.causes:
        return text("diagnose.requests")
    # for one that is running or was stopped the note is complete
    if found.failed or explanation.note is not None:
        return ""
    # the engine came up, or the log ends during a launch
    if found.came_up or found.phase in ("ready", "stopping"):
        return text("diagnose.healthy", phase=phase)
    if found.phase == "start":
        return text("diagnose.no_phase")
    done, total = found.at
    progress = text("diagnose.progress", done=done, total=total) if total else ""
    return text("diagnose.unfinished", phase=phase, progress=progress)


def _unexplained(explanation: Explanation, most: int) -> list[str]:
    """Return the end of a failed run's log without a known cause, below its title."""
    found = explanation.found
    last = explanation.content.text.splitlines()[-most:]
    is_explained = found.causes or explanation.note is not None
    if not found.failed or is_explained or not last:
        return []
    return [text("diagnose.none"), *(f"  {line}" for line in last)]


def _lines(causes: tuple[Cause, ...], content: Excerpt, word: str, *, complete: bool) -> list[str]:
    """Return what to do about each cause and its evidence, below its number."""
    lines = []
    for number, cause in enumerate(causes, start=1):
        lines.append(
            "\n" + text("common.pair", label=f"{word} {number}", value=cause.title.render())
        )
        remedy, *notes = cause.remedies
        label = text("diagnose.word_remedy")
        lines.append("  " + text("common.pair", label=label, value=remedy))
        lines += [f"    {note}" for note in notes]
        lines += [f"    $ {command}" for command in cause.commands]
        for line, words in cause.evidence[: None if complete else 1]:
            at = content.line_in_file(line)
            lines.append("  " + text("diagnose.line_at", line=at, words=words))
        if complete:
            source = text("common.pair", label=text("diagnose.word_source"), value=cause.source)
            lines.append(f"  {source}")
    return lines
