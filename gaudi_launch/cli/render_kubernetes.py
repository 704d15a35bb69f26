"""``gaudi-launch render kubernetes``: plans as Kubernetes objects, a kustomization or a Helm chart."""

from __future__ import annotations

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
        "", "--to", metavar="DIR|FILE", help="Where to write (default: stdout).", rich_help_panel=_OUTPUT
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
    from gaudi_launch.cli.render_case import hand_over
    from gaudi_launch.errors import ExitCode, LaunchError

    if helm and (out or kustomize):
        raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one="--helm", other="--to")
    rendered, release = rendering(asked, wished, kustomize=kustomize, helm=bool(helm))
    # a chart is a folder, whatever is in it
    output = f"{helm}/" if helm else out or None
    hand_over(rendered, "kubernetes", release, output, bool(asked["force"]), as_json)


def rendering(
    asked: dict[str, Any], wished: dict[str, Any], *, kustomize: bool, helm: bool
) -> tuple[Rendered, str]:
    """Everything but the writing; and the name of it all."""
    from gaudi_launch.cli import kubernetes_models as models
    from gaudi_launch.cli.kubernetes_options import to_cluster
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.host.accelerators import instances
    from gaudi_launch.render.kubernetes_served import release_name

    # words of a plan for Ray on one machine; here they are the cluster's
    wished = {**wished, "replicas": asked.get("replicas"), "requests": asked.get("target_ongoing")}
    asked = {**asked, "replicas": None, "target_ongoing": None}
    pages = _pages(wished["hugepages"])
    if wished["accelerator"] in instances():
        release = release_name(wished["name"], asked["model"] or "")
        if not asked["model"]:
            raise LaunchError("plan.no_model", ExitCode.USAGE)
        cluster = to_cluster(wished, release, [])
        served = [models.neuron(asked, wished, release, cluster)]
        return _rendered(served, cluster, kustomize=kustomize, helm=helm), release
    words = [asked, *(models.words_of(text) for text in wished["others"])]
    every = [models.at_home(each, asked["machine"], wished["accelerator"]) for each in words]
    release = release_name(wished["name"], every[0]["model"] or "")
    planned = [models.planned(each, wished) for each in every]
    cluster = to_cluster(wished, release, [each.container for each in planned])
    served = models.serve_all(
        planned, [each["model"] for each in every], release, cluster, pages, not wished["no_recipes"]
    )
    return _rendered(served, cluster, kustomize=kustomize, helm=helm), release


def _pages(text: str) -> int | None:
    """MiB a card of ``--hugepages``, None without it. Raises LaunchError (USAGE): not whole pages."""
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.planning.asked import number

    if not text:
        return None
    found = number("--hugepages", text, 0, 1 << 20)
    if found % 2:
        below, above = found - 1, found + 1
        raise LaunchError("kubernetes.hugepages_odd", ExitCode.USAGE, found=found, below=below, above=above)
    return found


def _rendered(served: list[Served], cluster: Cluster, *, kustomize: bool, helm: bool) -> Rendered:
    if helm:
        from gaudi_launch.render.helm import chart

        return chart(served, cluster)
    from gaudi_launch.render.kubernetes import render

    return render(served, cluster, kustomize=kustomize)
