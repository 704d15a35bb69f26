"""The models of one rendering: each planned on its own, on a node of the kind that the cluster has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.options import shared

if TYPE_CHECKING:
    from gaudi_launch.host.config import HostConfig
    from gaudi_launch.host.records import Host
    from gaudi_launch.messages import Message
    from gaudi_launch.models.records import Model
    from gaudi_launch.planning.container import Container
    from gaudi_launch.planning.plan import Plan
    from gaudi_launch.render.kubernetes_needs import Needs
    from gaudi_launch.render.kubernetes_records import Cluster, Served

# product -> the simulated machine that stands for a node of it
NODES = {"gaudi2": "hls2", "gaudi2e": "gaudi2e-8", "gaudi3": "gaudi3-oam", "gaudi3-pcie": "gaudi3-pcie"}
_more = typer.Typer()


@dataclass(frozen=True)
class Planned:
    """One model: its plan on one node, and what that node is."""

    plan: Plan
    container: Container
    host: Host
    config: HostConfig
    model: Model

    @property
    def cards(self) -> int:
        return len(self.plan.placement.modules)

    @property
    def weights(self) -> float | None:
        """Bytes, as they lie on the disk."""
        from gaudi_launch.models.sizing import weight_bytes

        model = self.model
        return model.weight_bytes or weight_bytes(model, model.quantization or model.dtype or "bfloat16")


@_more.command()
@shared
def _one_more(asked: dict[str, Any]) -> dict[str, Any]:
    """Only to read the words of ``--with`` as those of any command."""
    return asked


def words_of(text: str) -> dict[str, Any]:
    """The options in ``--with '-w MODEL -n 1'``. Raises LaunchError (USAGE), or what the parser raises."""
    import shlex

    from gaudi_launch.errors import ExitCode, LaunchError

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise LaunchError("kubernetes.words", ExitCode.USAGE, found=text, why=str(error)) from None
    command = typer.main.get_command(_more)
    asked: dict[str, Any] = command(args=words, prog_name="--with", standalone_mode=False)
    if not isinstance(asked, dict):  # --help has shown itself
        raise typer.Exit()
    return asked


def at_home(asked: dict[str, Any], machine: str | None, accelerator: str) -> dict[str, Any]:
    """The options as they are meant inside a cluster: its nodes, port 8000, and a folder by its whole path."""
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.host.accelerators import instances
    from gaudi_launch.models.config import looks_like_hub_id

    asked = dict(asked)
    if accelerator:
        if accelerator not in NODES:
            known = ", ".join([*NODES, *instances()])
            raise LaunchError(
                "kubernetes.one_of", ExitCode.USAGE, option="--accelerator", found=accelerator, known=known
            )
        if asked["machine"]:
            raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one="--accelerator", other="--machine")
        asked["machine"] = f"simulated:{NODES[accelerator]}"
    asked["machine"] = asked["machine"] or machine
    asked["port"] = asked["port"] or "8000"
    model = asked["model"]
    if model and not looks_like_hub_id(model) and model != "demo":
        asked["model"] = str(Path(model).absolute())
    return asked


def planned(asked: dict[str, Any], image: str, several_nodes: bool) -> Planned:
    """Raises LaunchError as `plan` does; over several nodes a model may be larger than one of them."""
    from dataclasses import replace

    from gaudi_launch.cli.options import prepare
    from gaudi_launch.host.config import load_config
    from gaudi_launch.paths import cache_dir
    from gaudi_launch.recipe_cache.use import with_cache
    from gaudi_launch.render.container import container_of

    prepared = prepare(asked, must_exist=False)
    if several_nodes:
        prepared = replace(prepared, request=replace(prepared.request, force=True))
    plan = prepared.plan()
    cached = with_cache(plan, prepared.request, prepared.host, cache_dir(), look=False)
    plan = _by_name(cached.plan if cached is not None else plan, prepared.request.model, asked["model"])
    container = container_of(
        plan, prepared.host, environment=prepared.request.environment, image=image or None, own_network=True
    )
    return Planned(plan, container, prepared.host, load_config(asked["machine"]), prepared.model)


def _by_name(plan: Plan, folder: str, asked: str) -> Plan:
    """A hub id that has a copy on this machine is a hub id still: the copy is not on the nodes."""
    from dataclasses import replace

    from gaudi_launch.models.config import looks_like_hub_id

    if not looks_like_hub_id(asked) or folder == asked:
        return plan
    argv = tuple(asked if word == folder else word for word in plan.command.argv)
    return replace(plan, command=replace(plan.command, argv=argv), model={**plan.model, "path": asked})


def serve_all(
    every: list[Planned], names: list[str], release: str, cluster: Cluster, pages: int | None, recipes: bool
) -> list[Served]:
    """The models as they are rendered. Raises LaunchError for what no node of theirs can hold."""
    from dataclasses import replace

    from gaudi_launch.render.kubernetes_served import LONGEST, LONGEST_RAY, keys_of, served_of

    _refuse(every, cluster)
    found = []
    for each, key in zip(every, keys_of(names), strict=True):
        served = served_of(
            each.plan,
            _container(each, cluster),
            _needs(each, cluster, pages),
            release,
            key,
            alone=len(every) == 1,
            longest=LONGEST_RAY if cluster.kind == "rayservice" else LONGEST,
        )
        if cluster.kind == "leaderworkerset":
            served = replace(served, env_from={"VLLM_HOST_IP": "status.podIP"})
        found.append(served if recipes else replace(served, recipe_key="", recipe_mib=0))
    return found


def _refuse(every: list[Planned], cluster: Cluster) -> None:
    from gaudi_launch.errors import ExitCode, LaunchError

    if len(every) > 1 and cluster.kind != "deployment":
        raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one="--with", other=f"--kind {cluster.kind}")
    wanted, there = sum(each.cards for each in every), len(every[0].host.cards)
    if len(every) > 1 and wanted > there:
        raise LaunchError("kubernetes.cards", ExitCode.MACHINE, wanted=wanted, there=there)
    first = every[0]
    if cluster.nodes > 1:
        if first.cards != there:
            raise LaunchError("kubernetes.whole_nodes", ExitCode.USAGE, found=first.cards, there=there)
        _refuse_too_large(first, cluster.nodes)


def _refuse_too_large(each: Planned, nodes: int) -> None:
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.host.accelerators import accelerators

    product = accelerators().get(each.host.product or "")
    usable = product and (product.memory_usable_mib or product.memory_total_mib)
    share = (each.weights or 0) / (each.cards * nodes) / (1 << 20)
    if usable and share > 0.9 * usable:
        raise LaunchError(
            "kubernetes.too_large", ExitCode.MACHINE, nodes=nodes, share=round(share / 1024), card=usable // 1024
        )


def _container(each: Planned, cluster: Cluster) -> Container:
    """The engine's container as this kind of object needs it."""
    from dataclasses import replace

    from gaudi_launch.render.kubernetes_records import PORT
    from gaudi_launch.render.leaderworkerset import across

    if cluster.kind == "rayservice":
        # Serve's proxy on the pod stands before the engine, whose port nobody outside knows
        return replace(each.container, ports=((PORT, PORT),), health="/-/healthz")
    if cluster.kind == "deployment":
        return each.container
    return across(each.container, each.cards, cluster, each.model.heads, each.model.layers)


