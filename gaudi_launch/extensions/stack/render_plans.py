"""The plans of a stack for ``render TARGET --stack FILE``.

The cards are divided as for ``stack up``; nothing is started. Keys and TLS files are named by
their paths: no rendered file contains them.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from gaudi_launch.commands.render.case import refuse_beside
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.launch.named_plans import NamedPlan, NamedPlans
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.render.gateway import GatewayFiles, GatewayPlace, GatewaySecrets
from gaudi_launch.extensions.stack.gateway.gateway_image import gateway_at
from gaudi_launch.extensions.stack.gateway.gateway_settings import (
    Backend,
    GatewaySettings,
    RequestLimits,
)
from gaudi_launch.extensions.stack.stack_plan import StackPlan, plan

# options of a command in addition to --stack: the machine to plan for, and --force
_BESIDE_STACK = ("machine", "force")


def stack_plans(file: Path, options: LaunchOptions) -> NamedPlans:
    """Return the plans of a stack; its options are in the file. Raises LaunchError."""
    refuse_beside(options, "--stack", _BESIDE_STACK)
    if os.environ.get("VLLM_API_KEY"):
        raise LaunchError("stack.api_key", ExitCode.USAGE)
    planned = plan(file, options.machine)
    stack = planned.stack
    engines: dict[str, list[str]] = {}
    for service in planned.services:
        engines.setdefault(service.model.name, []).append(service.name)
    models = text("common.between").join(model.name for model in stack.models)
    line = text("render.stack_heading", name=stack.name, models=models, url=stack.gateway.url)
    return NamedPlans(
        stack.name,
        (line, text("render.made")),
        tuple(
            NamedPlan(
                each.name,
                each.model.names,
                each.options,
                each.plan,
                tuple(name for model in each.model.after for name in engines[model]),
            )
            for each in planned.services
        ),
        _place(stack.gateway),
        stack.gateway.limits != RequestLimits() or bool(stack.gateway.user_limits),
        partial(_files_at, planned),
    )


def _place(settings: GatewaySettings) -> GatewayPlace:
    """Return the place of the gateway on this machine."""
    keys = str(settings.keys_file or "")
    secrets = GatewaySecrets(keys)
    if settings.tls is not None:
        secrets = GatewaySecrets(keys, str(settings.tls.certificate), str(settings.tls.key))
    return GatewayPlace(settings.host, settings.port, secrets)


def _files_at(planned: StackPlan, place: GatewayPlace) -> GatewayFiles:
    """Return the gateway of all models in a place."""
    stack = planned.stack
    backends = []
    for model in stack.models:
        names = [each.name for each in planned.services if each.model.name == model.name]
        replicas = {place.urls[name]: "" for name in names}
        backends.append(Backend(model.name, replicas, model.aliases, model.balance))
    return gateway_at(backends, stack.gateway, place)
