"""The models of one rendering: each planned on its own, on a node of the kind that the cluster has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.options import shared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gaudi_launch.cli.options import Prepared
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
    files: Mapping[str, str]

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
    asked["model"] = _in_pods(asked["model"])
    return asked


def _in_pods(model: str | None) -> str | None:
    """The model's name as every pod knows it: of a folder the whole path."""
    from gaudi_launch.models.config import looks_like_hub_id

    if not model or model == "demo" or looks_like_hub_id(model):
        return model
    # no shell has expanded the words of --with
    return str(Path(model).expanduser().absolute())


def planned(asked: dict[str, Any], wished: dict[str, Any]) -> Planned:
    """One model. Raises LaunchError as `plan` does."""
    from dataclasses import replace

    from gaudi_launch.cli.kubernetes_options import nodes_of
    from gaudi_launch.cli.options import prepare
    from gaudi_launch.host.config import load_config
    from gaudi_launch.paths import cache_dir
    from gaudi_launch.recipe_cache.use import with_cache
    from gaudi_launch.render.container import container_of
    from gaudi_launch.render.kubernetes_pod import PLAN_FILES
    from gaudi_launch.render.text import check_words, with_files

    prepared = prepare(asked, must_exist=False)
    _refuse_engine(prepared, wished["kind"])
    if nodes_of(wished) > 1:
        prepared = _measured_for(prepared, nodes_of(wished) * len(prepared.host.modules))
    plan = prepared.plan() if nodes_of(wished) == 1 else _over_nodes(prepared, wished)
    cached = with_cache(plan, prepared.request, prepared.host, cache_dir(), look=False)
    plan = _in_cluster(cached.plan if cached is not None else plan, prepared, asked["model"])
    plan, files = with_files(plan, Path(PLAN_FILES))
    check_words(plan)
    if nodes_of(wished) > 1:
        # a pod has the cards of one node
        modules = prepared.host.modules
        plan = replace(plan, placement=replace(plan.placement, modules=modules))
    container = container_of(
        plan,
        prepared.host,
        environment=prepared.request.environment,
        image=wished["image"] or None,
        own_network=True,
    )
    return Planned(plan, container, prepared.host, load_config(asked["machine"]), prepared.model, dict(files))


def _measured_for(prepared: Prepared, cards: int) -> Prepared:
    """The same with what fp8 needs on so many cards: measurements hold for one number of them, here that of all
    nodes (HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/README.md: ``..._<rank>_16`` on two nodes)."""
    from dataclasses import replace

    from gaudi_launch.services import provision

    whole = replace(prepared.request, cards=cards, modules=None)
    found = provision.look(whole, prepared.host, prepared.engine, prepared.installed)
    return replace(prepared, request=found.request_for(prepared.request), provision=found)


def _refuse_engine(prepared: Prepared, kind: str) -> None:
    """Engines that cannot be of this kind: Ray in Ray, and one whose program only its image knows.

    Raises LaunchError (USAGE).
    """
    from gaudi_launch.engines.registry import in_container
    from gaudi_launch.errors import ExitCode, LaunchError

    engine = prepared.engine.identity
    if engine.name == "ray-serve":
        raise LaunchError("kubernetes.ray_inside", ExitCode.USAGE, inner=engine.facts["inner"])
    if in_container(engine.name) and kind in ("leaderworkerset", "rayservice"):
        raise LaunchError(
            "kubernetes.not_with", ExitCode.USAGE, one=f"--engine {engine.name}", other=f"--kind {kind}"
        )


def _over_nodes(prepared: Prepared, wished: dict[str, Any]) -> Plan:
    """The plan of one engine as if all its cards stood in one machine, with what several nodes change.

    Raises LaunchError: not whole nodes (USAGE), a model that cannot be cut so (MODEL), or is too large (MACHINE).
    """
    from dataclasses import replace

    from gaudi_launch.cli.kubernetes_options import layout_of, nodes_of
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.fleet.cluster import changed_command, changes, merged
    from gaudi_launch.fleet.layout import Asked, choose
    from gaudi_launch.fleet.planned import plan_whole
    from gaudi_launch.models.sizing import divides

    request, model, engine = prepared.request, prepared.model, prepared.engine
    there = len(prepared.host.modules)
    cards = request.cards or len(request.modules or ()) or there
    if cards != there:
        raise LaunchError("kubernetes.whole_nodes", ExitCode.USAGE, found=cards, there=there)
    sizes = Asked(**layout_of(wished, cards))
    try:
        layout = choose(model, engine.identity.version, nodes_of(wished), cards, sizes)
    except LaunchError as error:
        if error.id != "cluster.heads":
            raise
        id = "kubernetes.heads" if divides(model, cards) else "kubernetes.heads_node"
        raise LaunchError(id, ExitCode.MODEL, **error.text.values, cards=cards) from None
    plan = plan_whole(request, prepared.host, model, engine, layout)
    own = frozenset(s.name for s in plan.settings if s.source in ("flag", "environment"))
    own -= {"--tensor-parallel-size", "--pipeline-parallel-size", "--distributed-executor-backend"}
    changed = changes(layout, plan, own=own, measured=request.quant_file is not None)
    return replace(
        plan,
        settings=merged(plan.settings, changed),
        command=changed_command(plan.command, changed),
        warnings=(*plan.warnings, *layout.warnings, *(prepared.provision.notes if prepared.provision else ())),
    )


