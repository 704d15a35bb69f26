"""The use cases of ``gaudi-launch render ray-serve``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.engines.entries import is_ray
from gaudi_launch.core.launch.prepared import Prepared, prepare, refuse_simulated
from gaudi_launch.core.render.deliver import Destination, RenderedFiles, deliver
from gaudi_launch.core.render.gateway import GatewayPlace
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.core.render.text import comments, heading
from gaudi_launch.core.render.yaml_text import dump
from gaudi_launch.extensions.ray.config import APPLICATION, IMPORT_PATH, for_running_ray, read_yaml
from gaudi_launch.extensions.ray.engine import (
    IN_RAY,
    NAME,
    VISIBLE,
    application_files,
    config_of,
)
from gaudi_launch.extensions.ray.schema import check

if TYPE_CHECKING:
    from gaudi_launch.core.launch.named_plans import NamedPlan, NamedPlans, ReadPlans
    from gaudi_launch.core.launch.report import Reporter
    from gaudi_launch.core.planning.launch_options import LaunchOptions
    from gaudi_launch.core.planning.plan import Plan

ROUTER = "Router"
# each Ray process of the application; loopback engines and a router reserve no CPU
_ROUTER_OPTIONS = {"num_cpus": 0}


@dataclass(frozen=True)
class StackDeployment:
    """One model of a stack, from the Serve config of its plan.

    ``names`` are those of requests, ``env`` the engine's variables.
    """

    name: str
    names: tuple[str, ...]
    config: Mapping[str, Any]
    env: Mapping[str, str]


def stack_document(
    models: Sequence[StackDeployment], gateway: GatewayPlace, folder: str
) -> dict[str, Any]:
    """Return the config; ``folder`` has the application's modules on every node."""
    args: dict[str, Any] = {"kind": "stack", "models": [_model(each) for each in models]}
    secrets = gateway.secrets
    if secrets.keys:
        args["keys_file"] = secrets.keys
    deployments = [_deployment(each) for each in models]
    ongoing = sum(
        int(each["num_replicas"]) * int(each["max_ongoing_requests"]) for each in deployments
    )
    router = {
        "name": ROUTER,
        "num_replicas": 1,
        "max_ongoing_requests": ongoing,
        "ray_actor_options": dict(_ROUTER_OPTIONS),
    }
    http: dict[str, Any] = {"host": gateway.host, "port": gateway.port}
    if secrets.certificate:
        http |= {"ssl_certfile": secrets.certificate, "ssl_keyfile": secrets.key}
    made = {
        "proxy_location": "HeadOnly",
        "http_options": http,
        "logging_config": {"enable_access_log": False},
        "applications": [
            {
                "name": APPLICATION,
                "route_prefix": "/",
                "import_path": IMPORT_PATH,
                "runtime_env": {"env_vars": {"PYTHONPATH": folder}},
                "args": args,
                "deployments": [*deployments, router],
            }
        ],
    }
    wrong = check(made)
    assert not wrong, wrong
    return made


def _model(model: StackDeployment) -> dict[str, Any]:
    args = model.config["applications"][0]["args"]
    program, *words = args["argv"]
    return {
        "deployment": model.name,
        "names": list(model.names),
        "argv": [program, *words],
        "sets": args["sets"],
    }


def _deployment(model: StackDeployment) -> dict[str, Any]:
    """Return the deployment of a model's config, under its name in the stack.

    Each has the variables of its engine; Ray adds those of the application.
    """
    found = dict(model.config["applications"][0]["deployments"][0])
    options = dict(found["ray_actor_options"])
    if model.env:
        variables = {name: model.env[name] for name in sorted(model.env)}
        options["runtime_env"] = {"env_vars": variables}
    return {**found, "name": model.name, "ray_actor_options": options}


def ray_serve(options: LaunchOptions, to: Destination, reporter: Reporter) -> RenderedFiles:
    """Render one model as a Serve config for a running Ray. Raises LaunchError."""
    engine = options.engine or NAME
    if not is_ray(engine):
        raise LaunchError("ray.only_config", ExitCode.USAGE, found=engine)
    plan = plan_in_ray(prepare(replace(options, engine=engine)))
    for warning in plan.warnings:
        reporter.say(warning.render())
    document = for_running_ray(config_of(plan), plan.command.env, str(IN_RAY))
    content = "\n".join(comments(heading(plan))) + "\n" + dump(document)
    note = message("render.ray_serve", folder=str(IN_RAY))
    return deliver(
        Rendered({"serve.yaml": content}, notes=(note,)), "ray-serve", to, force=options.force
    )


def ray_serve_several(
    file: Path, read: ReadPlans, options: LaunchOptions, to: Destination
) -> RenderedFiles:
    """Render several plans as one Serve application. Raises LaunchError.

    Each model is a deployment.
    """
    several = read(file, options)
    folder = str(Path(to.output or ".").expanduser().absolute())
    document = stack_document(_deployments(several), several.gateway, folder)
    content = "\n".join(comments(several.head)) + "\n" + dump(document)
    notes = [message("render.ray_serve", folder=folder)]
    if several.limited:
        notes.append(message("render.stack_no_limits"))
    rendered = Rendered({"serve.yaml": content, **application_files()}, notes=tuple(notes))
    return deliver(rendered, "ray-serve", replace(to, name=several.name), force=options.force)


def _deployments(several: NamedPlans) -> list[StackDeployment]:
    """Return the deployments of all models, each planned with its replicas."""
    replicas: dict[tuple[str, ...], list[NamedPlan]] = {}
    for each in several.plans:
        replicas.setdefault(each.names, []).append(each)
    found = []
    for names, mine in replicas.items():
        modules = [module for each in mine for module in each.plan.placement.modules]
        options = replace(
            mine[0].options,
            engine=f"{NAME}:{mine[0].plan.engine.label}",
            replicas=(len(mine), len(mine)),
            modules=tuple(modules) or None,
            cards=None,
        )
        prepared = prepare(options)
        # the cards were divided already
        host = prepared.host.with_use(prepared.host.modules, busy=False)
        plan = plan_in_ray(replace(prepared, host=host))
        # a replica gets its set's cards (runtime/gaudi_ray_slots.py), not the node's
        env = {key: value for key, value in plan.command.env.items() if key != VISIBLE}
        found.append(StackDeployment(mine[0].name, names, config_of(plan), env))
    return found


def plan_in_ray(prepared: Prepared) -> Plan:
    """Return the plan for the nodes of a Ray cluster. Raises LaunchError.

    They do not have a bucket file, so the engine gets one of its strategies.
    """
    refuse_simulated(prepared)
    return replace(prepared, request=replace(prepared.request, files_dir="")).plan()


def check_ray_serve(path: Path) -> list[Message]:
    """Return the settings of a Serve config that Ray silently ignores or refuses.

    Raises LaunchError (USAGE) for a file that cannot be read.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LaunchError("ray.cannot_read", ExitCode.USAGE, path=str(path), why=why) from None
    return check(read_yaml(content, str(path)))
