"""The difference of two engine versions, for people and for programs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import console, sentences, table
from gaudi_launch.cli.short_page import NotedRow, ShortPage, command_line
from gaudi_launch.core.base.messages import rendered, text
from gaudi_launch.core.base.optional import mapped

if TYPE_CHECKING:
    from gaudi_launch.core.engines.engine_version import Version
    from gaudi_launch.core.planning.plan import Plan
    from gaudi_launch.core.planning.support_answer import LayerCache, ModelSupport
    from gaudi_launch.extensions.migrate.diff.case import (
        EnginesDiff,
        NamesDiff,
        PlannedSide,
        PlansDiff,
    )

# more new names than this are a number, and in --json
_MOST_ADDED = 12
_NUMBERS = ("buckets", "prompt", "decode", "weights", "graphs", "kv", "blocks")


def to_json(found: EnginesDiff) -> dict[str, Any]:
    """Return the difference for programs."""
    return {
        "schema": 1,
        "left": _version(found.left),
        "right": _version(found.right),
        "options": _names(found.options),
        "variables": mapped(_names, found.variables),
        "plans": mapped(_plans, found.plans),
        "problems": [
            {
                "id": each.problem.id,
                "message": each.problem.problem.render(),
                "thread": each.problem.thread,
                "url": each.problem.url,
                "state": each.problem.state,
                "date": each.problem.date,
                "in_left": each.in_left,
                "in_right": each.in_right,
            }
            for each in found.problems
        ],
    }


def _version(version: Version) -> dict[str, Any]:
    return {"engine": version.label, "date": version.date, "commit": version.commit}


def _names(names: NamesDiff) -> dict[str, Any]:
    return {
        "removed": [
            {
                "name": each.name,
                "instead": each.instead or None,
                "source": each.source or None,
                "used": each.name in names.used,
            }
            for each in names.removed
        ],
        "added": list(names.added),
        "changed": [
            {
                "name": each.name,
                "left": each.left,
                "right": each.right,
                "used": each.name in names.used,
            }
            for each in names.changed
        ],
    }


def _plans(plans: PlansDiff) -> dict[str, Any]:
    settings = [
        {
            "name": each.name,
            "left": each.left,
            "right": each.right,
            "reason": rendered(each.reason),
        }
        for each in plans.settings
    ]
    caches = [
        {"kind": each.kind, "left": _cache(each.left), "right": _cache(each.right)}
        for each in plans.caches
    ]
    return {
        "left": _side(plans.left),
        "right": _side(plans.right),
        "settings": settings,
        "kv_cache": caches,
    }


def _cache(cache: LayerCache | None) -> dict[str, Any] | None:
    if cache is None:
        return None
    return {
        "allocates": cache.allocates,
        "message": cache.meaning.render(),
        "source": cache.source or None,
    }


def _side(side: PlannedSide) -> dict[str, Any]:
    return {
        **_support(side.support),
        "refused": rendered(side.refused),
        "numbers": mapped(_plan_numbers, side.plan),
    }


def _support(support: ModelSupport | None) -> dict[str, Any]:
    if support is None:
        return {"status": None, "reasons": [], "evidence": ""}
    return {
        "status": support.status.value,
        "reasons": [each.render() for each in support.reasons],
        "evidence": support.evidence,
    }


def _plan_numbers(plan: Plan) -> dict[str, Any]:
    """Return buckets and memory of one plan; None for what it does not know."""
    gib = plan.memory
    counts: dict[str, int | None] = {"prompt": None, "decode": None}
    if plan.buckets is not None:
        counts = {"prompt": len(plan.buckets.prompt), "decode": len(plan.buckets.decode)}
    return {
        "buckets": plan.bucket_strategy or None,
        **counts,
        "weights": gib.get("weights"),
        "graphs": gib.get("graphs"),
        "kv": gib.get("kv"),
        "blocks": plan.num_blocks,
    }


def show(found: EnginesDiff, *, complete: bool) -> None:
    """Print the answer, the next command, what changes, and known problems."""
    left, right = found.left, found.right
    if complete:
        _show_all(found)
        return
    page = ShortPage(
        [*_verdict(found), command_line(text("engines.diff_next", command=_next(found)))],
        [text("engines.diff_setting"), left.label, right.label],
        _changed_rows(found),
        tail=[
            *_unknown(found),
            text("engines.diff_facts", left=left.date[:7], right=right.date[:7]),
        ],
        warnings=_problems(found),
    )
    page.show(complete=False)


def _verdict(found: EnginesDiff) -> list[str]:
    """Return whether the second version takes over, in sentences."""
    left, right = found.left.label, found.right.label
    names = [found.options, *([found.variables] if found.variables is not None else [])]
    removed, added = (
        sum(len(each.removed) for each in names),
        sum(len(each.added) for each in names),
    )
    changed = sum(len(each.changed) for each in names)
    counts = text(
        "engines.diff_title", left=left, right=right, n=removed, changed=changed, added=added
    )
    if found.plans is None:
        return [counts]
    side = found.plans.right
    if side.refused is not None:
        return [text("engines.diff_refused", engine=right, why=side.refused.render()), counts]
    # every answer of a version is in the complete page
    answer = _answers(found.right, side)[:1]
    settings = text("engines.diff_settings", n=len(found.plans.settings), engine=right)
    return [*answer, settings, counts]


def _next(found: EnginesDiff) -> str:
    left, right = found.left.label, found.right.label
    if found.plans is None:
        return f"gaudi-launch engines diff {left} {right} -w MODEL"
    sides = [(left, found.plans.left), (right, found.plans.right)]
    label, plan = next(
        ((label, side.plan) for label, side in reversed(sides) if side.plan is not None),
        (right, None),
    )
    model = "MODEL" if plan is None else shlex.quote(str(plan.model["path"]))
    return f"gaudi-launch plan {model} --engine {label}"


def _changed_rows(found: EnginesDiff) -> list[NotedRow]:
    """Return what changes: what the plan uses, its settings, then every other name."""
    used: list[NotedRow] = []
    others: list[NotedRow] = []
    for names in (found.options, found.variables):
        for name, before, now in _name_changes(names):
            rows = used if names is not None and name in names.used else others
            rows.append(NotedRow((name, before, now)))
    settings = found.plans.settings if found.plans is not None else ()
    planned = [
        NotedRow((each.name, _sent(each.left), _sent(each.right)), rendered(each.reason) or "")
        for each in settings
    ]
    return [*used, *planned, *others]


def _name_changes(names: NamesDiff | None) -> list[tuple[str, str, str]]:
    """Return (name, before, now) of the removed names and the other defaults."""
    if names is None:
        return []
    rows = []
    for each in names.removed:
        now = text("engines.diff_removed")
        if each.instead:
            now = text("engines.diff_replaced", instead=each.instead)
        rows.append((each.name, text("engines.diff_known"), now))
    rows += [(each.name, str(each.left), str(each.right)) for each in names.changed]
    return rows


def _unknown(found: EnginesDiff) -> list[str]:
    """Return a sentence for each list of names that one version lacks."""
    missing = []
    if not (found.left.complete and found.right.complete):
        missing.append(text("engines.diff_no_options"))
    if found.variables is None:
        missing.append(text("engines.diff_no_variables"))
    return missing


def _show_all(found: EnginesDiff) -> None:
    """Print every difference; what the plan uses first."""
    left, right = found.left, found.right
    out = console()
    for line in _verdict(found):
        out.print(line)
    out.print(text("engines.diff_facts", left=left.date[:7], right=right.date[:7]))
    if found.plans is not None:
        _show_plans(found, found.plans)
    if left.complete and right.complete:
        _show_names(text("engines.diff_options"), found.options)
    if found.variables is not None:
        _show_names(text("engines.diff_variables"), found.variables)
    for line in (*_unknown(found), *_problems(found)):
        out.print(line)


def _show_plans(found: EnginesDiff, plans: PlansDiff) -> None:
    out = console()
    out.print()
    out.print(text("engines.diff_support"), style="bold")
    for version, side in ((found.left, plans.left), (found.right, plans.right)):
        for line in _answers(version, side):
            out.print(line)
    labels = (found.left.label, found.right.label)
    sides = [mapped(_plan_numbers, side.plan) or {} for side in (plans.left, plans.right)]
    rows = [
        (text(f"engines.diff_row_{name}"), *(_cell(side.get(name)) for side in sides))
        for name in _NUMBERS
    ]
    out.print(table(text("engines.diff_numbers"), ["", *labels], rows, right=(1, 2)))
    if plans.caches:
        kinds = [
            (text(f"support.kind_{each.kind}"), _meaning(each.left), _meaning(each.right))
            for each in plans.caches
        ]
        out.print(table(text("engines.diff_cache"), [text("engines.diff_layers"), *labels], kinds))
    if plans.settings:
        changed = [
            NotedRow((each.name, _sent(each.left), _sent(each.right)), rendered(each.reason) or "")
            for each in plans.settings
        ]
        page = ShortPage([], [text("engines.diff_setting"), *labels], changed)
        page.show(complete=True)


def _answers(version: Version, side: PlannedSide) -> list[str]:
    """Return the answer of a version to the model, and why it refuses the plan."""
    found = []
    if side.support is not None:
        answer = text(f"support.answer_{side.support.status.value}")
        why = sentences(*(each.render() for each in side.support.reasons))
        line = text("engines.diff_answer", engine=version.label, answer=answer, why=why)
        found.append(line.rstrip())
    if side.refused is not None:
        why = side.refused.render()
        found.append(text("engines.diff_refused", engine=version.label, why=why))
    return found


def _meaning(cache: LayerCache | None) -> str:
    if cache is None:
        return "-"
    return cache.meaning.render()


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    return str(value)


def _sent(value: str | None) -> str:
    """Return a setting's value; "+" for a bare option, "-" for one that is not sent."""
    if value is None:
        return "-"
    return value or "+"


