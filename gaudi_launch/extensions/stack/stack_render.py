"""The use cases of ``gaudi-launch render TARGET --stack FILE``.

All models of a stack become files.

The cards are divided as for ``stack up``; nothing is started. Keys and TLS files are named by
their paths: no rendered file contains them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message, text
from gaudi_launch.core.launch.report import Silent

if TYPE_CHECKING:
    from gaudi_launch.commands.render.case import PlanToRender, SystemdOptions
    from gaudi_launch.core.launch.options import LaunchOptions
    from gaudi_launch.core.launch.report import Reporter
    from gaudi_launch.core.render.deliver import Destination, RenderedFiles
    from gaudi_launch.core.render.rendered import Rendered
    from gaudi_launch.extensions.kubernetes.case import KubernetesForm, PlannedModel
    from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
    from gaudi_launch.extensions.kubernetes.target import KubernetesGateway
    from gaudi_launch.extensions.stack.gateway.gateway_settings import Backend
    from gaudi_launch.extensions.stack.ray_config import StackAddress, StackDeployment
    from gaudi_launch.extensions.stack.stack_file import StackFile
    from gaudi_launch.extensions.stack.stack_plan import StackPlan, StackService

# ports of rendered engines, in the order of the file: the same on every machine
_FIRST_PORT = 30101
# Ray's own cards variable is of the node; a replica gets its set's (runtime/gaudi_ray_slots.py)
_OF_THE_NODE = ("HABANA_VISIBLE_MODULES",)
# options of a command in addition to --stack: the machine to plan for, and --force
_BESIDE_STACK = ("machine", "force")


@dataclass(frozen=True)
class StackEngine:
    """One engine as it is rendered, and the services that it waits for."""

    service: StackService
    made: PlanToRender
    after: tuple[str, ...]


class _Once(Silent):
    """Says each line once: replicas have the same warnings."""

    def __init__(self, inner: Reporter) -> None:
        self._inner = inner
        self._said: set[str] = set()

    def say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._inner.say(line)


def compose(
    file: Path, options: LaunchOptions, image: str | None, to: Destination, reporter: Reporter
) -> RenderedFiles:
    """Render a stack as a compose file with the gateway's files. Raises LaunchError."""
    from gaudi_launch.extensions.stack import compose_stack
    from gaudi_launch.extensions.stack.gateway.gateway_image import in_image

    _refuse_name(to)
    planned = _planned(file, options)
    stack = planned.stack
    engines = _engines(planned, to, reporter)
    settings = stack.gateway
    rendered = compose_stack.render(
        stack.name,
        _heading(stack),
        [
            compose_stack.ComposeEngine(
                each.service.name,
                each.made.container(image),
                each.made.dockerfile(image),
                each.after,
            )
            for each in engines
        ],
        in_image(_backends(engines), settings, compose_stack.secrets_of(settings)),
        settings,
    )
    to = replace(to, name=stack.name)
    return _finish(engines, "compose", rendered, to, force=options.force)


def systemd(
    file: Path, options: LaunchOptions, unit: SystemdOptions, to: Destination, reporter: Reporter
) -> RenderedFiles:
    """Render a stack as units with a target for all. Raises LaunchError."""
    from gaudi_launch.commands.render.case import unit_options
    from gaudi_launch.extensions.stack import systemd_stack
    from gaudi_launch.extensions.stack.gateway.gateway_image import on_machine

    _refuse_name(to)
    planned = _planned(file, options)
    stack = planned.stack
    engines = _engines(planned, to, reporter)
    folder = Path(to.output or ".").expanduser().absolute() / systemd_stack.GATEWAY_FOLDER
    gateway = on_machine(
        _backends(engines),
        stack.gateway,
        folder=folder,
        run_folder=systemd_stack.run_folder(stack.name),
    )
    units = [
        systemd_stack.UnitEngine(
            each.service.name, each.made.on_host(reporter), each.made.exported, each.after
        )
        for each in engines
    ]
    rendered = systemd_stack.render_stack(
        stack.name, _heading(stack), units, gateway, unit_options(unit)
    )
    to = replace(to, name=stack.name)
    return _finish(engines, "systemd", rendered, to, force=options.force)


