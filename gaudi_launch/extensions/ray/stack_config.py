"""The Serve config of several models: a deployment each, and a router. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gaudi_launch.core.render.gateway import GatewayPlace
from gaudi_launch.extensions.ray.config import APPLICATION, IMPORT_PATH
from gaudi_launch.extensions.ray.schema import check

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