def _in_cluster(plan: Plan, prepared: Prepared, asked: str) -> Plan:
    """The plan with the model as the nodes have it: a hub id even where this machine has a copy, and a model that
    has to be converted by the folder of what comes out."""
    from dataclasses import replace

    from gaudi_launch.messages import message
    from gaudi_launch.models.config import looks_like_hub_id, name_of
    from gaudi_launch.services.provision import CONVERTED

    converts = prepared.provision is not None and prepared.provision.facts.converts
    named, warnings = asked, plan.warnings
    if converts and not asked.endswith(CONVERTED):
        named = f"/models/{name_of(asked)}" if looks_like_hub_id(asked) else asked
        named += CONVERTED
        warnings = (*warnings, message("kubernetes.convert", model=asked, path=named))
    elif not converts and not looks_like_hub_id(asked):
        return plan
    folder = prepared.request.model
    argv = tuple(named if word == folder else word for word in plan.command.argv)
    command = replace(plan.command, argv=argv)
    return replace(plan, command=command, model={**plan.model, "path": named}, warnings=warnings)


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
        served = replace(served, files=each.files)
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


def _container(each: Planned, cluster: Cluster) -> Container:
    """The engine's container as this kind of object needs it."""
    from dataclasses import replace

    from gaudi_launch.render.kubernetes_records import PORT

    if cluster.kind == "rayservice":
        # Serve's proxy on the pod stands before the engine, whose port nobody outside knows
        return replace(each.container, ports=((PORT, PORT),), health="/-/healthz")
    if cluster.kind == "leaderworkerset":
        # named before Ray starts on either side: HabanaAI/vllm-fork@17a7946f:README_GAUDI.md
        names = {"GLOO_SOCKET_IFNAME": cluster.interface, "HCCL_SOCKET_IFNAME": cluster.interface}
        return replace(each.container, env={**each.container.env, **names})
    return each.container


def _needs(each: Planned, cluster: Cluster, pages: int | None) -> Needs:
    from dataclasses import replace

    from gaudi_launch.engines.releases import release_of
    from gaudi_launch.host.machine import SIMULATED
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
    release = release_of(each.plan.engine.label, each.plan.engine.version)
    if release is not None and release.whole_image is None and each.container.image == release.image:
        more.append(message("kubernetes.build", image=each.container.image))
    if 1 < each.cards < len(each.host.cards) and len(each.host.groups) > 1:
        more.append(message("kubernetes.groups", cards=each.cards))
    assumed = [_assumed_node(each.host)] if each.host.origin.startswith(SIMULATED) else []
    return replace(needs, notes=(*each.plan.warnings, *assumed, *needs.notes, *more))


def _assumed_node(host: Host) -> Message:
    """That the node is a made-up one of its kind, and what was taken for it."""
    from gaudi_launch.messages import message

    memory = (host.memory_total_mib or 0) // 1024
    return message("kubernetes.assumed_node", node=host.origin, memory=memory)


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
    others = {"--with": "others", "--hugepages": "hugepages", "--no-recipes": "no_recipes"}
    given += [name for name, field in others.items() if wished[field]]
    given += ["--"] if asked["extra"] else []
    if given:
        raise LaunchError(
            "kubernetes.not_with",
            ExitCode.USAGE,
            one=", ".join(given),
            other=f"--accelerator {wished['accelerator']}",
        )
    return neuron_served(
        known_model(_in_pods(asked["model"]) or "", must_exist=False),
        instances()[wished["accelerator"]],
        release,
        number("-n", asked["cards"], 1, 64) if asked["cards"] else None,
        wished["image"],
        (cluster.replicas, cluster.max_replicas),
    )
