"""A service as a record that can be stored: enough to start its engine again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.planning.exported import SECRETS, engine_variables, local_variables
from gaudi_launch.core.planning.plan import Api, Command, Plan
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.recipes.attach import Cached, CacheJob
from gaudi_launch.core.services.state import store

RESTARTS = ("no", "on-failure")
FILE = "job.json"


@dataclass(frozen=True)
class ServiceJob:
    """One service.

    ``model`` is its name as text, ``graphs`` the planned number of graphs to warm up (0: unknown).
    ``environment`` are the user's variables for the engine, never secret ones; of those,
    ``secrets`` are the names. ``container`` is the name of the container that the command starts,
    if it starts one. ``limits`` are the seconds that a phase may last without progress. ``bind``
    False: the plan's CPUs are not this machine's. ``restart`` is one of `RESTARTS`.
    ``health_only``: it is a gateway, which is ready when /health answers.
    """

    name: str
    model: str
    model_path: str
    engine: str
    url: str
    command: Command
    modules: tuple[int, ...] = ()
    graphs: int = 0
    dtype: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    bind: bool = True
    restart: str = "no"
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    container: str = ""
    cache: CacheJob | None = None
    api: Api = "openai"
    simulated: bool = False
    health_only: bool = False


def read_job(folder: Path) -> ServiceJob:
    """Return the job of a service's folder.

    Raises LaunchError (FAILED) when the file is not a job of this program.
    """
    document = store.read(folder, FILE)
    try:
        if document is None:
            raise ValueError("missing or cut off")
        return codec.read(ServiceJob, document)
    except ValueError as error:
        raise LaunchError(
            "services.bad_job", ExitCode.FAILED, path=str(folder / FILE), why=str(error)
        ) from None


def job_of(plan: Plan, request: Request, name: str, cached: Cached | None = None) -> ServiceJob:
    """Return the job of a plan, with the defaults of limits, binding and restarts."""
    # a container's description is not needed to run its command, nor who wrote which argument
    command = replace(plan.command, container=None, user=())
    if command.working_dir is None:
        # a detached launcher runs in another folder; arguments of the user may name files from here
        command = replace(command, working_dir=str(Path.cwd()))
    job = ServiceJob(
        name=name,
        model=str(plan.model.get("name", "")),
        model_path=str(plan.model.get("path", "")),
        engine=plan.engine.exact,
        url=plan.url,
        command=command,
        modules=plan.placement.modules,
        dtype=plan.dtype,
        environment={
            **local_variables(request.environment),
            **engine_variables(request.environment),
        },
        secrets=tuple(name for name in SECRETS if request.environment.get(name)),
        api=plan.engine.api,
        simulated=plan.engine.simulated,
    )
    if plan.engine.simulated:
        # simulated cards are none of this machine's
        job = replace(job, modules=())
    if plan.buckets is not None:
        job = replace(job, graphs=plan.buckets.graphs)
    if plan.container is not None:
        job = replace(job, container=plan.container.name)
    if cached is not None:
        job = replace(job, cache=cached.job)
    return job


def check_restart(word: str) -> str:
    """Return the value of --restart. Raises LaunchError (USAGE)."""
    if word not in RESTARTS:
        raise LaunchError(
            "services.restart_word", ExitCode.USAGE, found=word, known=", ".join(RESTARTS)
        )
    return word
