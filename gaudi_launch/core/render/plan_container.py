"""A plan as one container, as docker, compose, Quadlet and Kubernetes need it.

Of this machine only the file of QUANT_CONFIG is read, which names a folder that the engine needs
too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.mirrors import exported_proxies
from gaudi_launch.core.engines.docker_command import VISIBLE, card_indices
from gaudi_launch.core.engines.releases import release_of
from gaudi_launch.core.engines.setups import setup_image
from gaudi_launch.core.host.cpus import format_cpus
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.config import looks_like_hub_id
from gaudi_launch.core.models.fp8.measurements import PREFIX
from gaudi_launch.core.models.fp8.measurements import root as measurements_root
from gaudi_launch.core.models.fp8.quant_config import measured_folder
from gaudi_launch.core.planning.container import IMAGE, Container, Mount
from gaudi_launch.core.planning.engine_args import EngineArgs, positional_model
from gaudi_launch.core.planning.exported import SECRETS, engine_variables
from gaudi_launch.core.planning.placement import spans_groups
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.scale_out import LIBRARIES, ROOT
from gaudi_launch.core.planning.secret_args import refuse_secret_args

# the container runtime sets these itself from HABANA_VISIBLE_DEVICES
# (HabanaAI/gaudi-container-runtime@408d1e7: cmd/habana-container-runtime/specs.go); a second value
# could only contradict it
_RUNTIMES_OWN = ("HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES", "HLS_MODULE_ID")
# names of this machine's interfaces and addresses, which do not exist in a separate network
_HOSTS_NETWORK = ("GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "VLLM_HOST_IP")
# docs: Docker Installation, in every line it shows
_ALWAYS = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
# what `vllm` runs, for `python -m`
# without its key a server would be open to all; the others only fetch models
_REQUIRED_SECRETS = ("VLLM_API_KEY",)
_SECRET_OPTIONS = {"--api-key": "VLLM_API_KEY", "--hf-token": "HF_TOKEN"}
HUB_FOLDERS = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
# variables that name files and folders of the host; True: the engine writes there
_PATHS = {
    "PT_HPU_RECIPE_CACHE_CONFIG": True,
    "VLLM_TORCH_PROFILER_DIR": True,
    **dict.fromkeys(HUB_FOLDERS, True),
    "MODELSCOPE_CACHE": True,
    "VLLM_CACHE_ROOT": True,
    "QUANT_CONFIG": False,
    "VLLM_BUCKETING_FROM_FILE": False,
}
_PATH_OPTIONS = {
    "--model": False,
    "--tokenizer": False,
    "--chat-template": False,
    "--speculative-model": False,
    "--tool-parser-plugin": False,
    "--config": False,
    "--ssl-keyfile": False,
    "--ssl-certfile": False,
    "--ssl-ca-certs": False,
    "--download-dir": True,
}
# minimum seconds of a first launch: published warm-ups take up to 10 minutes, those of models over
# 300B or with fp8 about an hour (public guides); twice the estimate is assumed to be enough
LEAST_START, LEAST_LONG_START = 1800, 7200
_LONG_PARAMETERS = 300e9


def container_of(
    plan: Plan,
    host: Host,
    *,
    environment: Mapping[str, str] | None = None,
    image: str | None = None,
    own_network: bool = False,
) -> Container:
    """Return the container of this plan.

    ``environment`` are the user's exported variables: those for the engine go in, and of the names
    in `SECRETS` the exported ones are passed by name. ``image`` overrides the engine's
    (`core.engines.releases`). ``own_network``: the engine listens on every address of the
    container's network and its port is published; else it shares the host's network, as the
    vendor's docs show it.

    Raises LaunchError: no image is known or possible, or an invalid image name, or a secret among
    the engine's arguments (USAGE); cards whose index is unknown (MACHINE).
    """
    if image is not None and not IMAGE.fullmatch(image):
        raise LaunchError("kubernetes.image", ExitCode.USAGE, option="--image", found=image)
    if plan.container is not None:
        image = image or plan.container.image
        return replace(plan.container, image=image, start_seconds=start_seconds(plan))
    inner = plan.engine.facts.get("inner")
    if inner is not None:
        # its program is part of gaudi-launch, which no image contains
        raise LaunchError("render.around", ExitCode.USAGE, engine=plan.engine.name, inner=inner)
    args, exported = plan.args, environment or {}
    refuse_secrets(args)
    everything = {**engine_variables(exported), **plan.command.env}
    env = {
        name: value for name, value in everything.items() if name not in (*_RUNTIMES_OWN, *SECRETS)
    }
    ports: tuple[tuple[int, int], ...] = ()
    proxies: tuple[str, ...] = ()
    url = plan.url
    if own_network:
        port = int(url.rpartition(":")[2])
        url = f"http://127.0.0.1:{port}"
        env = {name: value for name, value in env.items() if name not in _HOSTS_NETWORK}
        args = args.with_values("--host", "0.0.0.0")
        ports = ((port, port),)
    else:
        env |= _hub_home(plan, env, exported)
        # an engine that fetches its model needs them
        if looks_like_hub_id(str(plan.model.get("path", ""))):
            proxies = exported_proxies(exported)
    modules = plan.placement.modules
    fixed: Mapping[str, str] = {}
    if modules:
        fixed = _ALWAYS
    scale_out = spans_groups(host, modules)
    if scale_out:
        # the image has its libraries; paths of this machine mean nothing in it
        env = {name: value for name, value in env.items() if name not in (LIBRARIES, ROOT)}
    return Container(
        image=image or image_for(plan, scale_out=scale_out),
        argv=args.to_argv()[1:],
        env={**fixed, **env},
        secrets=(*secrets_of(plan, exported), *proxies),
        entrypoint=_program(plan.command.argv[0]),
        mounts=mounts_of(env, args),
        ports=ports,
        modules=modules,
        indices=card_indices(host, modules),
        cpus=format_cpus(plan.command.cpus),
        health="/health",
        start_seconds=start_seconds(plan),
        url=url,
        scale_out=scale_out,
        confined=not modules,
    )


def no_container(plan: Plan, target: str) -> None:
    """Refuse an engine in a container for a target that starts the engine itself.

    Raises LaunchError (USAGE).
    """
    if plan.container is not None:
        raise LaunchError("docker.render", ExitCode.USAGE, engine=plan.engine.name, target=target)


def secrets_of(plan: Plan, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the exported secrets that the plan relies on, by name."""
    if plan.container is not None:
        return plan.container.secrets
    return tuple(name for name in SECRETS if environment.get(name) or name in plan.command.env)