def _needs(each: Planned, cluster: Cluster, pages: int | None) -> Needs:
    from dataclasses import replace

    from gaudi_launch.messages import message
    from gaudi_launch.render.kubernetes_needs import needs_of

    needs = needs_of(
        each.cards,
        each.host,
        each.config,
        each.weights,
        each.container.start_seconds,
        pages,
        cluster.nodes,
        fetched=not str(each.plan.model["path"]).startswith("/"),
    )
    more: list[Message] = []
    if 1 < each.cards < len(each.host.cards) and len(each.host.groups) > 1:
        more.append(message("kubernetes.groups", cards=each.cards))
    return replace(needs, notes=(*needs.notes, *more))


def neuron(asked: dict[str, Any], wished: dict[str, Any], release: str, cluster: Cluster) -> Served:
    """The model on Inferentia, as the public example serves it. Raises LaunchError (USAGE) for options of a plan,
    which mean nothing to that example's application."""
    from gaudi_launch.cli.options import OPTIONS
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.host.accelerators import instances
    from gaudi_launch.planning.asked import number
    from gaudi_launch.profiles import known_model
    from gaudi_launch.render.neuron import neuron_served

    known = ("model", "cards", "force")
    given = [option.names[0] for option in OPTIONS if asked.get(option.field) and option.field not in known]
    given += [name for name, there in (("--with", wished["others"]), ("--", asked["extra"])) if there]
    if given:
        raise LaunchError(
            "kubernetes.not_with",
            ExitCode.USAGE,
            one=", ".join(given),
            other=f"--accelerator {wished['accelerator']}",
        )
    return neuron_served(
        known_model(asked["model"], must_exist=False),
        instances()[wished["accelerator"]],
        release,
        number("-n", asked["cards"], 1, 64) if asked["cards"] else None,
        wished["image"],
        (cluster.replicas, cluster.max_replicas),
    )