def ray_serve(file: Path, options: LaunchOptions, to: Destination) -> RenderedFiles:
    """Render a stack as one Serve application with a deployment for each model.

    Raises LaunchError.
    """
    from gaudi_launch.core.render.deliver import deliver
    from gaudi_launch.core.render.rendered import Rendered
    from gaudi_launch.core.render.text import comments
    from gaudi_launch.core.render.yaml_text import dump
    from gaudi_launch.extensions.ray.engine import IN_RAY
    from gaudi_launch.extensions.stack.ray_config import stack_document

    planned = _planned(file, options)
    stack = planned.stack
    folder = Path(to.output or ".").expanduser().absolute()
    document = stack_document(_deployments(planned), _ray_address(stack), str(folder))
    content = "\n".join(comments(_heading(stack))) + "\n" + dump(document)
    files = {"serve.yaml": content}
    for path in sorted(IN_RAY.glob("gaudi_ray_*.py")):
        if path.name != "gaudi_ray_head.py":
            files[path.name] = path.read_text(encoding="utf-8")
    notes = [message("render.ray_serve", folder=str(folder))]
    if stack.gateway.limits != type(stack.gateway.limits)() or stack.gateway.user_limits:
        notes.append(message("render.stack_no_limits"))
    rendered = Rendered(files, notes=tuple(notes))
    return deliver(rendered, "ray-serve", replace(to, name=stack.name), force=options.force)


def kubernetes(
    file: Path, options: LaunchOptions, wanted: KubernetesOptions, form: KubernetesForm
) -> tuple[Rendered, str]:
    """Return the objects of a stack and its gateway, and the name of the release.

    Each replica is a Deployment with a Service, which the gateway checks as on one server.
    Raises LaunchError.
    """
    from gaudi_launch.extensions.kubernetes.case import at_home, pages_of, planned, serve_all
    from gaudi_launch.extensions.kubernetes.documents import render
    from gaudi_launch.extensions.kubernetes.options import to_cluster
    from gaudi_launch.extensions.kubernetes.served import release_name
    from gaudi_launch.extensions.kubernetes.target import PORT
    from gaudi_launch.extensions.stack.gateway.gateway_image import dockerfile
    from gaudi_launch.extensions.stack.gateway.gateway_settings import Backend, GatewayReplica

    _refuse_for_cluster(wanted, form)
    machine = at_home(options, None, wanted.accelerator).machine
    found = _planned(file, replace(options, machine=machine))
    stack = found.stack
    release = release_name(wanted.name or stack.name.lower(), "")
    each_given = [_in_cluster(service) for service in found.services]
    models: list[PlannedModel] = [planned(each, wanted) for each in each_given]
    cluster = to_cluster(wanted, release, [each.container for each in models])
    names = [service.model.name for service in found.services]
    served = serve_all(
        models, names, cluster, pages_of(wanted.hugepages), recipes=not wanted.no_recipes
    )
    addresses: dict[str, list[GatewayReplica]] = {}
    for name, each in zip(names, served, strict=True):
        url = f"http://{each.name.plain()}:{PORT}"
        addresses.setdefault(name, []).append(GatewayReplica(url))
    backends = [
        Backend(model.name, tuple(addresses[model.name]), model.aliases, model.balance)
        for model in stack.models
    ]
    cluster = replace(cluster, gateway=_cluster_gateway(stack, backends))
    rendered = render(served, cluster)
    files = {**rendered.files, "gateway.Dockerfile": dockerfile()}
    return replace(rendered, files=files), release


def _refuse_for_cluster(wanted: KubernetesOptions, form: KubernetesForm) -> None:
    """Raise LaunchError (USAGE) for options that a stack decides or lacks."""
    refused = (
        ("--with", bool(wanted.others)),
        ("--replicas", bool(wanted.replicas)),
        ("--kind", wanted.kind not in ("", "deployment")),
        ("--helm", form.helm),
        ("--webui", wanted.webui),
    )
    for name, given in refused:
        if given:
            raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one=name, other="--stack")


def _in_cluster(service: StackService) -> LaunchOptions:
    """Return a service's options for a pod: the number of its cards only."""
    from gaudi_launch.extensions.kubernetes.case import at_home

    cards = service.options.cards
    if service.modules:
        cards = str(len(service.plan.placement.modules))
    # a pod has the interpreter of its image
    options = replace(service.options, modules=None, cards=cards, port=None, python=None)
    return at_home(options, options.machine, "")


def _cluster_gateway(stack: StackFile, backends: list[Backend]) -> KubernetesGateway:
    from gaudi_launch.extensions.kubernetes.target import PORT, KubernetesGateway
    from gaudi_launch.extensions.stack.gateway.gateway_image import IMAGE, in_image
    from gaudi_launch.extensions.stack.gateway.gateway_objects import pod_secrets

    keys = stack.gateway.keys_file is not None
    tls = stack.gateway.tls is not None
    settings = replace(stack.gateway, host="0.0.0.0", port=PORT)
    made = in_image(backends, settings, pod_secrets(keys=keys, tls=tls))
    return KubernetesGateway(IMAGE, made.argv, made.files, keys, tls)


# --- parts of all targets -----------------------------------------------------------------------


