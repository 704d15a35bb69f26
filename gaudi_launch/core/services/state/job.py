"""A service as a record that can be stored: enough to start its engine again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines.registry import api_of
from gaudi_launch.core.planning.exported import SECRETS, engine_variables, local_variables
from gaudi_launch.core.planning.plan import Api, Command, Plan
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.recipes.attach import Cached, CacheJob

RESTARTS = ("no", "on-failure")
_COMMAND = ("argv", "env", "unset", "cpus", "memory_node", "working_dir", "files")


@dataclass(frozen=True)
class ServiceJob:
    """One service.

    ``model`` is its name as text, ``graphs`` the planned number of graphs to warm up (0: unknown).
    ``environment`` are the user's variables for the engine, never secret ones; of those,
    ``secrets`` are the names. ``container`` is the name of the container that the command starts,
    if it starts one. ``limits`` are the seconds that a phase may last without progress. ``restart``
    is one of `RESTARTS`. ``health_only``: it is a gateway, which is ready when /health answers.
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

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``job.json``."""
        # a container's description is not needed to run its command, nor who wrote which argument
        command = {name: getattr(self.command, name) for name in _COMMAND}
        cache = self.cache.to_json() if self.cache else None
        return {**vars(self), "command": command, "cache": cache}

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | None, path: Path) -> ServiceJob:
        """Return the job of a ``job.json``.

        Raises LaunchError (FAILED) when the file is not a job of this program.
        """
        try:
            if document is None:
                raise ValueError("missing or cut off")
            command = document["command"]
            cache = document["cache"]
            return cls(
                name=str(document["name"]),
                model=str(document["model"]),
                model_path=str(document["model_path"]),
                engine=str(document["engine"]),
                url=str(document["url"]),
                command=Command(
                    argv=tuple(str(word) for word in command["argv"]),
                    env={str(k): str(v) for k, v in command["env"].items()},
                    unset=tuple(str(name) for name in command["unset"]),
                    cpus=tuple(int(cpu) for cpu in command["cpus"]),
                    memory_node=command["memory_node"],
                    working_dir=command["working_dir"],
                    files={str(k): str(v) for k, v in command["files"].items()},
                ),
                modules=tuple(int(module) for module in document["modules"]),
                graphs=int(document["graphs"]),
                dtype=str(document["dtype"]),
                limits={str(k): float(v) for k, v in document["limits"].items()},
                bind=bool(document["bind"]),
                restart=str(document["restart"]),
                environment={str(k): str(v) for k, v in document["environment"].items()},
                secrets=tuple(str(name) for name in document["secrets"]),
                container=str(document["container"]),
                cache=CacheJob.from_json(cache) if cache else None,
                api=_api(document),
                simulated=document.get("simulated") is True,
                health_only=document.get("health_only") is True,
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise LaunchError(
                "services.bad_job",
                ExitCode.FAILED,
                path=str(path),
                why=f"{type(error).__name__}: {error}",
            ) from None


@dataclass(frozen=True)
class Supervision:
    """The limits of each phase in seconds, and the policy of restarts.

    ``bind`` False: the plan's CPUs are not this machine's.
    """

    limits: Mapping[str, float]
    bind: bool
    restart: str = "no"


def job_of(
    plan: Plan, request: Request, name: str, supervision: Supervision, cached: Cached | None = None
) -> ServiceJob:
    """Return the job of a plan."""
    job = ServiceJob(
        name=name,
        model=str(plan.model.get("name", "")),
        model_path=str(plan.model.get("path", "")),
        engine=plan.engine.exact,
        url=plan.url,
        # a detached launcher runs in another folder; arguments of the user may name files from here
        command=replace(plan.command, working_dir=plan.command.working_dir or str(Path.cwd())),
        modules=plan.placement.modules,
        dtype=plan.dtype,
        limits=supervision.limits,
        bind=supervision.bind,
        restart=supervision.restart,
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


def _api(document: Mapping[str, Any]) -> Api:
    """Return the API of a job's server.

    Jobs of 2026 and before name their engine only.
    """
    if document.get("api") == "generate":
        return "generate"
    if document.get("api") == "openai":
        return "openai"
    return api_of(str(document["engine"]))


def check_restart(word: str) -> str:
    """Return the value of --restart. Raises LaunchError (USAGE)."""
    if word not in RESTARTS:
        raise LaunchError(
            "services.restart_word", ExitCode.USAGE, found=word, known=", ".join(RESTARTS)
        )
    return word
