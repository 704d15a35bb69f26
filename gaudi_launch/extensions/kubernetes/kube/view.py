"""Deployments in a cluster, with what each pod waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gaudi_launch.cli.console import known
from gaudi_launch.cli.short_page import NotedRow, ShortPage, next_line
from gaudi_launch.core.base.durations import duration
from gaudi_launch.core.base.messages import rendered, text

if TYPE_CHECKING:
    from rich.text import Text

    from gaudi_launch.extensions.kubernetes.status import Status


def show(found: Sequence[Status], *, complete: bool = False) -> None:
    """Print how many deployments are ready, the next command, and the pods."""
    pods = [(each, pod) for each in found for pod in each.pods]
    if not found:
        head: list[str | Text] = [
            text("kube.none"),
            next_line("gaudi-launch render kubernetes MODEL"),
        ]
    else:
        count, ready = len(found), sum(each.ready for each in found)
        head = [text("kube.answer", count=count, ready=ready), next_line(_next(found))]
    columns = [text(f"kube.column_{name}") for name in ("pod", "phase", "age", "restarts", "node")]
    rows = [
        NotedRow(
            (
                pod.name,
                text(f"kube.phase_{pod.phase}"),
                duration(pod.seconds),
                str(pod.restarts),
                known(pod.node or None),
            ),
            rendered(pod.why) or "",
        )
        for _, pod in sorted(pods, key=lambda pair: pair[1].phase == "ready")
    ]
    lines = []
    for each in found:
        replicas = [f"{one.kind} {one.name} {one.ready}/{one.wanted}" for one in each.workloads]
        value = text("common.between").join(replicas) or text("common.none")
        lines.append(text("common.pair", label=each.name, value=value))
    page = ShortPage(
        head, columns, rows, right=(2, 3), warnings=lines, left_out="kube.more_deployments"
    )
    page.show(complete=complete)


def _next(found: Sequence[Status]) -> str:
    """Return the command that explains the first deployment that is not ready."""
    failed = next((each for each in found if any(p.phase == "failed" for p in each.pods)), None)
    if failed is not None:
        return f"gaudi-launch kube logs {failed.name} --previous | gaudi-launch why -"
    waiting = next((each for each in found if not each.ready), found[0])
    return f"gaudi-launch kube logs {waiting.name} -f"
