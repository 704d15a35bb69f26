"""The use case of ``gaudi-launch fp8 calibrate``: run the engine's scripts.

It also fetches and converts what they need.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.base.paths import machine_root
from gaudi_launch.core.engines.registry import ENGINES, assumed_for, detect_engine, find
from gaudi_launch.core.host.accelerators import product_of
from gaudi_launch.core.launch.machine import load
from gaudi_launch.core.launch.model_needs import generation_of, look
from gaudi_launch.core.launch.model_setup import Wanted, bring, fetch
from gaudi_launch.core.launch.report import Reporter
from gaudi_launch.core.models.config import looks_like_hub_id, name_of
from gaudi_launch.core.models.hub.local import find_local
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.parse import if_given, number, parse_modules
from gaudi_launch.core.planning.placement import choose, parse_visible
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.support_answer import check_support

if TYPE_CHECKING:
    from gaudi_launch.core.engines.detect import Installed
    from gaudi_launch.core.host.hardware import Host
    from gaudi_launch.core.models.fp8.quant_config import QuantFile
    from gaudi_launch.core.models.model import Model
    from gaudi_launch.core.planning.calibration_rules import Calibration
    from gaudi_launch.core.planning.placement import Placement
    from gaudi_launch.core.services.process.step import StepProgress
    from gaudi_launch.extensions.fp8.calibration_run import PhaseState
    from gaudi_launch.extensions.fp8.phases import CalibrationRequest, Scripts

# more cards than one server has need Ray and a shared folder on every host
_MOST_CARDS = 8
# 1 for another data set (HabanaAI/vllm-hpu-extension@0673ccb:calibration/calibrate_model.sh)
_PICKLE_BATCH = 32
# recommended by the scripts' README where they can make prompts from any data set
DATASET = "NeelNanda/pile-10k"


@dataclass(frozen=True)
class CalibrateOptions:
    """The options of ``fp8 calibrate`` as typed; empty where not given.

    ``again``: calibrate from the beginning.
    """

    model: str
    cards: str = ""
    dataset: str = ""
    modules: str = ""
    python: str = ""
    batch: str = ""
    samples: str = ""
    eager: bool = False
    scripts: Path | None = None
    trust_remote_code: bool = False
    again: bool = False


@dataclass(frozen=True)
class CalibrationResult:
    """The result of a calibration: its file, its inputs, and serve options for it.

    ``-d fp8`` finds the file.
    """

    quant: QuantFile
    request: CalibrationRequest
    serve_with: str


class CalibrationReporter(Reporter, Protocol):
    """Receives the events of a calibration, in addition to downloads and conversions."""

    def phase(self, name: str, state: PhaseState, number: int, count: int) -> None:
        """Receive that a phase begins, is skipped or is done."""

    def progress(self, progress: StepProgress) -> None:
        """Receive the progress of the running phase."""


def calibrate(options: CalibrateOptions, reporter: CalibrationReporter) -> CalibrationResult:
    """Calibrate a model, or continue where an earlier run stopped.

    Raises LaunchError before anything is fetched or started where that is possible.
    """
    from gaudi_launch.core.services.state.reservation import claim
    from gaudi_launch.extensions.fp8 import calibration_run
    from gaudi_launch.extensions.fp8.phases import CalibrationRequest, read_scripts

    def planned_for() -> str:
        model = known_model(options.model, must_exist=False)
        return assumed_for(model, lambda: product_of(load(None)))

    modules, cards = _cards(options)
    batch = if_given(number, "--batch", options.batch)
    samples = if_given(number, "--samples", options.samples)
    installed = detect_engine(options.python or None, first=planned_for)
    calibration = _calibration(installed)
    facts: dict[str, str] = {}
    if installed is not None:
        facts = dict(installed.facts)
    folder = options.scripts
    if folder is None:
        folder = calibration.scripts_of(facts)
    scripts = read_scripts(folder, calibration)
    known = _known(options.model, options.trust_remote_code)
    supported = find("auto", installed).support(known, variables=os.environ)
    for warning in check_support(supported, force=options.again):
        reporter.say(warning.render())
    dataset = _dataset_of(options, calibration, scripts)
    visible = parse_visible(os.environ.get("HABANA_VISIBLE_MODULES"))

    def place(host: Host) -> Placement:
        return choose(host, cards, modules, visible)

    # refuse impossible options before hours of fetching
    host = load(None)
    place(host)
    if calibration.one_step:
        weights = _converted(options, cards, host, installed, reporter)
    else:
        weights = _fetched(options, reporter)
        dataset = _fetched_dataset(dataset, reporter)
    request = CalibrationRequest(
        model=weights,
        name=name_of(options.model),
        cards=cards,
        generation=generation_of(host),
        dataset=dataset,
        batch=batch or _default_batch(dataset),
        samples=samples,
        experts=bool(known.moe),
        eager=options.eager,
    )
    python = installed.python if installed is not None else "PATH"
    with claim(lambda: load(None), place, machine_root()) as (placement, _):
        env = {"HABANA_VISIBLE_MODULES": ",".join(map(str, placement.modules))}
        tools = calibration_run.CalibrationTools(scripts, calibration, python, env)
        found = calibration_run.calibrate(request, tools, reporter, again=options.again)
    return CalibrationResult(found, request, calibration.serve_with)


def _default_batch(dataset: str) -> int:
    """Return the prompts per batch for a data set."""
    if dataset.endswith(".pkl"):
        return _PICKLE_BATCH
    return 1


def _cards(options: CalibrateOptions) -> tuple[tuple[int, ...] | None, int]:
    """Return the modules where they are given, and the cards.

    Raises LaunchError (USAGE).
    """
    modules = mapped(parse_modules, options.modules or None)
    cards = if_given(number, "-n", options.cards) or len(modules or (0,))
    if cards > _MOST_CARDS:
        home = "https://github.com/vllm-project/vllm-gaudi"
        raise LaunchError(
            "calibrate.many_cards", ExitCode.USAGE, cards=cards, most=_MOST_CARDS, home=home
        )
    return modules, cards


def _calibration(installed: Installed | None) -> Calibration:
    """Return the installed engine's calibration.

    Raises LaunchError for one that is not calibrated here.
    """
    engine, python = "", "PATH"
    if installed is not None:
        engine, python = installed.engine, installed.python
    calibration = None
    if engine in ENGINES:
        calibration = find(engine).calibration
    if calibration is None:
        raise LaunchError("calibrate.engine", ExitCode.MACHINE, python=python, found=engine or "-")
    return calibration


def _known(model: str, code: bool) -> Model:
    """Return the model's facts.

    Raises LaunchError (MODEL) where its own code would run without consent.
    """
    known = known_model(model, must_exist=not looks_like_hub_id(model))
    # the scripts give every engine --trust-remote-code
    if known.remote_code and not code:
        raise LaunchError("plan.remote_code", ExitCode.MODEL, model=known.name)
    return known


def _fetched(options: CalibrateOptions, reporter: Reporter) -> str:
    """Return the folder of the weights, fetched where it is a hub id without one."""
    model, code = options.model, options.trust_remote_code
    if not looks_like_hub_id(model):
        return str(Path(model).expanduser().absolute())
    folder = find_local(model, code=code) or fetch(Wanted(model, code=code), reporter).folder
    _known(str(folder), code)
    return str(folder.absolute())


def _converted(
    options: CalibrateOptions,
    cards: int,
    host: Host,
    installed: Installed | None,
    reporter: Reporter,
) -> str:
    """Return the folder that serve gives this engine.

    It is fetched, and converted where its cards need that.
    """
    model, code = options.model, options.trust_remote_code
    name = installed.engine if installed is not None else "auto"
    request = Request(model, cards=cards, engine=name, trust_remote_code=code)
    engine = find("auto", installed)
    bring(request, look(request, host, engine, installed), reporter)
    final = look(request, host, engine, installed).facts.final
    folder = str((final or Path(model).expanduser()).absolute())
    _known(folder, code)
    return folder


def _dataset_of(options: CalibrateOptions, calibration: Calibration, scripts: Scripts) -> str:
    """Return the data set.

    Raises LaunchError (USAGE) for options that scripts with a fixed one do not have.
    """
    if not calibration.one_step:
        return _dataset(options.dataset, scripts)
    for option, value in (("--dataset", options.dataset), ("--batch", options.batch)):
        if value:
            engine = calibration.release
            raise LaunchError(
                "calibrate.fixed", ExitCode.USAGE, option=option, engine=engine, dataset=DATASET
            )
    return DATASET


def _dataset(dataset: str, scripts: Scripts) -> str:
    """Return the data set as a path or a hub id.

    Raises LaunchError (USAGE) for anything else.
    """
    chosen = dataset
    if not chosen and scripts.reads_any_dataset:
        chosen = DATASET
    if not scripts.reads_any_dataset and not chosen.endswith(".pkl"):
        raise LaunchError(
            "calibrate.dataset_pkl", ExitCode.USAGE, found=chosen or "-", path=scripts.folder
        )
    path = Path(chosen).expanduser()
    if path.exists():
        return str(path.absolute())
    if chosen.endswith(".pkl") or not looks_like_hub_id(chosen):
        raise LaunchError("calibrate.dataset_missing", ExitCode.USAGE, found=chosen)
    return chosen


def _fetched_dataset(dataset: str, reporter: Reporter) -> str:
    """Return the data set's path, fetched where it is a hub id."""
    if not looks_like_hub_id(dataset):
        return dataset
    return str(
        fetch(Wanted(dataset, repo_type="dataset", everything=True), reporter).folder.absolute()
    )
