"""The image of the embedded engine: a base image with the engine.

A container of the base image runs `inside_image`, and becomes the image. Docker and podman have
the same commands for that, of any version and without a builder. pip's settings, this program and
the folder of the demo model are mounted while it runs, so that the image has none of them.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gaudi_launch.core.base import interrupt, paths
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.paths import engines_dir
from gaudi_launch.core.engines.base import VLLM
from gaudi_launch.core.engines.install.demo import demo_dir, demo_is_ready
from gaudi_launch.core.engines.install.installation import ImageRecipe, ImageRequest
from gaudi_launch.core.engines.install.pip_settings import PipSettings, read_settings
from gaudi_launch.core.engines.install.step_runner import InstallStep, Say, alone, run_logged
from gaudi_launch.core.planning.container import IMAGE as NAME_OF_IMAGE
from gaudi_launch.extensions.vllm_cpu import inside_image
from gaudi_launch.extensions.vllm_cpu.install import demo_part, place_demo

IMAGE = f"gaudi-launch/cpu:{VLLM}"
# assumed: the publisher's image of Python, in a version that the engine accepts
BASE = "docker.io/library/python:3.12-slim-bookworm"
BASE_VARIABLE = "GAUDI_LAUNCH_BASE_IMAGE"
# a user without rights on any file; it has no name in the image, so that programs ask these
# variables for it
_USER = "65532:65532"
_ENVIRONMENT = {"HOME": "/tmp", "USER": "gaudi", "LOGNAME": "gaudi"}
_log = logging.getLogger(__name__)

_CONTAINER = "gaudi-launch-setup-cpu"
_LABEL = "gaudi-launch.base"
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from gaudi_launch.extensions.vllm_cpu.inside_image import main; sys.exit(main(sys.argv[2]))"
)


def base_image(option: str | None, environment: Mapping[str, str]) -> str:
    """Return the base image of an option, of the environment, or the default.

    Raises LaunchError (USAGE) for an invalid name.
    """
    found = option or environment.get(BASE_VARIABLE) or BASE
    if not NAME_OF_IMAGE.fullmatch(found):
        name = "--base-image" if option else BASE_VARIABLE
        raise LaunchError("kubernetes.image", ExitCode.USAGE, option=name, found=found)
    return found


def steps(request: ImageRequest, settings: PipSettings, folder: Path) -> tuple[InstallStep, ...]:
    """Return the commands of the build.

    ``folder`` has pip's settings. The container is removed first and last: an interrupted build
    leaves one.
    """
    program = request.program
    package = Path(paths.__file__).parents[2]
    mounts = {f"{inside_image.MOUNTED}/package/gaudi_launch": str(package)}
    mounts[inside_image.SETTINGS] = str(folder)
    mounts |= settings.mounts
    run = [program, "run", "--name", _CONTAINER, "--network=host", "--user=0:0"]
    for target, source in mounts.items():
        run += ["--volume", f"{source}:{target}:ro"]
    if request.demo:
        run += ["--volume", f"{demo_part()}:{inside_image.DEMO}"]
    owner = f"{os.getuid()}:{os.getgid()}"
    run += ["--entrypoint=python3", request.base, "-c", _START]
    run += [f"{inside_image.MOUNTED}/package", owner]
    return (
        InstallStep("setup.image_run", tuple(run)),
        InstallStep(
            "setup.image_commit", (program, "commit", *_changes(request), _CONTAINER, IMAGE)
        ),
        InstallStep("setup.image_clear", _removal(program)),
    )


def planned(request: ImageRequest, environment: Mapping[str, str]) -> tuple[InstallStep, ...]:
    """Return the commands of a build that is not run."""
    settings = read_settings(environment, inside_image.PIP, request.mirrors)
    return steps(request, settings, Path("SETTINGS"))


def build(request: ImageRequest, environment: Mapping[str, str], say: Say) -> int:
    """Build what is missing: the image, and the demo model's folder.

    Return the number of steps that were run. Raises LaunchError: no program (MACHINE), or the step
    that failed with its last lines (FAILED).
    """
    if shutil.which(request.program) is None:
        raise LaunchError("setup.no_docker", ExitCode.MACHINE, program=request.program)
    folder = engines_dir() / "cpu-image"
    log = folder / "setup.log"
    with alone() as place:
        if base_of(request.program) == request.base and (demo_is_ready() or not request.demo):
            return 0
        # a complete demo model stays: a service may read it
        request = replace(request, demo=request.demo and not demo_is_ready())
        folder.mkdir(parents=True, exist_ok=True)
        say(text("setup.log", path=log))
        if request.demo:
            shutil.rmtree(demo_part(), ignore_errors=True)
            demo_part().mkdir(parents=True)
        settings = read_settings(environment, inside_image.PIP, request.mirrors)
        (place / "pip.conf").write_text(settings.config, encoding="utf-8")
        variables = json.dumps(dict(settings.variables))
        (place / "variables.json").write_text(variables, encoding="utf-8")
        commands = steps(request, settings, place)
        interrupt.run(_removal(request.program))
        try:
            for number, step in enumerate(commands, start=1):
                say(f"[{number}/{len(commands)}] {text(step.id)}")
                run_logged(step, log)
        finally:
            interrupt.run(_removal(request.program))
        if request.demo:
            place_demo(demo_part(), demo_dir())
    return len(commands)


def base_of(program: str) -> str | None:
    """Return the base image of the built image; None where it is not built."""
    label = f'{{{{index .Config.Labels "{_LABEL}"}}}}'
    try:
        found = interrupt.run([program, "image", "inspect", "--format", label, IMAGE])
    except OSError as error:
        _log.debug("%s cannot be queried: %s", program, error)
        return None
    if found.returncode != 0:
        return None
    return found.stdout.strip()


def _changes(request: ImageRequest) -> list[str]:
    """Return the options of the commit: how the image is run."""
    path = f"{inside_image.PLACE}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    lines = [f"ENV {name}={value}" for name, value in {**_ENVIRONMENT, "PATH": path}.items()]
    lines += [
        f"USER {_USER}",
        f"LABEL {_LABEL}={request.base}",
        "WORKDIR /tmp",
        'ENTRYPOINT ["python3", "-m", "vllm.entrypoints.openai.api_server"]',
        "CMD []",
    ]
    return [word for line in lines for word in ("--change", line)]


def _removal(program: str) -> tuple[str, ...]:
    return (program, "rm", "--force", _CONTAINER)


RECIPE = ImageRecipe(IMAGE, base_image, planned, build)