def _planned(file: Path, options: LaunchOptions) -> StackPlan:
    """Return the plan of a stack; its options are in the file. Raises LaunchError."""
    from gaudi_launch.extensions.stack.stack_file import read_stack
    from gaudi_launch.extensions.stack.stack_plan import changes_of

    refuse_beside(options, "--stack", _BESIDE_STACK)
    if os.environ.get("VLLM_API_KEY"):
        raise LaunchError("stack.api_key", ExitCode.USAGE)
    read = read_stack(file)
    return changes_of(read, options.machine).planned


def refuse_beside(options: LaunchOptions, name: str, allowed: Sequence[str] = ()) -> None:
    """Raise LaunchError (USAGE) for launch options with one that replaces the model.

    ``allowed`` are fields of the options.
    """
    given = [spelling for field, spelling in options.given() if field not in allowed]
    if options.extra:
        given.append("--")
    if given:
        one = ", ".join(given)
        raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one=one, other=name)


def _refuse_name(to: Destination) -> None:
    """Raise LaunchError (USAGE) for a name: that of a stack is in its file."""
    if to.name is not None:
        raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one="--name", other="--stack")


def _engines(planned: StackPlan, to: Destination, reporter: Reporter) -> list[StackEngine]:
    """Return all engines with their plans; each has a folder for its files."""
    from gaudi_launch.commands.render.case import to_render

    once = _Once(reporter)
    names: dict[str, list[str]] = {}
    for service in planned.services:
        names.setdefault(service.model.name, []).append(service.name)
    found = []
    for number, service in enumerate(planned.services):
        options = replace(service.options, port=str(_FIRST_PORT + number))
        folder = None if to.output is None else str(Path(to.output) / service.name)
        made = to_render(
            options,
            replace(to, output=folder, name=service.name),
            once,
            placement=service.plan.placement,
        )
        after = [name for model in service.model.after for name in names[model]]
        found.append(StackEngine(service, made, tuple(after)))
    return found


def _backends(engines: list[StackEngine]) -> list[Backend]:
    """Return the models as a gateway on the same machine routes to them."""
    from gaudi_launch.extensions.stack.gateway.gateway_settings import Backend, GatewayReplica

    found: dict[str, Backend] = {}
    for engine in engines:
        model = engine.service.model
        replica = GatewayReplica(engine.made.plan.url)
        before = found.get(model.name)
        replicas = (*before.replicas, replica) if before is not None else (replica,)
        found[model.name] = Backend(model.name, replicas, model.aliases, model.balance)
    return list(found.values())


def _heading(stack: StackFile) -> list[str]:
    """Return comment lines: what the files start, and their maker."""
    names = text("common.between").join(model.name for model in stack.models)
    line = text("render.stack_heading", name=stack.name, models=names, url=stack.gateway.url)
    return [line, text("render.made")]


def _finish(
    engines: list[StackEngine], target: str, rendered: Rendered, to: Destination, *, force: bool
) -> RenderedFiles:
    """Deliver the rendered text with the files of all plans."""
    from gaudi_launch.core.render.deliver import deliver

    files = dict(rendered.files)
    for engine in engines:
        for name, content in engine.made.files.items():
            files[f"{engine.service.name}/{name}"] = content
    return deliver(replace(rendered, files=files), target, to, force=force)


def _deployments(planned: StackPlan) -> list[StackDeployment]:
    """Return the deployments of all models, each planned with its replicas."""
    from gaudi_launch.core.launch.prepare import prepare
    from gaudi_launch.extensions.ray.case import plan_in_ray
    from gaudi_launch.extensions.ray.engine import NAME, config_of
    from gaudi_launch.extensions.stack.division import with_cards
    from gaudi_launch.extensions.stack.ray_config import StackDeployment

    found = []
    for model in planned.stack.models:
        mine = [each for each in planned.services if each.model.name == model.name]
        modules = [module for each in mine for module in each.plan.placement.modules]
        options = replace(
            mine[0].options,
            engine=f"{NAME}:{mine[0].plan.engine.label}",
            replicas=str(len(mine)),
            modules=",".join(map(str, modules)) or None,
            cards=None,
        )
        prepared = prepare(options)
        # the cards were divided already
        plan = plan_in_ray(replace(prepared, host=with_cards(prepared.host)))
        env = {key: value for key, value in plan.command.env.items() if key not in _OF_THE_NODE}
        found.append(StackDeployment(mine[0].name, model.names, config_of(plan), env))
    return found


def _ray_address(stack: StackFile) -> StackAddress:
    from gaudi_launch.extensions.stack.ray_config import StackAddress

    settings = stack.gateway
    return StackAddress(
        host=settings.host,
        port=settings.port,
        keys=str(settings.keys_file) if settings.keys_file is not None else "",
        certificate=str(settings.tls.certificate) if settings.tls is not None else "",
        key=str(settings.tls.key) if settings.tls is not None else "",
    )
