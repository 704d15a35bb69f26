"""The use case of ``gaudi-launch render kubernetes``: plan models for a cluster.

Each is planned alone, on a node like the cluster's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gaudi_launch.core.base import mirrors
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.paths import cache_dir
from gaudi_launch.core.engines.releases import release_of
from gaudi_launch.core.host.accelerators import instances
from gaudi_launch.core.host.host_config import HostConfig, load_config
from gaudi_launch.core.host.machine import SIMULATED
from gaudi_launch.core.launch.prepared import Prepared, prepare, refuse_simulated
from gaudi_launch.core.launch.saved_plan import own_part
from gaudi_launch.core.models.config import looks_like_hub_id, name_of
from gaudi_launch.core.models.fp8.conversion_record import CONVERTED
from gaudi_launch.core.models.sizing import divides, weight_bytes
from gaudi_launch.core.planning.engine import Scaling
from gaudi_launch.core.planning.engine_args import split_argv
from gaudi_launch.core.planning.option_table import option_table
from gaudi_launch.core.planning.passthrough import REPLICAS, refuse_layout
from gaudi_launch.core.render.gateway import GatewayPlace
from gaudi_launch.core.render.plan_container import container_of
from gaudi_launch.core.render.text import check_words, with_files
from gaudi_launch.extensions.kubernetes.chart_values import Name
from gaudi_launch.extensions.kubernetes.documents import render
from gaudi_launch.extensions.kubernetes.objects.gateway_objects import pod_secrets
from gaudi_launch.extensions.kubernetes.objects.needs import PodDemand, PodResources, needs_of
from gaudi_launch.extensions.kubernetes.objects.pod import PLAN_FILES
from gaudi_launch.extensions.kubernetes.options import (
    KubernetesOptions,
    completed,
    layout_of,
    ray_engine,
)
from gaudi_launch.extensions.kubernetes.served import (
    LONGEST,
    LONGEST_RAY,
    keys_of,
    release_name,
    served_of,
)
from gaudi_launch.extensions.kubernetes.target import PORT, ServedModel

if TYPE_CHECKING:
    from gaudi_launch.core.host.hardware import Host
    from gaudi_launch.core.launch.named_plans import NamedPlan, ReadPlans
    from gaudi_launch.core.models.model import Model
    from gaudi_launch.core.planning.container import Container
    from gaudi_launch.core.planning.launch_options import LaunchOptions
    from gaudi_launch.core.planning.plan import Plan
    from gaudi_launch.core.render.rendered import Rendered

# product -> the simulated machine that is used as a node of it
NODES = {
    "gaudi2": "hls2",
    "gaudi2e": "gaudi2e-8",
    "gaudi3": "gaudi3-oam",
    "gaudi3-pcie": "gaudi3-pcie",
}


@dataclass(frozen=True)
class PlannedModel:
    """One model: its plan on one node, and the facts of that node."""

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
        """Return the bytes of the weights on disk."""
        model = self.model
        return model.weight_bytes or weight_bytes(
            model, model.quantization or model.dtype or "bfloat16"
        )


def render_kubernetes(
    options: LaunchOptions,
    wanted: KubernetesOptions,
    read_other: Callable[[str], LaunchOptions],
    *,
    helm: bool,
) -> tuple[Rendered, str]:
    """Return the objects of all models as files, and the name of the release.

    ``read_other`` returns the launch options in one value of ``--with``; ``helm``: as a chart.
    Raises LaunchError.
    """
    # options of a plan for Ray on one machine; here they are the cluster's
    least, most = options.replicas or (1, 1)
    ongoing = options.target_ongoing or 0
    wanted = replace(wanted, replicas=least, max_replicas=most, requests=ongoing)
    options = replace(options, replicas=None, target_ongoing=None)
    if wanted.accelerator in instances():
        release = release_name(wanted.name, options.model or "")
        if not options.model:
            raise LaunchError("plan.no_model", ExitCode.USAGE)
        cluster = completed(wanted, release, [])
        served = [neuron(options, cluster)]
        return _rendered(served, cluster, helm=helm), release
    each_given = [options, *map(read_other, wanted.others)]
    every = [at_home(each, options.machine, wanted.accelerator) for each in each_given]
    release = release_name(wanted.name, every[0].model or "")
    models = [planned(each, wanted) for each in every]
    cluster = completed(wanted, release, [each.container for each in models])
    names = [each.model or "" for each in every]
    served = serve_all(models, names, cluster)
    return _rendered(served, cluster, helm=helm), release


def render_several(
    file: Path,
    read: ReadPlans,
    options: LaunchOptions,
    wanted: KubernetesOptions,
    *,
    helm: bool,
) -> tuple[Rendered, str]:
    """Return the objects of several plans and their gateway, and the release's name.

    Each replica is a Deployment with a Service, which the gateway checks as on one server.
    Raises LaunchError.
    """
    # a stack decides or lacks these
    refused = (
        ("--with", bool(wanted.others)),
        ("--kind", wanted.kind not in ("", "deployment")),
        ("--helm", helm),
        ("--webui", wanted.webui),
    )
    for name, given in refused:
        if given:
            raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one=name, other="--stack")
    machine = at_home(options, None, wanted.accelerator).machine
    several = read(file, replace(options, machine=machine))
    release = release_name(wanted.name or several.name.lower(), "")
    each_given = [_in_pod(each) for each in several.plans]
    models = [planned(each, wanted) for each in each_given]
    cluster = completed(wanted, release, [each.container for each in models])
    names = [each.names[0] for each in several.plans]
    served = serve_all(models, names, cluster)
    urls = {
        each.name: f"http://{found.name.plain()}:{PORT}"
        for each, found in zip(several.plans, served, strict=True)
    }
    place = GatewayPlace("0.0.0.0", PORT, pod_secrets(several.gateway.secrets), urls)
    gateway = several.files_at(place)
    rendered = render(served, replace(cluster, gateway=gateway))
    files = {**rendered.files, "gateway.Dockerfile": gateway.dockerfile}
    return replace(rendered, files=files), release


def _in_pod(each: NamedPlan) -> LaunchOptions:
    """Return the options of an engine for a pod: the number of its cards only."""
    options, modules = each.options, each.plan.placement.modules
    if modules and not each.plan.engine.simulated:
        options = replace(options, cards=len(modules))
    # a pod has the interpreter of its image
    options = replace(options, modules=None, port=None, python=None)
    return at_home(options, options.machine, "")


def _rendered(served: list[ServedModel], cluster: KubernetesOptions, *, helm: bool) -> Rendered:
    if helm:
        from gaudi_launch.extensions.kubernetes.helm_chart import chart

        return chart(served, cluster)
    return render(served, cluster)


def at_home(options: LaunchOptions, machine: str | None, accelerator: str) -> LaunchOptions:
    """Return the options as they apply inside a cluster.

    They have its nodes, port 8000 where none is given, and an absolute path for a folder.
    """
    node = options.machine
    if accelerator:
        if accelerator not in NODES:
            known = ", ".join([*NODES, *instances()])
            raise LaunchError(
                "kubernetes.one_of",
                ExitCode.USAGE,
                option="--accelerator",
                found=accelerator,
                known=known,
            )
        if own_part(options).machine:
            raise LaunchError(
                "kubernetes.not_with", ExitCode.USAGE, one="--accelerator", other="--machine"
            )
        node = f"simulated:{NODES[accelerator]}"
    return replace(
        options, machine=node or machine, port=options.port or PORT, model=_in_pods(options.model)
    )


def _in_pods(model: str | None) -> str | None:
    """Return the model's name for the pods: the absolute path of a folder."""
    if not model or model == "demo" or looks_like_hub_id(model):
        return model
    # the shell does not expand the value of --with
    return str(Path(model).expanduser().absolute())


