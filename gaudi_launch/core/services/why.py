"""The use case of ``gaudi-launch why``: select a log and explain it."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor.findings import Deviation
from gaudi_launch.core.doctor.installer import commands, software_release
from gaudi_launch.core.doctor.releases import releases
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.engines.entries import detect_engine
from gaudi_launch.core.engines.pins import compare_pins
from gaudi_launch.core.services.diagnosis import explain
from gaudi_launch.core.services.diagnosis.diagnose import Cause
from gaudi_launch.core.services.diagnosis.drift import DriftError, drift_errors
from gaudi_launch.core.services.diagnosis.explain import Explanation
from gaudi_launch.core.services.state import chosen, registry, store
from gaudi_launch.core.services.state.registry import ServiceRecord

_log = logging.getLogger(__name__)


def why(log: str | None, exit_status: int | None) -> Explanation:
    """Explain a log by its path, ``-`` for stdin, or a service by its name.

    Without either, explain what failed last, else the only running service. Raises LaunchError.
    """
    if log == "-":
        return _with_drift(explain.explain_log(None, exit_status))
    if log is None:
        failed = [each for each in registry.services() if each.failed]
        if not failed:
            return _of_service(chosen.resolve(None), exit_status)
        last = max(
            failed, key=lambda each: float(each.state.get("ended") or each.state.get("began") or 0)
        )
        return _of_service(last, exit_status)
    path = Path(log)
    # a folder is not a log, so the name may be that of a service
    if path.exists() and not path.is_dir():
        return _with_drift(explain.explain_log(path, exit_status))
    try:
        service = chosen.resolve(log)
    except LaunchError as error:
        # one that is more likely a file than a service
        if error.id != "services.unknown" or not ("/" in log or log.endswith((".log", ".txt"))):
            raise
        return _with_drift(explain.explain_log(path, exit_status))
    return _of_service(service, exit_status)


def _of_service(service: ServiceRecord, exit_status: int | None) -> Explanation:
    return _with_drift(explain.explain_service(service, exit_status), service)


def _with_drift(explained: Explanation, service: ServiceRecord | None = None) -> Explanation:
    """Return the explanation with the packages behind an import or attribute error.

    They differ from the engine's constraints file, or are packages of Gaudi that are absent. They
    replace an exception without a known cause. A log of another environment than the installed
    engine's is not changed.
    """
    errors = drift_errors(explained.content.text) if explained.found.failed else ()
    installed = _installed(service) if errors else None
    if installed is None or not (service or _is_from(installed, explained.content.text)):
        return explained
    cause = _absent(errors, installed) or _drift(errors, installed)
    if cause is None:
        return explained
    found = explained.found
    known = tuple(each for each in found.causes if each.id not in ("exception", "pair_mismatch"))
    return replace(explained, found=replace(found, causes=(*known, cause)))


def _installed(service: ServiceRecord | None) -> Installed | None:
    """Return the engine of a service's record, else the installed one."""
    plan = (store.read(service.folder, "plan.json") or {}) if service else {}
    engine = plan.get("engine")
    python = mapping(engine).get("python")
    if service is not None and not python:
        # an engine in a container is in no interpreter
        return None
    try:
        found = detect_engine(python)
    except LaunchError as error:
        _log.debug("the engine's packages are not compared: %s", error)
        return None
    if found is not None and found.engine:
        return found
    return None


def _is_from(installed: Installed, text: str) -> bool:
    """Return True for a log whose tracebacks name this engine's folder."""
    places = (installed.facts.get("source"), installed.facts.get("plugin_source"))
    return any(f'File "{place}/' in text for place in places if place)


def _absent(errors: Sequence[DriftError], installed: Installed) -> Cause | None:
    """Return an absent package of Gaudi whose module an error could not import."""
    absent = [
        row for row in releases().python_packages if not set(row.names) & set(installed.packages)
    ]
    release = software_release(installed.packages.get("habana-torch-plugin"))
    for error in errors:
        row = next((row for row in absent if set(row.modules) & set(error.named)), None)
        if row is None:
            continue
        return Cause(
            id="package_absent",
            title=message("diagnose.package_absent", package=row.names[0], python=installed.python),
            remedy=message("diagnose.package_absent_fix"),
            commands=commands(release, "install", "pytorch") if release is not None else (),
            evidence=((error.number, error.text),),
            permanent=True,
            source="HabanaAI/vllm-fork@17a7946f:README_GAUDI.md; profiles/releases.yaml",
        )
    return None


def _drift(errors: Sequence[DriftError], installed: Installed) -> Cause | None:
    compared = compare_pins(installed)
    if compared is None:
        return None
    for error in errors:
        blamed = error.blamed(compared.deviations)
        if blamed:
            return _cause(error, blamed, installed.python, compared.file)
    return None


def _cause(error: DriftError, blamed: Sequence[Deviation], python: str, file: str) -> Cause:
    found = ", ".join(f"{each.package} {each.installed}" for each in blamed)
    expected = ", ".join(f"{each.package} {each.pinned}" for each in blamed)
    names = [each.package for each in blamed]
    return Cause(
        id="package_drift",
        title=message("diagnose.package_drift", found=found, expected=expected),
        remedy=message("diagnose.package_drift_fix"),
        commands=(shlex.join((python, "-m", "pip", "install", "--constraint", file, *names)),),
        evidence=((error.number, error.text),),
        permanent=True,
        source=file,
    )