def required(secrets: Sequence[str]) -> tuple[str, ...]:
    """Return those of these secrets without which nothing may start."""
    return tuple(name for name in secrets if name in _REQUIRED_SECRETS)


def container_name(service: str) -> str:
    """Return a service's name for docker and podman: two characters at least."""
    if len(service) > 1:
        return service
    return f"service-{service}"


def visible(container: Container) -> dict[str, str]:
    """Return the variable that gives a container its cards.

    The runtime sorts its values.
    """
    if not container.indices:
        return {}
    return {VISIBLE: ",".join(map(str, sorted(container.indices)))}


def about_cards(container: Container) -> tuple[Message, ...]:
    """Return the notes about the cards' numbers in a rendered file."""
    if not container.indices:
        return ()
    modules, indices = (
        ",".join(map(str, numbers)) for numbers in (container.modules, container.indices)
    )
    return (message("render.indices", modules=modules, indices=indices),)


def image_for(plan: Plan, *, scale_out: bool = False) -> str:
    """Return the image of the plan's engine.

    ``scale_out``: the one with libfabric, where we can build it.

    Raises LaunchError (USAGE) where there is none.
    """
    release = release_of(plan.engine.label, plan.engine.version)
    if release is not None and scale_out and release.bare_image is not None:
        return release.scale_out_image
    image = setup_image(plan.engine.name)
    if release is not None:
        image = release.image
    if image is None:
        raise LaunchError("render.no_image", ExitCode.USAGE, engine=plan.engine.label)
    return image


