"""Deployments in a cluster, with what each pod waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gaudi_launch.cli.console import console, table
from gaudi_launch.core.base.messages import rendered, text

if TYPE_CHECKING:
    from gaudi_launch.extensions.kubernetes.status import Status


def show(found: Sequence[Status]) -> None:
    """Print each deployment with its workloads and pods."""
    out = console()
    if not found:
        out.print(text("kube.none"))
    for each in found:
        counts = ", ".join(f"{w.kind} {w.name} {w.ready}/{w.wanted}" for w in each.workloads)
        out.print(text("common.pair", label=each.name, value=counts or "-"))
        columns = [
            text(f"kube.column_{word}")
            for word in ("pod", "phase", "age", "restarts", "node", "why")
        ]
        rows = [
            (
                pod.name,
                text(f"kube.phase_{pod.phase}"),
                f"{pod.seconds} s",
                str(pod.restarts),
                pod.node or "-",
                rendered(pod.why) or "",
            )
            for pod in each.pods
        ]
        if rows:
            out.print(table("", columns, rows, right=(2, 3)))
