"""The container that TGI runs in: folders, ports, cards and secrets of one plan."""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.mirrors import exported_proxies
from gaudi_launch.core.engines.base import base_name, options_of, sent_variables
from gaudi_launch.core.engines.docker_command import card_indices, container_name, docker_run
from gaudi_launch.core.host.cpus import format_cpus
from gaudi_launch.core.models.config import looks_like_hub_id
from gaudi_launch.core.planning.container import IMAGE, IMAGE_DATA, Container, Mount
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.model_name import adapter_folders
from gaudi_launch.core.planning.plan import Command, Setting
from gaudi_launch.core.planning.request import Request

# Dockerfile_gaudi: PORT=80, HF_HOME=/data, WORKDIR /usr/src
PORT = 80
WORK = "/usr/src"
RECIPES = "/recipes"
PROFILE = "/tmp/hpu_profile"
IMAGE_VARIABLE = "GAUDI_LAUNCH_TGI_IMAGE"
_MODELS = "/models/"
_GUIDE_PORT = 8080
_OUR_PORT = 30001
# by name only; docker gives the container the value of the launcher's environment
_HUB_SECRETS = ("HF_TOKEN",)
# the hub library's cache of a model: HUB/models--owner--name/snapshots/REVISION, of links into HUB
_SNAPSHOT = re.compile(r"^(?P<hub>.+)/(?P<inside>models--[\w.-]+/snapshots/\w+)/?$", re.ASCII)


@dataclass(frozen=True)
class QuantConfig:
    """The neural compressor's folders on the host, and the container's QUANT_CONFIG."""

    folder: str
    measured: str
    variable: str


def own_image(request: Request, wanted: str) -> str | None:
    """Return an image that the user names instead: a mirror's, or a local build.

    Raises LaunchError (USAGE).
    """
    image = request.environment.get(IMAGE_VARIABLE)
    if not image:
        return None
    if not IMAGE.fullmatch(image):
        raise LaunchError("tgi.bad_image", ExitCode.USAGE, found=image, wanted=wanted)
    return image


def from_hub(model: str) -> bool:
    """Return True if the container fetches this model itself."""
    return not model_id(model).startswith((_MODELS, f"{IMAGE_DATA}/"))


def published(host: str | None) -> str:
    """Return the numeric address to publish on, which docker requires.

    Raises LaunchError (USAGE).
    """
    address = {None: "127.0.0.1", "localhost": "127.0.0.1"}.get(host, host) or "127.0.0.1"
    try:
        return str(ipaddress.ip_address(address.strip("[]")))
    except ValueError:
        raise LaunchError("tgi.address", ExitCode.USAGE, found=host) from None


def absolute(request: Request, path: str) -> str:
    """Return a user's path as an absolute one, by the current and the home folder."""
    if path == "~" or path.startswith("~/"):
        path = request.environment.get("HOME", "~") + path[1:]
    return posixpath.normpath(posixpath.join(request.environment.get("PWD", "/"), path))


def model_id(model: str) -> str:
    """Return the value of --model-id: a hub ID, or a folder's name in the container."""
    snapshot = _SNAPSHOT.match(model)
    if snapshot:
        return f"{IMAGE_DATA}/hub/{snapshot['inside']}"
    if looks_like_hub_id(model):
        return model
    # the entry point passes its arguments on unquoted: no blanks
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", base_name(model)).strip("-.") or "model"
    return f"{_MODELS}{name}"


def quant_config(request: Request) -> QuantConfig | None:
    """Return the guide's two folders: the configuration's, and hqt_output next to it.

    The configuration names the latter.
    """
    given = request.quant_config or request.environment.get("QUANT_CONFIG")
    if not given:
        return None
    folder, _, file = absolute(request, given).rpartition("/")
    if any(character.isspace() for character in file):
        raise LaunchError(
            "tgi.value", ExitCode.USAGE, option="--quant-config", found=given, wanted="-"
        )
    measured = posixpath.join(posixpath.dirname(folder), "hqt_output")
    return QuantConfig(folder, measured, f"./quantization_config/{file}")


def command(image: str, settings: Sequence[Setting], context: Context) -> Command:
    """Return ``docker run`` of these settings on the chosen cards.

    Raises LaunchError for a card without an index.
    """
    request, placement = context.request, context.placement
    address, usual_port, cpus = published(request.host), _OUR_PORT, placement.cpus
    if request.tuning == "reference":
        usual_port, cpus = _GUIDE_PORT, ()
        if request.host is None:
            # the guide publishes on every address
            address = ""
    port = request.port or usual_port
    named = model_id(request.model)
    container = Container(
        image=image,
        argv=tuple(options_of(settings)),
        env=sent_variables(settings),
        secrets=_secrets(request),
        mounts=_mounts(request, named, quantised=any(s.name == "QUANT_CONFIG" for s in settings)),
        ports=((port, PORT),),
        address=address,
        modules=placement.modules,
        indices=card_indices(context.host, placement.modules),
        cpus=format_cpus(cpus),
        name=container_name("tgi", request.model, port),
        url=f"http://127.0.0.1:{PORT}",
    )
    return Command(
        argv=docker_run(container, container.name), env={}, cpus=cpus, container=container
    )


def _secrets(request: Request) -> tuple[str, ...]:
    if not from_hub(request.model):
        return ()
    # by name too: a proxy's address may contain a password
    return (*_HUB_SECRETS, *exported_proxies(request.environment))


def _mounts(request: Request, named: str, *, quantised: bool) -> tuple[Mount, ...]:
    mounts = []
    snapshot = _SNAPSHOT.match(request.model)
    if snapshot:
        mounts.append(Mount(absolute(request, snapshot["hub"]), f"{IMAGE_DATA}/hub"))
    elif named.startswith(_MODELS):
        mounts.append(Mount(absolute(request, request.model), named, read_only=True))
    else:
        mounts.append(_hub_mount(request))
    # the launcher gets their paths as they were written
    folders = sorted({path for _, path in adapter_folders(request.args) if path[:1] == "/"})
    mounts += [
        Mount(each, each, read_only=True) for each in folders if each[:6] != f"{IMAGE_DATA}/"
    ]
    files = quant_config(request)
    if quantised and files is not None:
        mounts.append(Mount(files.folder, f"{WORK}/quantization_config", read_only=True))
        # the scales are written there when the model is loaded
        mounts.append(Mount(files.measured, f"{WORK}/hqt_output"))
    if request.cache_dir:
        mounts.append(Mount(absolute(request, request.cache_dir), RECIPES, fill=True))
    if request.profile:
        mounts.append(Mount(absolute(request, "hpu_profile"), PROFILE, fill=True))
    return tuple(mounts)


def _hub_mount(request: Request) -> Mount:
    """Return the user's cache of the hub, so that nothing is fetched twice.

    The guide has a folder ``data``.
    """
    environment = request.environment
    if request.tuning == "reference":
        return Mount(absolute(request, "data"), IMAGE_DATA, fill=True)
    if environment.get("HF_HUB_CACHE"):
        return Mount(absolute(request, environment["HF_HUB_CACHE"]), f"{IMAGE_DATA}/hub", fill=True)
    home = environment.get("HF_HOME") or "~/.cache/huggingface"
    return Mount(absolute(request, home), IMAGE_DATA, fill=True)