def planned(options: LaunchOptions, cluster: KubernetesOptions) -> PlannedModel:
    """Return one model. Raises LaunchError as `plan` does."""
    from gaudi_launch.core.recipes.attach import with_cache

    prepared = prepare(options)
    refuse_simulated(prepared)
    # not Ray in Ray, nor an engine whose program only its image knows
    engine, inner = prepared.engine.identity, prepared.engine.inner
    if inner is not None:
        raise LaunchError("kubernetes.ray_inside", ExitCode.USAGE, inner=inner.identity.exact)
    if prepared.engine.in_container and cluster.kind in ("leaderworkerset", "rayservice"):
        raise LaunchError(
            "kubernetes.not_with",
            ExitCode.USAGE,
            one=f"--engine {engine.name}",
            other=f"--kind {cluster.kind}",
        )
    if cluster.node_count > 1:
        prepared = _measured_for(prepared, cluster.node_count * len(prepared.host.modules))
    if cluster.node_count == 1:
        plan = prepared.plan()
    else:
        plan = _over_nodes(prepared, cluster)
    cached = None
    if prepared.engine.keeps_recipes:
        cached = with_cache(plan, prepared.request, prepared.host, cache_dir(), look=False)
    plan = _in_cluster(cached.plan if cached is not None else plan, prepared, options.model or "")
    plan, files = with_files(plan, Path(PLAN_FILES))
    check_words(plan)
    if cluster.node_count > 1:
        # a pod has the cards of one node
        modules = prepared.host.modules
        plan = replace(plan, placement=replace(plan.placement, modules=modules))
    container = container_of(
        plan,
        prepared.host,
        environment=prepared.request.environment,
        image=cluster.image or None,
        own_network=True,
    )
    if not cluster.image:
        container = replace(container, image=mirrors.read().image(container.image))
    return PlannedModel(
        plan, container, prepared.host, load_config(options.machine), prepared.model, dict(files)
    )


