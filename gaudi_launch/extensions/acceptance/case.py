"""Choose cards, run the steps of ``doctor --deep``, keep the results.

The state of a run is written after each step, so that a run which was ended at any moment resumes
with the next one. A step is run again from its beginning.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gaudi_launch.commands.doctor.case import DoctorRequest, collect
from gaudi_launch.core.base import codec, locks, paths
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.base.steps import step
from gaudi_launch.core.doctor.cards import users
from gaudi_launch.core.doctor.findings import DoctorFacts
from gaudi_launch.core.host.accelerators import accelerator_of
from gaudi_launch.core.host.hardware import Card
from gaudi_launch.core.services.state import registry, store
from gaudi_launch.core.services.state.identity import boot_id
from gaudi_launch.extensions.acceptance.judge import judge
from gaudi_launch.extensions.acceptance.records import (
    JUDGED,
    AcceptanceRun,
    NoFigure,
    Step,
    StepResult,
    all_steps,
)
from gaudi_launch.extensions.acceptance.served import stand_in_installation
from gaudi_launch.extensions.acceptance.steps import MEASURES, read_counters
from gaudi_launch.extensions.acceptance.tools import TestBed, name_of

_log = logging.getLogger(__name__)

LEVELS = (1, 2, 3)
# an older run is not resumed: cards and room are no longer as they were (assumed)
_RESUMED_SECONDS = 24 * 3600.0
_SCALE = "GAUDI_LAUNCH_ACCEPTANCE_SCALE"


def folder() -> Path:
    """Return the folder of reports and of the present run."""
    return paths.state_dir() / "acceptance"


def run(doctor: DoctorRequest, level: int, *, force: bool) -> tuple[AcceptanceRun, DoctorFacts]:
    """Run the steps of a level, or the rest of them; return also the machine before.

    Raises LaunchError: USAGE for wrong options; MACHINE while a service is ready, or another run.
    """
    steps = chosen_steps(doctor, level)
    if doctor.machine is not None:
        raise LaunchError("accept.machine", ExitCode.USAGE, found=doctor.machine)
    ready = [each.name for each in registry.services() if each.alive and each.phase == "ready"]
    if ready and not force:
        raise LaunchError("accept.service", ExitCode.MACHINE, found=", ".join(ready), name=ready[0])
    with _only_run():
        now = collect(doctor)
        chosen, left_out = _cards(now, doctor)
        bed = _bed(now, chosen, doctor)
        run = _begun(bed, doctor, level, left_out)
        bed = replace(bed, counters=run.counters)
        done = {result.name for result in run.results}
        for each in steps:
            if each.name in done:
                continue
            with step("accept.progress", step=each.title.render()):
                run = replace(run, results=(*run.results, _result(each, bed)))
            keep(_state(), run)
        _state().unlink(missing_ok=True)
        return replace(run, ended=time.time()), now


def chosen_steps(doctor: DoctorRequest, level: int) -> list[Step]:
    """Return the steps of the level, or those that were named. Raises LaunchError."""
    if level not in LEVELS:
        raise LaunchError("accept.level", ExitCode.USAGE, found=level)
    known = all_steps()
    for word in (*doctor.only, *doctor.skip):
        if word not in known:
            names = ", ".join(known)
            raise LaunchError("accept.unknown_step", ExitCode.USAGE, found=word, known=names)
    return [
        each
        for name, each in known.items()
        if (name in doctor.only if doctor.only else each.level <= level) and name not in doctor.skip
    ]


def _cards(now: DoctorFacts, doctor: DoctorRequest) -> tuple[tuple[Card, ...], dict[str, str]]:
    """Return the chosen cards that are free, and the others with their users."""
    wanted, count = doctor.wants.modules, doctor.wants.cards
    unknown = set(wanted) - set(now.host.modules)
    if unknown:
        found, known = (",".join(map(str, each)) for each in (unknown, now.host.modules))
        raise LaunchError("accept.unknown_card", ExitCode.USAGE, found=found, known=known)
    named = [now.host.card(module) for module in wanted or now.host.modules]
    cards = [card for card in named if card is not None]
    left_out = {name_of(card): users(card) for card in cards if card.busy is not False}
    free = [card for card in cards if card.busy is False]
    return tuple(free[:count]), left_out


def _bed(now: DoctorFacts, cards: tuple[Card, ...], doctor: DoctorRequest) -> TestBed:
    python, installed = doctor.python, now.engine
    engine = installed.name if installed is not None and now.host.cards else None
    if installed is not None and engine:
        python = installed.python
    elif not now.host.cards and python is None and stand_in_installation().is_ready():
        python = str(stand_in_installation().python())
    scale = float(os.environ.get(_SCALE) or 1)
    product = accelerator_of(now.host)
    return TestBed(now, cards, product, python, engine or "", doctor.weights, scale)


def _result(each: Step, bed: TestBed) -> StepResult:
    """Return the result of a step; one that breaks has not passed."""
    began = time.monotonic()
    try:
        _need(each, bed)
        result = judge(each, bed.product_id, MEASURES[each.by](bed, each))
    except NoFigure as error:
        result = StepResult(each.name, error.status, (error.why,), details=error.details)
    except Exception as error:
        _log.debug("the step %s broke", each.name, exc_info=True)
        why = message("accept.broken", why=f"{type(error).__name__}: {error}")
        result = StepResult(each.name, "broken", (why,))
    return replace(result, seconds=time.monotonic() - began)


def _need(each: Step, bed: TestBed) -> None:
    """Raise NoFigure where a step does not apply."""
    # on a server with cards, its CPU is not what is measured
    if bed.facts.host.cards and not bed.cards:
        raise NoFigure("skipped", message("accept.all_busy"))
    missing = {
        "cards": (not bed.cards, message("accept.no_cards")),
        "several": (len(bed.cards) < 2, message("accept.one_card")),
        "bare": (bool(bed.facts.host.virtual_machine), message("accept.virtual")),
        "model": (bed.model is None, message("accept.no_model")),
    }
    for need in each.needs:
        if missing[need][0]:
            raise NoFigure("skipped", missing[need][1])


# --- the state of a run ---------------------------------------------------------------------------


def _state() -> Path:
    return folder() / "run.json"


@contextlib.contextmanager
def _only_run() -> Iterator[None]:
    """Refuse a second run of this user. Raises LaunchError (MACHINE)."""
    handle = store.open_lock(store.make_private(folder()) / "lock")
    try:
        if not locks.try_take(handle):
            raise LaunchError("accept.runs", ExitCode.MACHINE)
        yield
    finally:
        os.close(handle)


def _key(bed: TestBed, doctor: DoctorRequest, level: int) -> str:
    """Return what must be equal for a run to be resumed."""
    words: list[Any] = [boot_id(), str(bed.root), bed.product_id, bed.python, bed.model, bed.scale]
    words += [level, *doctor.only, "without", *doctor.skip]
    words += [[name_of(card), card.bus, card.serial] for card in bed.cards]
    return json.dumps(words)


def _begun(
    bed: TestBed, doctor: DoctorRequest, level: int, left_out: Mapping[str, str]
) -> AcceptanceRun:
    """Return the interrupted run of the same machine and options, else a new one."""
    key = _key(bed, doctor, level)
    with contextlib.suppress(OSError, ValueError):
        found = codec.read(AcceptanceRun, read_json(_state()))
        if found.key == key and time.time() - found.began < _RESUMED_SECONDS:
            return replace(found, left_out=left_out)
    cards = tuple(map(name_of, bed.cards))
    counters, began = read_counters(bed.facts), time.time()
    run = AcceptanceRun(key, began, level, bed.product_id, cards, left_out, bed.scale, counters)
    keep(_state(), run)
    return run


def keep(path: Path, document: object) -> None:
    """Write a JSON file for this user only. Raises LaunchError (FAILED)."""
    content = json.dumps(codec.write(document), ensure_ascii=False, indent=1) + "\n"
    try:
        paths.write_whole(path, content, mode=0o600)
    except OSError as error:
        raise file_error("accept.state", error, path) from None


# --- the verdict ----------------------------------------------------------------------------------


def exit_code(results: Sequence[StepResult], strict: bool) -> ExitCode:
    """Return DONE only where something was measured and nothing failed."""
    bad = {"fail", "wrong", "broken"} | ({"warn"} if strict else set())
    ran = any(each.status in JUDGED for each in results)
    if not ran or any(each.status in bad for each in results):
        return ExitCode.MACHINE
    return ExitCode.DONE
