"""Choose cards, run the steps of ``doctor --deep``, keep the results.

The state of a run is written after each step, so that a run which was ended at any moment resumes
with the next one. A step is run again from its beginning.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.commands.doctor.case import DoctorRequest, collect
from gaudi_launch.core.base import codec, locks, paths
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.base.steps import step
from gaudi_launch.core.engines.entries import detect_engine
from gaudi_launch.core.host.accelerators import accelerator_of
from gaudi_launch.core.services.state import registry, store
from gaudi_launch.core.services.state.identity import boot_id
from gaudi_launch.extensions.acceptance import served
from gaudi_launch.extensions.acceptance.card_state import name_of, read_counters
from gaudi_launch.extensions.acceptance.judge import judge
from gaudi_launch.extensions.acceptance.records import (
    JUDGED,
    AcceptanceRun,
    NoFigure,
    StepResult,
)
from gaudi_launch.extensions.acceptance.steps import STEPS, Step
from gaudi_launch.extensions.acceptance.tools import TestBed

if TYPE_CHECKING:
    from gaudi_launch.core.doctor.findings import DoctorFacts
    from gaudi_launch.core.host.hardware import Card

_log = logging.getLogger(__name__)

LEVELS = (1, 2, 3)
# an older run is not resumed: cards and room are no longer as they were (assumed)
_RESUMED_SECONDS = 24 * 3600.0
_SCALE = "GAUDI_LAUNCH_ACCEPTANCE_SCALE"


@dataclass(frozen=True)
class AcceptanceRequest:
    """The options: of doctor (machine, cards, steps, model), and of this test."""

    doctor: DoctorRequest
    level: int = 1
    force: bool = False


def folder() -> Path:
    """Return the folder of reports and of the present run."""
    return paths.state_dir() / "acceptance"


def run(request: AcceptanceRequest) -> tuple[AcceptanceRun, DoctorFacts]:
    """Run the steps of a level, or the rest of them; return also the machine before.

    Raises LaunchError: USAGE for wrong options; MACHINE while a service is ready, or another run.
    """
    steps = chosen_steps(request)
    _check(request)
    with _only_run():
        now = collect(request.doctor)
        chosen, left_out = _cards(now, request.doctor)
        bed = _bed(now, chosen, request)
        run = _begun(bed, request, left_out)
        bed = replace(bed, counters=run.counters)
        for each in steps:
            if each.name in {result.name for result in run.results}:
                continue
            with step("accept.progress", step=each.title.render()):
                result = _result(each, bed)
            run = replace(run, results=(*run.results, result))
            _keep(run)
        run = replace(run, ended=time.time())
        _state().unlink(missing_ok=True)
        return run, now


def _check(request: AcceptanceRequest) -> None:
    if request.doctor.machine is not None:
        raise LaunchError("accept.machine", ExitCode.USAGE, found=request.doctor.machine)
    ready = [each.name for each in registry.services() if each.alive and each.phase == "ready"]
    if ready and not request.force:
        raise LaunchError("accept.service", ExitCode.MACHINE, found=", ".join(ready), name=ready[0])


def chosen_steps(request: AcceptanceRequest) -> list[Step]:
    """Return the steps of the level, or those that were named. Raises LaunchError."""
    only, skip = request.doctor.only, request.doctor.skip
    if request.level not in LEVELS:
        raise LaunchError("accept.level", ExitCode.USAGE, found=request.level)
    known = [each.name for each in STEPS]
    for word in (*only, *skip):
        if word not in known:
            names = ", ".join(known)
            raise LaunchError("accept.unknown_step", ExitCode.USAGE, found=word, known=names)
    return [
        each
        for each in STEPS
        if (each.name in only if only else each.level <= request.level) and each.name not in skip
    ]


def _cards(now: DoctorFacts, doctor: DoctorRequest) -> tuple[tuple[Card, ...], dict[str, str]]:
    """Return the chosen cards that are free, and the others with their users."""
    wanted, count = doctor.wants.modules, doctor.wants.cards
    unknown = set(wanted) - set(now.host.modules)
    if unknown:
        known = ",".join(map(str, now.host.modules))
        raise LaunchError(
            "accept.unknown_card", ExitCode.USAGE, found=",".join(map(str, unknown)), known=known
        )
    named = [now.host.card(module) for module in wanted or now.host.modules]
    cards = [card for card in named if card is not None]
    left_out = {}
    for card in cards:
        if card.busy is not False:
            users = [f"{holder.command or '?'} ({holder.pid})" for holder in card.holders]
            left_out[name_of(card)] = "; ".join(users) or card.busy_because or "?"
    free = [card for card in cards if card.busy is False]
    return tuple(free[:count]), left_out


def _bed(now: DoctorFacts, cards: tuple[Card, ...], request: AcceptanceRequest) -> TestBed:
    python, engine = request.doctor.python, ""
    if now.host.cards:
        found = None
        with contextlib.suppress(LaunchError):
            found = detect_engine(python)
        if found is not None and (found.engine or python):
            python, engine = found.python, found.engine
    elif python is None and served.stand_in_installation().is_ready():
        python = str(served.stand_in_installation().python())
    scale = float(os.environ.get(_SCALE) or 1)
    product = accelerator_of(now.host)
    return TestBed(now, cards, product, python, engine, request.doctor.weights, scale)


def _result(each: Step, bed: TestBed) -> StepResult:
    """Return the result of a step; one that breaks has not passed."""
    began = time.monotonic()
    try:
        _need(each, bed)
        result = judge(each.name, bed.product_id, each.measure(bed, each.name))
    except NoFigure as error:
        result = StepResult(each.name, error.status, (error.why,), details=dict(error.details))
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


def _key(bed: TestBed, request: AcceptanceRequest) -> str:
    """Return what must be equal for a run to be resumed."""
    doctor = request.doctor
    words: list[Any] = [boot_id(), str(bed.root), bed.product_id, bed.python, bed.model, bed.scale]
    words += [request.level, *doctor.only, "without", *doctor.skip]
    words += [[name_of(card), card.bus, card.serial] for card in bed.cards]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]


def _begun(bed: TestBed, request: AcceptanceRequest, left_out: Mapping[str, str]) -> AcceptanceRun:
    """Return the interrupted run of the same machine and options, else a new one."""
    key = _key(bed, request)
    with contextlib.suppress(OSError, ValueError):
        found = codec.read(AcceptanceRun, read_json(_state()))
        if found.key == key and time.time() - found.began < _RESUMED_SECONDS:
            return replace(found, left_out=left_out)
    cards = tuple(name_of(card) for card in bed.cards)
    counters = read_counters(bed.facts)
    began = time.time()
    run = AcceptanceRun(
        key, began, request.level, bed.product_id, cards, left_out, bed.scale, counters
    )
    _keep(run)
    return run


def _keep(run: AcceptanceRun) -> None:
    try:
        paths.write_whole(_state(), json.dumps(codec.write(run)), mode=0o600)
    except OSError as error:
        raise file_error("accept.state", error, _state()) from None


# --- the verdict ----------------------------------------------------------------------------------


def exit_code(results: Sequence[StepResult], strict: bool) -> ExitCode:
    """Return DONE only where something was measured and nothing failed."""
    bad = {"fail", "wrong", "broken"} | ({"warn"} if strict else set())
    ran = any(each.status in JUDGED for each in results)
    if not ran or any(each.status in bad for each in results):
        return ExitCode.MACHINE
    return ExitCode.DONE
