"""From a plan to a supervised engine: what is checked before anything starts, and what is written down."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from gaudi_launch.engines.detect import Installed
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import text
from gaudi_launch.models.records import Model
from gaudi_launch.paths import machine_root, state_dir
from gaudi_launch.planning.engine import Engine
from gaudi_launch.planning.plan import Plan
from gaudi_launch.planning.request import Request
from gaudi_launch.services import state
from gaudi_launch.services.diagnose import Diagnosis, diagnose
from gaudi_launch.services.follow import Progress
from gaudi_launch.services.ready import Readiness, listener, port_free
from gaudi_launch.services.supervise import Job, Outcome, Supervisor, Watcher
from gaudi_launch.warmup.estimate import FILE_NAME, Measured, record

_LAST_LINES = 30
_MOST_LOG_BYTES = 4 << 20


def check_engine(engine: Engine, installed: Installed | None) -> None:
    """Is the planned engine what the interpreter has? Raises LaunchError (MACHINE)."""
    inner = getattr(engine, "inner", None)
    if inner is not None:
        _check_around(inner, installed)
        return
    identity = engine.identity
    wanted = identity.name if identity.name != "vllm-fork" else f"vllm-fork@{identity.version}"
    wanted = "deepseek_r1" if wanted == "vllm-fork@deepseek_r1" else wanted
    if installed is None or not installed.engine:
        where = installed.python if installed is not None else "PATH"
        raise LaunchError("serve.no_engine", ExitCode.MACHINE, python=where, engine=wanted)
    if installed.engine != wanted:
        raise LaunchError(
            "serve.other_engine", ExitCode.MACHINE, python=installed.python, found=installed.engine, engine=wanted
        )


def _check_around(inner: Engine, installed: Installed | None) -> None:
    """Ray Serve and the engine inside it. Raises LaunchError (MACHINE)."""
    if installed is None or "ray" not in installed.packages:
        raise LaunchError("ray.missing", ExitCode.MACHINE, python=installed.python if installed else "PATH")
    if inner.identity.name != "transformers":
        check_engine(inner, installed)
    elif "transformers" not in installed.packages:
        raise LaunchError("ray.no_transformers", ExitCode.MACHINE, python=installed.python)


def check_model(model: Model, request: Request) -> None:
    """Is the model's folder whole? Raises LaunchError (MODEL) unless forced."""
    if model.files_missing and not request.force:
        shown = ", ".join(model.files_missing[:5]) + (" ..." if len(model.files_missing) > 5 else "")
        raise LaunchError(
            "serve.model_incomplete", ExitCode.MODEL, path=model.path, count=len(model.files_missing), files=shown
        )


def check_port(plan: Plan) -> None:
    """Is the port free? Raises LaunchError (MACHINE), naming who listens where that can be seen."""
    host, port = address(plan)
    if not port_free(host, port):
        raise LaunchError("serve.port_taken", ExitCode.MACHINE, port=port, who=listener(port) or "-")


def address(plan: Plan) -> tuple[str, int]:
    """Host and port of the plan's URL."""
    host, _, port = plan.url.removeprefix("http://").removeprefix("https://").rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0


def run(plan: Plan, request: Request, name: str, watcher: Watcher, limits: Mapping[str, float]) -> Outcome:
    """Start the planned engine and stay with it until it ends. Raises LaunchError when it cannot be started."""
    folder = state.make_dir(name)
    log = folder / "engine.log"
    environment = {**os.environ, **{k: v for k, v in request.environment.items() if k == "VLLM_API_KEY"}}
    job = Job(
        command=plan.command,
        url=plan.url,
        log=log,
        environment=environment,
        api_key=environment.get("VLLM_API_KEY"),
        # a plan for another root is not about this machine's CPUs
        bind=machine_root() == Path("/"),
        limits=limits,
    )
    state.write(folder, "plan.json", plan.to_json())
    recorder = _Recorder(watcher, folder, plan, name, log)
    outcome = Supervisor(job, recorder).run()
    recorder.ended(outcome)
    return outcome


