"""Run a calibration: phase after phase in the engine's interpreter, resumable.

The result is then moved into place.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.models.folder_lock import hold
from gaudi_launch.core.models.fp8.measurements import calibrated_folder, quant_name
from gaudi_launch.core.models.fp8.quant_config import QuantFile, read_quant_file
from gaudi_launch.core.planning.calibration_rules import Calibration
from gaudi_launch.core.services.diagnosis.failure import last_lines
from gaudi_launch.core.services.process.step import StepProgress, run_step
from gaudi_launch.extensions.fp8.phases import (
    CalibrationPhase,
    CalibrationRequest,
    Done,
    Places,
    Scripts,
    about,
    phases,
    read_done,
    write_done,
)

# recorded when a phase's files were copied over the measurements
_PLACED = "placed"
PhaseState = Literal["begin", "skip", "done"]


@dataclass(frozen=True)
class CalibrationTools:
    """The process settings of the phases.

    ``visible`` are the variables that name the cards; a phase that writes nothing for
    ``quiet_seconds`` is terminated.
    """

    scripts: Scripts
    calibration: Calibration
    python: str
    visible: Mapping[str, str]
    quiet_seconds: float = 3600.0


class CalibrationWatcher(Protocol):
    """Receives the progress of a calibration."""

    def phase(self, name: str, state: PhaseState, number: int, count: int) -> None:
        """Receive that a phase begins, is skipped or is done."""

    def progress(self, progress: StepProgress) -> None:
        """Receive the progress of the running phase."""


def calibrate(
    request: CalibrationRequest,
    tools: CalibrationTools,
    watcher: CalibrationWatcher,
    *,
    again: bool = False,
) -> QuantFile:
    """Calibrate, or continue where an earlier run stopped.

    Return the QUANT_CONFIG that ``-d fp8`` finds then.

    Raises LaunchError: ENGINE for a phase that fails, hangs or leaves nothing; FAILED when another
    process calibrates the same, or the disk is full.
    """
    calibration = tools.calibration
    out = calibrated_folder(request.name, request.generation, request.cards, calibration.family)
    places = Places(out, request.generation)
    rules = calibration.rules_for(request.name)
    todo = phases(request, tools.scripts, rules, places, tools.python)
    with hold(places.out, "fp8 calibrate"):
        facts = about(request, tools.scripts, calibration.release)
        done = Done(facts) if again else read_done(places.out, facts)
        final = places.out / quant_name(request.generation)
        if done.whole and final.is_file():
            return read_quant_file(final, request.cards, "calibrated")
        if not done.phases:
            # first what -d fp8 reads, then the rest
            final.unlink(missing_ok=True)
            for folder in (places.work, places.measurements):
                shutil.rmtree(folder, ignore_errors=True)
        _write(places.config("measure"), rules.measure_config(places.stem))
        _write(places.config("quant"), rules.quant_config(places.stem))
        for number, phase in enumerate(todo, 1):
            if phase.name in done.phases:
                watcher.phase(phase.name, "skip", number, len(todo))
            else:
                watcher.phase(phase.name, "begin", number, len(todo))
                _run(phase, places, request, tools, watcher)
                done = replace(done, phases=(*done.phases, phase.name))
                write_done(places.out, done)
                watcher.phase(phase.name, "done", number, len(todo))
            made, placed = places.made(phase.name), f"{phase.name} {_PLACED}"
            if made is not None and placed not in done.phases:
                # copy the files of a phase over the measurements; may be repeated
                for path in sorted(made.iterdir()):
                    new = places.measurements / f"{path.name}.new"
                    shutil.copyfile(path, new)
                    new.replace(places.measurements / path.name)
                done = replace(done, phases=(*done.phases, placed))
                write_done(places.out, done)
        for kind in ("measure", "quant"):
            places.config(kind).replace(places.out / places.config(kind).name)
        write_done(places.out, replace(done, whole=True))
        shutil.rmtree(places.work, ignore_errors=True)
        return read_quant_file(final, request.cards, "calibrated")


def _run(
    phase: CalibrationPhase,
    places: Places,
    request: CalibrationRequest,
    tools: CalibrationTools,
    watcher: CalibrationWatcher,
) -> None:
    if phase.name == "measure":
        # files of an earlier attempt do not belong to this one
        shutil.rmtree(places.measurements, ignore_errors=True)
    for folder in (places.work, places.measurements):
        folder.mkdir(parents=True, exist_ok=True)
    log = places.out / "logs" / f"{phase.name}.log"
    try:
        env = {**phase.env, **tools.visible}
        status = run_step(phase.argv, env, places.work, log, watcher.progress, tools.quiet_seconds)
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError(
            "calibrate.not_started", ExitCode.ENGINE, python=phase.argv[0], why=why
        ) from None
    last = "\n".join(last_lines(log))
    if status is None:
        raise LaunchError(
            "calibrate.stuck",
            ExitCode.ENGINE,
            phase=phase.name,
            seconds=round(tools.quiet_seconds),
            log=str(log),
            detail=last,
        )
    if status != 0:
        raise LaunchError(
            "calibrate.failed",
            ExitCode.ENGINE,
            phase=phase.name,
            status=status,
            log=str(log),
            detail=last,
        )
    if missing := _missing(phase, places, request):
        raise LaunchError(
            "calibrate.no_output",
            ExitCode.ENGINE,
            phase=phase.name,
            path=missing,
            log=str(log),
            detail=last,
        )


def _missing(phase: CalibrationPhase, places: Places, request: CalibrationRequest) -> str:
    """Return a file that a phase should have written and did not."""
    if phase.name == "dataset":
        pickle = places.work / f"{request.name.lower()}-calibration-dataset.pkl"
        if pickle.is_file():
            return ""
        return str(pickle)
    made = places.made(phase.name)
    if phase.name == "unify":
        made = places.unified
    if made is not None:
        if made.is_dir() and any(made.iterdir()):
            return ""
        return str(made)
    return next(
        iter(read_quant_file(places.config("quant"), request.cards, "calibrated").missing), ""
    )


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