def _measured_for(prepared: Prepared, cards: int) -> Prepared:
    """Return the model with the measurements that fp8 needs on all nodes.

    Measurements are valid for one number of cards, here that of all nodes
    (HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/README.md: ``..._<rank>_16`` on two nodes).
    """
    from gaudi_launch.core.launch import model_needs

    all_cards = replace(prepared.request, cards=cards, modules=None)
    found = model_needs.look(all_cards, prepared.host, prepared.engine, prepared.installed)
    return replace(prepared, request=found.request_for(prepared.request), provision=found)


def _over_nodes(prepared: Prepared, cluster: KubernetesOptions) -> Plan:
    """Return the plan of one engine as if all its cards were in one machine.

    Its settings have the changes for several nodes. Raises LaunchError: USAGE for incomplete nodes,
    MODEL for a model that cannot be divided so, MACHINE for one that is too large.
    """
    from gaudi_launch.core.hosts.cluster_planner import plan_whole
    from gaudi_launch.core.hosts.layout import LayoutOptions, choose
    from gaudi_launch.core.hosts.parts import PlannedWhole, changed_command, changes, merged

    request, model, engine = prepared.request, prepared.model, prepared.engine
    refuse_layout(request.args, dict.fromkeys(REPLICAS, "--layout"))
    there = len(prepared.host.modules)
    cards = request.cards or len(request.modules or ()) or there
    if cards != there:
        raise LaunchError("kubernetes.whole_nodes", ExitCode.USAGE, found=cards, there=there)
    tensor, pipeline = layout_of(cluster, cards)
    sizes = LayoutOptions(tensor, pipeline)
    try:
        layout = choose(model, engine, cluster.node_count, cards, sizes)
    except LaunchError as error:
        if error.id != "cluster.heads":
            raise
        id = "kubernetes.heads" if divides(model, cards) else "kubernetes.heads_node"
        raise LaunchError(id, ExitCode.MODEL, **error.text.values, cards=cards) from None
    plan = plan_whole(request, prepared.host, model, engine, layout)
    own = frozenset(s.name for s in plan.settings if s.source in ("flag", "environment"))
    own -= {"--tensor-parallel-size", "--pipeline-parallel-size", "--distributed-executor-backend"}
    whole = PlannedWhole(plan, engine, own, measured=request.quant_file is not None)
    changed = changes(layout, whole)
    return replace(
        plan,
        settings=merged(plan, changed),
        command=changed_command(plan, changed),
        warnings=(
            *plan.warnings,
            *layout.warnings,
            *(prepared.provision.notes if prepared.provision else ()),
        ),
    )


def _in_cluster(plan: Plan, prepared: Prepared, asked: str) -> Plan:
    """Return the plan with the model as the nodes have it.

    That is a hub ID even where this machine has a copy, and the converted folder of a model that
    has to be converted.
    """
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
    every: list[PlannedModel], names: list[str], cluster: KubernetesOptions
) -> list[ServedModel]:
    """Return the models as they are rendered.

    Raises LaunchError for what exceeds every node.
    """
    if len(every) > 1 and cluster.kind != "deployment":
        raise LaunchError(
            "kubernetes.not_with", ExitCode.USAGE, one="--with", other=f"--kind {cluster.kind}"
        )
    wanted, there = sum(each.cards for each in every), len(every[0].host.cards)
    if len(every) > 1 and wanted > there:
        raise LaunchError("kubernetes.cards", ExitCode.MACHINE, needed=wanted, there=there)
    found = []
    for each, key in zip(every, keys_of(names), strict=True):
        longest = LONGEST_RAY if cluster.kind == "rayservice" else LONGEST
        # a model that is alone has objects with the release's name
        name = Name(cluster.release, key if len(every) > 1 else "", longest)
        needs = _needs(each, cluster)
        served = served_of(each.plan, _container(each, cluster), needs, key, name)
        served = replace(served, files=each.files)
        if cluster.kind == "rayservice":
            served = in_ray(served, cluster)
        if cluster.kind == "leaderworkerset":
            served = replace(served, env_from={"VLLM_HOST_IP": "status.podIP"})
        if cluster.no_recipes:
            served = replace(served, recipe_key="", recipe_mib=0)
        found.append(served)
    return found