def failure(outcome: Outcome, log: Path) -> LaunchError:
    """The error of an engine that died, got stuck or never started: the cause, its last lines, the log's path."""
    if outcome.kind == "not_started":
        return LaunchError("serve.not_started", ExitCode.ENGINE, why=outcome.detail)
    lines = last_lines(log)
    found = diagnose(read_log(log), exit_status=outcome.status)
    detail = "\n".join([*_causes(found), "", *lines])
    phase = text(f"serve.phase_{found.phase}")
    if outcome.kind == "stuck":
        return LaunchError(
            "serve.stuck",
            ExitCode.ENGINE,
            phase=phase,
            seconds=outcome.detail,
            log=str(log),
            detail=detail,
        )
    return LaunchError(
        "serve.died",
        ExitCode.ENGINE,
        phase=phase,
        status=_status(outcome.status),
        log=str(log),
        detail=detail,
    )


def _causes(found: Diagnosis) -> list[str]:
    lines = []
    for cause in found.causes[:3]:
        lines.append(f"{text('serve.word_cause')}: {cause.title.render()}")
        lines.append(f"  {cause.remedy.render()}")
        lines += [f"  $ {command}" for command in cause.commands]
    return lines or [text("serve.no_cause")]


def _status(status: int | None) -> str:
    if status is None:
        return "-"
    return text("serve.by_signal", number=-status) if status < 0 else str(status)


def read_log(path: Path) -> str:
    """The end of a log, 4 MiB at most."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MOST_LOG_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def last_lines(path: Path) -> list[str]:
    return read_log(path).splitlines()[-_LAST_LINES:]


class _Recorder:
    """Writes a service's state as it changes, and passes everything on."""

    def __init__(self, inner: Watcher, folder: Path, plan: Plan, name: str, log: Path) -> None:
        self._inner = inner
        self._folder = folder
        self._plan = plan
        self._state: dict[str, object] = {
            "name": name,
            "model": plan.model.get("path"),
            "engine": f"{plan.engine.name}@{plan.engine.version}",
            "modules": list(plan.placement.modules),
            "url": plan.url,
            "log": str(log),
            "launcher_pid": os.getpid(),
            "launcher_started": _start_time(os.getpid()),
            "began": time.time(),
            "phase": "start",
        }

    def _put(self, **news: object) -> None:
        self._state.update(news)
        state.write(self._folder, "state.json", self._state)

    def started(self, pid: int) -> None:
        self._put(pid=pid, pid_started=_start_time(pid))
        self._inner.started(pid)

    def output(self, text: str) -> None:
        self._inner.output(text)

    def progress(self, progress: Progress) -> None:
        ray = {k: v for k, v in progress.facts.items() if k.startswith(("ray_", "replicas_"))}
        if progress.phase != self._state["phase"] or ray != self._state.get("ray", {}):
            news = {"ray": ray} if ray else {}
            self._put(phase=progress.phase, done=progress.done, total=progress.total, **news)
        self._inner.progress(progress)

    def ready(self, readiness: Readiness) -> None:
        self._put(phase="ready", ready_at=time.time())
        self._inner.ready(readiness)

    def ending(self, signal_number: int | None) -> None:
        self._put(phase="stopping")
        self._inner.ending(signal_number)

    def ended(self, outcome: Outcome) -> None:
        progress = outcome.progress
        self._put(
            phase="stopped" if outcome.kind == "stopped" else "failed",
            outcome=outcome.kind,
            status=outcome.status,
            ended=time.time(),
            facts=dict(progress.facts),
            phases=[phase.to_json() for phase in progress.phases],
        )
        if outcome.was_ready:
            remember(self._plan, progress)


def remember(plan: Plan, progress: Progress) -> None:
    """Write down how long this warm-up took, for the estimates of later plans on this machine."""
    seconds = progress.facts.get("warmup_seconds", 0)
    graphs = sum(phase.items for phase in progress.phases if phase.name.startswith("warmup_"))
    if not (isinstance(seconds, int | float) and seconds > 0 and graphs):
        return
    measured = Measured(
        engine=f"{plan.engine.name}@{plan.engine.version}",
        model=str(plan.model.get("name", "")),
        cards=len(plan.placement.modules),
        dtype="fp8" if "QUANT_CONFIG" in plan.command.env else "bfloat16",
        graphs=graphs,
        seconds=float(seconds),
        cached=plan.cache.get("state") == "hit",
    )
    # a full disk costs the estimate, not the service
    with contextlib.suppress(OSError):
        record(state_dir() / FILE_NAME, measured)


def _start_time(pid: int) -> float | None:
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None
