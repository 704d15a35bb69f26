"""The demo model of this machine and its engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines import registry
from gaudi_launch.core.engines.vllm_cpu import install as cpu_install
from gaudi_launch.core.planning.request import Request


def demo_request(request: Request, *, in_image: bool) -> Request:
    """Return the request with the demo model's folder, if any, and its engine."""
    if in_image and not cpu_install.demo_is_ready():
        raise LaunchError("render.demo_missing", ExitCode.MODEL)
    folder = cpu_install.demo_dir()
    path = str(folder) if folder.is_dir() else "demo"
    engine = registry.demo_engine(request.engine)
    return replace(request, model=path, engine=engine, served_name=request.served_name or "demo")


def set_up_demo(engine: str | None, say: Callable[[str], None]) -> None:
    """Install the demo model and its engine. Raises LaunchError."""
    cpu_install.check_shared_memory()
    outer = (engine or "auto").partition(":")[0]
    if registry.is_ray(outer):
        around = registry.made_by_steps(outer)
        if not around.is_ready():
            around.setup(say)
    if not (cpu_install.EMBEDDED.is_ready() and cpu_install.demo_is_ready()):
        cpu_install.EMBEDDED.setup(say)
