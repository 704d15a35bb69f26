"""Make the embedded engine in a container that becomes an image.

`image` mounts this program read-only into a container of the base image and runs it there, with
that image's Python. The steps are those of an environment on this machine (`install`).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.mirrors import read
from gaudi_launch.core.engines.install.pip_settings import without_addresses
from gaudi_launch.core.engines.install.step_runner import mirrored, run_steps
from gaudi_launch.extensions.vllm_cpu.install import (
    EMBEDDED,
    LIBRARY_PACKAGE,
    check_library,
    demo_steps_in,
)

# in the container: what is mounted for this program only, and what the image keeps
MOUNTED = "/run/gaudi-launch"
SETTINGS = f"{MOUNTED}/settings"
PIP = f"{MOUNTED}/pip"
DEMO = f"{MOUNTED}/demo"
PLACE = "/opt/gaudi-launch/cpu"


def main(owner: str) -> int:
    """Make the engine, and the demo model; return the exit status.

    The demo model is made where its folder is mounted. ``owner`` is the user and group, as
    ``UID:GID``, that the demo model's files belong to.
    """
    config = Path(SETTINGS, "pip.conf")
    variables = json.loads(Path(SETTINGS, "variables.json").read_text(encoding="utf-8"))
    os.environ.update(variables, PIP_CONFIG_FILE=str(config), PIP_NO_CACHE_DIR="1")
    addresses = config.read_text(encoding="utf-8")
    mirrors = read()
    place = Path(PLACE)
    try:
        _bring_library()
        place.parent.mkdir(parents=True, exist_ok=True)
        run_steps(mirrored(EMBEDDED.steps(place), mirrors), _say, mirrors)
        if Path(DEMO).is_dir():
            python = str(place / "bin" / "python")
            run_steps(demo_steps_in(Path(DEMO), python), _say, mirrors)
            user, _, group = owner.partition(":")
            for path in (Path(DEMO), *Path(DEMO).rglob("*")):
                os.chown(path, int(user), int(group))
    except LaunchError as error:
        for line in f"{error}\n{error.detail or ''}".splitlines():
            _say(without_addresses(line, addresses))
        return 1
    # the paths of models on this machine have the same name in a container
    Path("/root").chmod(0o755)
    return 0


def _bring_library() -> None:
    """Install the engine's library of the system where the base image lacks it.

    Raises LaunchError where that fails: the base image needs another one.
    """
    try:
        check_library()
    except LaunchError:
        if shutil.which("apt-get") is None:
            raise
        for words in (("update",), ("install", "--yes", "--no-install-recommends")):
            packages = (LIBRARY_PACKAGE,) if words[0] == "install" else ()
            interrupt.run(("apt-get", "--quiet=2", *words, *packages))
        check_library()


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