def mounts_of(env: Mapping[str, str], args: EngineArgs) -> tuple[Mount, ...]:
    """Return the folders and files of the host that the engine reads and writes.

    Each has the same path inside, so that no argument of the plan changes. A folder inside another
    of them is mounted once.
    """
    wanted: dict[str, bool] = {}

    def want(path: str, writes: bool) -> None:
        if path.startswith("/"):
            place = _whole_folder(path)
            wanted[place] = wanted.get(place, False) or writes

    for name, writes in _PATHS.items():
        value = env.get(name, "")
        if name == "PT_HPU_RECIPE_CACHE_CONFIG":
            # "path,delete,size": the path may not have a comma, as the bridge splits at commas
            value = value.split(",")[0]
        want(value, writes)
    quant = Path(env.get("QUANT_CONFIG", ""))
    measured = measured_folder(quant, env.get(PREFIX, ""))
    if measured is None and quant.is_relative_to(measurements_root()):
        # not fetched yet: file and measurements will be in one folder
        measured = quant.parent
    want(str(measured or ""), True)
    for argument in args.every:
        if argument.name in _PATH_OPTIONS:
            want(argument.value, _PATH_OPTIONS[argument.name])
    want(positional_model(args.to_argv()) or "", False)
    mounts = [
        # without its measurements the file is useless
        Mount(path, path, not writes, fill=writes and path != str(measured))
        for path, writes in sorted(wanted.items())
    ]
    return tuple(mount for mount in mounts if not any(_covers(other, mount) for other in mounts))


def _hub_home(plan: Plan, env: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return HF_HOME for a model that the engine fetches by its name.

    It is the user's cache, because what a container fetches into itself is lost with it.
    """
    home = environment.get("HOME", "")
    named = looks_like_hub_id(str(plan.model.get("path", "")))
    if not named or not home.startswith("/") or any(name in env for name in HUB_FOLDERS):
        return {}
    return {"HF_HOME": str(PurePosixPath(home, ".cache/huggingface"))}


def _covers(outer: Mount, inner: Mount) -> bool:
    inside = (
        outer.source != inner.source
        and PurePosixPath(outer.source) in PurePosixPath(inner.source).parents
    )
    return inside and (not outer.read_only or inner.read_only)


def _whole_folder(path: str) -> str:
    """Return the folder to mount for a path.

    In the hub's cache a snapshot consists of links into the folder above it.
    """
    parts = PurePosixPath(path).parts
    for at, part in enumerate(parts[:-1]):
        if part.startswith("models--") and parts[at + 1] == "snapshots":
            return str(PurePosixPath(*parts[: at + 1]))
    return str(PurePosixPath(path))


def start_seconds(plan: Plan) -> int:
    """Return the seconds after which a launch counts as failed.

    They are twice the longest estimate (which includes cached recipes), and never less than public
    measurements.
    """
    parameters = plan.model.get("parameters") or 0
    variables = (plan.container or plan.command).env
    high, least = 0.0, LEAST_START
    if plan.estimate is not None:
        high = plan.estimate.high_seconds
    fp8 = "QUANT_CONFIG" in variables or str(plan.model.get("quantization") or "").startswith("fp8")
    cached = plan.cache.get("state") == "hit"
    if parameters > _LONG_PARAMETERS or (fp8 and not cached):
        least = LEAST_LONG_START
    return max(least, math.ceil(2 * high))


def _program(interpreter: str) -> str:
    """Return the image's program in place of a path of this machine."""
    name = PurePosixPath(interpreter).name
    if re.fullmatch(r"python[0-9.]*", name):
        return "python3"
    return name


def refuse_secrets(args: EngineArgs) -> None:
    """Raise LaunchError for a secret in the plan: other users read rendered files.

    A secret may only come from the environment.
    """
    for argument in args.given(*_SECRET_OPTIONS):
        variable = _SECRET_OPTIONS[argument.name]
        raise LaunchError("render.secret", ExitCode.USAGE, option=argument.name, variable=variable)
    refuse_secret_args(args)
