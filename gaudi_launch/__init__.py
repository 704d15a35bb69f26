"""gaudi-launch: from weights on disk to an LLM server on Intel Gaudi.

The Python API is `plan` and `serve`, both of a `LaunchOptions` record, whose fields are the options
of the command line with the same values. Errors that a caller can cause are `LaunchError`, with an
``id`` and an ``exit_code``. Importing this module loads nothing else: a call imports what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gaudi_launch.core.base.version import VERSION

if TYPE_CHECKING:
    from gaudi_launch.core.base.errors import LaunchError
    from gaudi_launch.core.launch.report import Reporter
    from gaudi_launch.core.launch.service import Service
    from gaudi_launch.core.planning.launch_options import LaunchOptions
    from gaudi_launch.core.planning.plan import Plan

__version__ = VERSION
__all__ = ["LaunchError", "LaunchOptions", "Plan", "Service", "__version__", "plan", "serve"]

_LAZY = {
    "LaunchError": "gaudi_launch.core.base.errors",
    "LaunchOptions": "gaudi_launch.core.planning.launch_options",
    "Plan": "gaudi_launch.core.planning.plan",
    "Service": "gaudi_launch.core.launch.service",
}


def plan(options: LaunchOptions) -> Plan:
    """Return the plan that `serve` would start, each setting with source and reason.

    Reads only: neither the model nor an engine needs to be on this machine. Raises LaunchError.

    >>> from gaudi_launch import LaunchOptions, plan
    >>> options = LaunchOptions(
    ...     model="Qwen2-72B-Instruct", cards=4, engine="vllm-fork@1.21", machine="simulated:hls2"
    ... )
    >>> made = plan(options)
    >>> made.placement.modules
    (0, 1, 2, 3)
    >>> parallel = [found for found in made.settings if found.name == "--tensor-parallel-size"]
    >>> [(found.value, found.source) for found in parallel]
    [('4', 'flag')]
    """
    from gaudi_launch.core.launch import route

    return route.plan(options)[0]


def serve(
    options: LaunchOptions,
    *,
    name: str | None = None,
    restart: str = "no",
    check_machine: bool = True,
    reporter: Reporter | None = None,
) -> Service:
    """Start a model as a detached service and return its handle.

    The service outlives this process. Missing files of the model are fetched first. ``name`` None:
    from model and port. ``restart``: "no" or "on-failure". ``check_machine`` False: start although
    the doctor's checks fail. ``reporter`` receives progress. As a context manager the handle stops
    the service at the end. Raises LaunchError; then nothing was started.

    >>> from gaudi_launch import LaunchError, LaunchOptions, serve
    >>> try:
    ...     serve(LaunchOptions(model="Qwen2-72B-Instruct", cards=0))
    ... except LaunchError as error:
    ...     print(error.id, int(error.exit_code))
    plan.number 2
    """
    from gaudi_launch.core.launch.report import Silent
    from gaudi_launch.core.launch.serve import ServeMode, start

    how = ServeMode(
        name=name, no_doctor=not check_machine, quiet=True, restart=restart, detach=True
    )
    return start(options, how, reporter or Silent())


def __getattr__(name: str) -> Any:
    """Return a class of the API, imported when it is first used."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gaudi_launch.core.base.members import member

    return member(f"{_LAZY[name]}:{name}")
