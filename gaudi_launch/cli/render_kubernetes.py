"""``gaudi-launch render kubernetes``: plans as Kubernetes objects, a kustomization or a Helm chart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.kubernetes_options import of_the_cluster
from gaudi_launch.cli.options import shared

if TYPE_CHECKING:
    from gaudi_launch.render.kubernetes_records import Cluster, Served
    from gaudi_launch.render.records import Rendered

_OUTPUT = "Output"


@shared
@of_the_cluster
def kubernetes(
    asked: dict[str, Any],
    wished: dict[str, Any],
    out: str = typer.Option(
        "", "--to", metavar="DIR", help="Write files there (default: stdout).", rich_help_panel=_OUTPUT
    ),
    kustomize: bool = typer.Option(
        False, "--kustomize", help="Also a kustomization.yaml.", rich_help_panel=_OUTPUT
    ),
    helm: str = typer.Option("", "--helm", metavar="DIR", help="Write a Helm chart.", rich_help_panel=_OUTPUT),
    as_json: bool = typer.Option(
        False, "--json", help="Files and notes as one JSON object.", rich_help_panel=_OUTPUT
    ),
) -> None:
    """Write a plan as Deployment, LeaderWorkerSet or RayService, with claims, probes, scaling and Services.

    Everything is checked against the API's own schemas before a file is written.
    """
    from gaudi_launch.errors import ExitCode, LaunchError

    if helm and (out or kustomize):
        raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one="--helm", other="--to")
    rendered = rendering(asked, wished, kustomize=kustomize, helm=bool(helm))
    deliver(rendered, helm or out, bool(asked["force"]), as_json)


def rendering(asked: dict[str, Any], wished: dict[str, Any], *, kustomize: bool, helm: bool) -> Rendered:
    """Everything but the writing."""
    from gaudi_launch.cli import kubernetes_models as models
    from gaudi_launch.cli.kubernetes_options import to_cluster
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.host.accelerators import instances
    from gaudi_launch.planning.asked import number
    from gaudi_launch.render.kubernetes_served import release_name

    # words of a plan for Ray on one machine; here they are the cluster's
    wished = {**wished, "replicas": asked.get("replicas"), "requests": asked.get("target_ongoing")}
    asked = {**asked, "replicas": None, "target_ongoing": None}
    pages = number("--hugepages", wished["hugepages"], 0, 1 << 20) if wished["hugepages"] else None
    if wished["accelerator"] in instances():
        release = release_name(wished["name"], asked["model"] or "")
        if not asked["model"]:
            raise LaunchError("plan.no_model", ExitCode.USAGE)
        cluster = to_cluster(wished, release, [])
        served = [models.neuron(asked, wished, release, cluster)]
        return _rendered(served, cluster, kustomize=kustomize, helm=helm)
    words = [asked, *(models.words_of(text) for text in wished["others"])]
    every = [models.at_home(each, asked["machine"], wished["accelerator"]) for each in words]
    release = release_name(wished["name"], every[0]["model"] or "")
    planned = [models.planned(each, wished["image"], wished["kind"] == "leaderworkerset") for each in every]
    cluster = to_cluster(wished, release, [each.container for each in planned])
    served = models.serve_all(
        planned, [each["model"] for each in every], release, cluster, pages, not wished["no_recipes"]
    )
    return _rendered(served, cluster, kustomize=kustomize, helm=helm)


def _rendered(served: list[Served], cluster: Cluster, *, kustomize: bool, helm: bool) -> Rendered:
    if helm:
        from gaudi_launch.render.helm import chart

        return chart(served, cluster)
    from gaudi_launch.render.kubernetes import render

    return render(served, cluster, kustomize=kustomize)


def deliver(rendered: Rendered, folder: str, force: bool, as_json: bool) -> None:
    """Files into a folder, or the first one on stdout; notes on stderr."""
    import sys

    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.messages import text
    from gaudi_launch.render.write import write

    written = write(rendered, Path(folder), force=force) if folder else ()
    if as_json:
        notes = [{"id": note.id, "message": note.render()} for note in rendered.notes]
        emit_json({"schema": 1, "files": dict(rendered.files), "folder": folder or None, "notes": notes})
        return
    if folder:
        for name in written:
            print(Path(folder) / name)
    else:
        print(next(iter(rendered.files.values())), end="")
        rest = list(rendered.files)[1:]
        if rest:
            print(text("kubernetes.more_files", files=", ".join(rest)), file=sys.stderr)
    for note in rendered.notes:
        print(note.render(), file=sys.stderr)