def in_ray(served: ServedModel, cluster: KubernetesOptions) -> ServedModel:
    """Return the model with the Serve config of its replicas, one per pod."""
    words = (*served.container.entry, *served.container.argv)
    scaling = Scaling(
        cluster.replicas,
        cluster.max_replicas,
        served.needs.cards,
        served.requests,
        target=cluster.requests,
    )
    made = ray_engine().serve_config(split_argv(words, table=option_table(served.options)), scaling)
    assert made is not None, "the engine of a RayService has a Serve config"
    # KubeRay sends requests to every pod whose proxy answers
    here = {"proxy_location": "EveryNode", "http_options": {"host": "0.0.0.0", "port": PORT}}
    return replace(served, serve={**made.document, **here}, application=made.files)


def _container(each: PlannedModel, cluster: KubernetesOptions) -> Container:
    """Return the engine's container as this kind of object needs it."""
    if cluster.kind == "rayservice":
        # Serve's proxy on the pod receives the requests; the engine's port is not visible outside
        return replace(each.container, ports=((PORT, PORT),), health="/-/healthz")
    if cluster.kind == "leaderworkerset":
        # set before Ray starts on either side: HabanaAI/vllm-fork@17a7946f:README_GAUDI.md
        names = {"GLOO_SOCKET_IFNAME": cluster.interface, "HCCL_SOCKET_IFNAME": cluster.interface}
        return replace(each.container, env={**each.container.env, **names})
    return each.container


def _needs(each: PlannedModel, cluster: KubernetesOptions) -> PodResources:
    demand = PodDemand(
        weights=each.weights,
        start_seconds=each.container.start_seconds,
        hugepages_mib=cluster.hugepages_mib,
        nodes=cluster.node_count,
        fetched=not str(each.plan.model["path"]).startswith("/"),
    )
    needs = needs_of(each.cards, each.host, each.config, demand)
    more: list[Message] = []
    release = release_of(each.plan.engine.label, each.plan.engine.version)
    if release is not None and each.container.image in (
        release.built_image,
        release.scale_out_image,
    ):
        more.append(message("kubernetes.build", image=each.container.image))
    if 1 < each.cards < len(each.host.cards) and len(each.host.groups) > 1:
        more.append(message("kubernetes.groups", cards=each.cards))
    if each.host.origin.startswith(SIMULATED):
        memory = (each.host.memory_total_mib or 0) // 1024
        assumed = [message("kubernetes.assumed_node", node=each.host.origin, memory=memory)]
    else:
        assumed = []
    return replace(needs, notes=(*each.plan.warnings, *assumed, *needs.notes, *more))


def neuron(options: LaunchOptions, cluster: KubernetesOptions) -> ServedModel:
    """Return the model on Inferentia, as the public example serves it.

    Raises LaunchError (USAGE) for options of a plan that the example's application does not have.
    """
    from gaudi_launch.core.planning.known_model import known_model
    from gaudi_launch.extensions.kubernetes.objects.inferentia import neuron_served

    known = ("model", "cards", "force")
    given = [each.names[0] for field, each in options.options_given() if field not in known]
    for name, value in (
        ("--with", cluster.others),
        ("--hugepages", cluster.hugepages),
        ("--no-recipes", cluster.no_recipes),
        ("--", options.extra),
    ):
        if value:
            given.append(name)
    if given:
        raise LaunchError(
            "kubernetes.not_with",
            ExitCode.USAGE,
            one=", ".join(given),
            other=f"--accelerator {cluster.accelerator}",
        )
    return neuron_served(
        known_model(_in_pods(options.model) or "", must_exist=False),
        instances()[cluster.accelerator],
        cluster.release,
        options.cards,
        cluster.image,
        (cluster.replicas, cluster.max_replicas),
    )