def _show_names(title: str, names: NamesDiff) -> None:
    out = console()
    rows = []
    for each in names.removed:
        what = text("engines.diff_removed")
        if each.instead:
            what = text("engines.diff_replaced", instead=each.instead)
        rows.append((each.name in names.used, each.name, what))
    for change in names.changed:
        what = text("engines.diff_default", left=change.left, right=change.right)
        rows.append((change.name in names.used, change.name, what))
    rows.sort(key=lambda row: (not row[0], row[1]))
    lines = [
        (name, text("engines.diff_used", what=what) if used else what) for used, name, what in rows
    ]
    if lines:
        out.print(table(title, ["", ""], lines))
    else:
        out.print()
        line = text("common.pair", label=title, value=text("engines.diff_same"))
        out.print(line)
    if names.added:
        out.print(_added(names.added))


def _added(names: tuple[str, ...]) -> str:
    """Return the new names; only their number where there are many."""
    if len(names) > _MOST_ADDED:
        return text("engines.diff_many_added", count=len(names))
    return text("engines.diff_added", names=", ".join(names))


def _problems(found: EnginesDiff) -> list[str]:
    """Return the known problems, each with the versions that have it and its thread."""
    if not found.problems:
        return [text("engines.diff_no_problems")]
    lines = []
    for each in found.problems:
        having = [found.left.label] * each.in_left + [found.right.label] * each.in_right
        state = text(f"engines.diff_{each.problem.state}")
        if each.problem.date:
            state = text("engines.diff_dated", state=state, date=each.problem.date)
        line = text(
            "engines.diff_problem",
            text=each.problem.problem.render(),
            engines=", ".join(dict.fromkeys(having)),
            thread=each.problem.thread,
            state=state,
        )
        lines.append(line)
    return lines
