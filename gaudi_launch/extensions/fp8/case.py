"""The use case of ``gaudi-launch fp8 calibrate``: run the engine's scripts.

It also fetches and converts what they need.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import OptionRecord, switch, text, value
from gaudi_launch.core.base.paths import machine_root
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.engines.entries import ENGINES, detect_engine
from gaudi_launch.core.engines.registry import assumed_for, find
from gaudi_launch.core.host.accelerators import product_of
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.launch.machine import load
from gaudi_launch.core.launch.model_needs import generation_of, look
from gaudi_launch.core.launch.model_setup import Wanted, bring, fetch
from gaudi_launch.core.launch.report import Reporter
from gaudi_launch.core.models.config import looks_like_hub_id, name_of
from gaudi_launch.core.models.fp8.quant_config import QuantFile
from gaudi_launch.core.models.hub.local import find_local
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning import parse, parse_ranges
from gaudi_launch.core.planning.calibration_rules import Calibration
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.placement import Placement, choose, parse_visible
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.support_answer import check_support
from gaudi_launch.extensions.fp8 import calibration_run
from gaudi_launch.extensions.fp8.calibration_run import CalibrationWatcher
from gaudi_launch.extensions.fp8.phases import CalibrationRequest, Scripts, read_scripts

# more cards than one server has need Ray and a shared folder on every host
_MOST_CARDS = 8
# 1 for another data set (HabanaAI/vllm-hpu-extension@0673ccb:calibration/calibrate_model.sh)
_PICKLE_BATCH = 32
# recommended by the scripts' README where they can make prompts from any data set
DATASET = "NeelNanda/pile-10k"


@dataclass(frozen=True)
class CalibrateOptions(OptionRecord):
    """The options of ``fp8 calibrate``."""

    cards: int | None = value(
        "-n",
        "--cards",
        metavar="N",
        help="Number of cards, the same as for serving.",
        read=parse.number,
    )
    dataset: str = text(
        "--dataset",
        metavar="DATA",
        help=f"A .pkl file, a folder, or a hub's data set (default: {DATASET}).",
    )
    modules: tuple[int, ...] | None = value(
        "-m",
        "--modules",
        metavar="LIST",
        help="Module IDs to use, e.g. 0,1,2,3.",
        read=parse_ranges.module_ranges,
    )
    python: str | None = value("--python", metavar="PATH", help="The engine's interpreter.")
    batch: int | None = value(
        "--batch",
        metavar="N",
        help="Prompts per batch (default: 1; of a .pkl file: 32).",
        read=parse.number,
    )
    samples: int | None = value(
        "--samples", metavar="N", help="Total number of prompts.", read=parse.number
    )
    eager: bool = switch("--eager", help="Run without graphs (slower, less memory).")
    scripts: str | None = value(
        "--scripts",
        metavar="DIR",
        help="The calibration folder of vllm-hpu-extension or vllm-gaudi.",
    )
    trust_remote_code: bool = switch(
        "--trust-remote-code", help="Allow Python code from the model folder."
    )
    again: bool = switch(
        "--force",
        help="Calibrate again from the beginning, and a model that the engine's lists lack.",
    )


@dataclass(frozen=True)
class CalibrationResult:
    """The result of a calibration: its file, its inputs, and serve options for it.

    ``-d fp8`` finds the file.
    """

    quant: QuantFile
    request: CalibrationRequest
    serve_with: str


class CalibrationReporter(Reporter, CalibrationWatcher, Protocol):
    """Receives the events of a calibration, in addition to downloads and conversions."""


def calibrate(
    model: str, options: CalibrateOptions, reporter: CalibrationReporter
) -> CalibrationResult:
    """Calibrate a model, or continue where an earlier run stopped.

    Raises LaunchError before anything is fetched or started where that is possible.
    """
    from gaudi_launch.core.services.state.reservation import claim

    cards = _cards(options)
    installed = detect_engine(
        options.python,
        first=lambda: assumed_for(
            known_model(model, must_exist=False), lambda: product_of(load(None))
        ),
    )
    calibration = _calibration(installed)
    if options.scripts is not None:
        folder = Path(options.scripts)
    else:
        folder = calibration.scripts_of(dict(installed.facts) if installed is not None else {})
    scripts = read_scripts(folder, calibration)
    known = _known(model, options.trust_remote_code)
    supported = find("auto", installed).support(known, variables=os.environ)
    for warning in check_support(supported, force=options.again):
        reporter.say(warning.render())
    dataset = _dataset_of(options, calibration, scripts)
    visible = parse_visible(os.environ.get("HABANA_VISIBLE_MODULES"))

    def place(host: Host) -> Placement:
        return choose(host, cards, options.modules, visible)

    # refuse impossible options before hours of fetching
    host = load(None)
    place(host)
    if calibration.one_step:
        request = Request(
            model,
            cards=cards,
            engine=installed.engine if installed is not None else "auto",
            trust_remote_code=options.trust_remote_code,
        )
        weights = _converted(request, host, installed, reporter)
    else:
        weights = _fetched(model, options.trust_remote_code, reporter)
        if looks_like_hub_id(dataset):
            wanted = Wanted(dataset, repo_type="dataset", everything=True)
            dataset = str(fetch(wanted, reporter).folder.absolute())
    usual = _PICKLE_BATCH if dataset.endswith(".pkl") else 1
    asked = CalibrationRequest(
        model=weights,
        name=name_of(model),
        cards=cards,
        generation=generation_of(host),
        dataset=dataset,
        batch=options.batch or usual,
        samples=options.samples,
        experts=bool(known.moe),
        eager=options.eager,
    )
    python = installed.python if installed is not None else "PATH"
    with claim(lambda: load(None), place, machine_root()) as (placement, _):
        env = {"HABANA_VISIBLE_MODULES": ",".join(map(str, placement.modules))}
        tools = calibration_run.CalibrationTools(scripts, calibration, python, env)
        found = calibration_run.calibrate(asked, tools, reporter, again=options.again)
    return CalibrationResult(found, asked, calibration.serve_with)


def _cards(options: CalibrateOptions) -> int:
    """Return the number of cards. Raises LaunchError (USAGE)."""
    cards = options.cards or len(options.modules or (0,))
    if cards > _MOST_CARDS:
        home = "https://github.com/vllm-project/vllm-gaudi"
        raise LaunchError(
            "calibrate.many_cards", ExitCode.USAGE, cards=cards, most=_MOST_CARDS, home=home
        )
    return cards


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


def _known(model: str, code: bool | None) -> Model:
    """Return the model's facts.

    Raises LaunchError (MODEL) where its own code would run without consent.
    """
    known = known_model(model, must_exist=not looks_like_hub_id(model))
    # the scripts give every engine --trust-remote-code
    if known.remote_code and not code:
        raise LaunchError("plan.remote_code", ExitCode.MODEL, model=known.name)
    return known


def _fetched(model: str, code: bool, reporter: Reporter) -> str:
    """Return the folder of the weights, fetched where it is a hub id without one."""
    if not looks_like_hub_id(model):
        return str(Path(model).expanduser().absolute())
    folder = find_local(model, code=code) or fetch(Wanted(model, code=code), reporter).folder
    _known(str(folder), code)
    return str(folder.absolute())


def _converted(
    request: Request, host: Host, installed: Installed | None, reporter: Reporter
) -> str:
    """Return the folder that serve gives this engine.

    It is fetched, and converted where its cards need that.
    """
    engine = find("auto", installed)
    bring(request, look(request, host, engine, installed), reporter)
    final = look(request, host, engine, installed).facts.final
    folder = str((final or Path(request.model).expanduser()).absolute())
    _known(folder, request.trust_remote_code)
    return folder


def _dataset_of(options: CalibrateOptions, calibration: Calibration, scripts: Scripts) -> str:
    """Return the data set as a path or a hub id.

    Raises LaunchError (USAGE) for anything else, and for options that scripts with a fixed one do
    not have.
    """
    chosen = options.dataset
    if calibration.one_step:
        for option, given in (("--dataset", chosen), ("--batch", options.batch)):
            if given:
                engine = calibration.release
                raise LaunchError(
                    "calibrate.fixed", ExitCode.USAGE, option=option, engine=engine, dataset=DATASET
                )
        return DATASET
    if scripts.reads_any_dataset:
        chosen = chosen or DATASET
    elif not chosen.endswith(".pkl"):
        raise LaunchError(
            "calibrate.dataset_pkl", ExitCode.USAGE, found=chosen or "-", path=scripts.folder
        )
    path = Path(chosen).expanduser()
    if path.exists():
        return str(path.absolute())
    if chosen.endswith(".pkl") or not looks_like_hub_id(chosen):
        raise LaunchError("calibrate.dataset_missing", ExitCode.USAGE, found=chosen)
    return chosen
