"""Calibration as phases: the processes of the engine's scripts, in order.

Pure, except for reading which options the installed scripts have. Sources:
HabanaAI/vllm-hpu-extension@f5f9ecb and @8afd253, vllm-project/vllm-gaudi@091bbadd:
calibration/calibrate_model.sh, whose Python steps these are; the shell around them is not run.
HabanaAI/vllm-fork@016b6bd20 (deepseek_r1): scripts/run_inc_calib.sh, which has one step.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.paths import write_whole
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.planning.calibration_rules import Calibration, Rules

_log = logging.getLogger(__name__)

Name = Literal["dataset", "measure", "postprocess", "unify", "expand", "quantise"]
RECORD = "calibration.json"
# arguments of step 2 for a data set that is not a pickle
_AUTO = ("--max-dataset-samples", "512", "--max-tokens", "32", "--auto-process-dataset")
_UNIFY, _EXPAND = "step-5-unify_measurements.py", "step-6-expand-measurements.py"
_DEEPSEEK_STEP = "run_example_tp.py"
# one prompt at a time, of NeelNanda/pile-10k, which that step fetches itself
_DEEPSEEK_WORDS = [
    "--osl",
    "32",
    "--max_num_seqs",
    "1",
    "--max_model_len",
    "2048",
    "--dataset",
    "pile",
]
_DEEPSEEK_SAMPLES = 512
_AUTO_LENGTHS = ("--sample-len", "1024", "--max-model-len", "2048")


@dataclass(frozen=True)
class Scripts:
    """The installed scripts: their folder, the file of step 3, each step's options.

    The file of step 3 has two spellings. ``whole_experts``: what each card measured of its local
    experts is merged for all of them.
    """

    folder: str
    postprocess: str
    options: Mapping[int, tuple[str, ...]]
    whole_experts: bool = False

    @property
    def reads_any_dataset(self) -> bool:
        """Return True if step 2 can read any data set; older versions need a pickle."""
        return "--auto-process-dataset" in self.options[2]


@dataclass(frozen=True)
class CalibrationRequest:
    """The model, data set and limits of a calibration.

    ``dataset`` is a .pkl file, a folder of a data set, or a hub's name of one.
    """

    model: str
    name: str
    cards: int
    generation: str
    dataset: str
    batch: int = 32
    samples: int | None = None
    experts: bool = False
    eager: bool = False


@dataclass(frozen=True)
class Places:
    """Folders of a calibration: its result, its measurements, and the work folder."""

    out: Path
    generation: str

    @property
    def measurements(self) -> Path:
        return self.out / self.generation

    @property
    def work(self) -> Path:
        return self.out / "work"

    @property
    def fixed(self) -> Path:
        """Return the folder of step 3, which later replaces the measurements."""
        return self.work / "fixed"

    @property
    def unified(self) -> Path:
        """Return the measurements of all cards as those of one."""
        return self.work / "unified"

    @property
    def expanded(self) -> Path:
        """Return the folder of the unified measurements after expansion to more cards.

        It later replaces the folder of the measurements.
        """
        return self.work / "expanded"

    def made(self, name: Name) -> Path | None:
        """Return the folder whose files replace the measurements after this phase."""
        return {"postprocess": self.fixed, "expand": self.expanded}.get(name)

    def config(self, kind: Literal["measure", "quant"]) -> Path:
        """Return the folder for the config, which is moved to ``out`` when all is done.

        ``-d fp8`` trusts what is in ``out``.
        """
        return self.work / f"maxabs_{kind}_{self.generation}.json"

    @property
    def stem(self) -> str:
        return str(self.measurements / "inc_output")


@dataclass(frozen=True)
class CalibrationPhase:
    """One process: its arguments from the interpreter on, and its variables."""

    name: Name
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def read_scripts(folder: Path, calibration: Calibration) -> Scripts:
    """Look at the scripts.

    Raises LaunchError (MACHINE) when one is missing, naming it and where they are.
    """
    found = {}
    for step, names in calibration.steps.items():
        there = [name for name in names if (folder / name).is_file()]
        if not there:
            raise LaunchError(
                "calibrate.no_scripts",
                ExitCode.MACHINE,
                path=str(folder),
                name=names[0],
                home=calibration.home,
                branch=calibration.branch,
                folder=f"{calibration.home.rpartition('/')[2]}/{calibration.folder}",
            )
        found[step] = there[0]
    options = {step: _options(folder / name) for step, name in found.items()}
    return Scripts(str(folder), found.get(3, ""), options, calibration.expands)


def _options(path: Path) -> tuple[str, ...]:
    """Return the long options that a script's text adds to its parser."""
    import re

    text = path.read_text(encoding="utf-8", errors="replace")
    return tuple(sorted(set(re.findall(r"""["'](--[a-z][a-z_-]+)["']""", text))))


def phases(
    request: CalibrationRequest, scripts: Scripts, rules: Rules, places: Places, python: str
) -> tuple[CalibrationPhase, ...]:
    """Return the steps in their order."""
    if 3 not in scripts.options:
        return (_measure_deepseek(request, scripts, rules, places, python),)
    pickled = request.dataset.endswith(".pkl")
    common = dict(rules.env)
    if request.cards > 1:
        common["PT_HPU_ENABLE_LAZY_COLLECTIVES"] = "true"
    measure = {**common, "QUANT_CONFIG": str(places.config("measure"))}
    quant = {**common, "QUANT_CONFIG": str(places.config("quant"))}
    found: list[CalibrationPhase] = []

    def add(
        name: Name, script: str, words: Iterable[str], env: Mapping[str, str] = measure
    ) -> None:
        path = str(Path(scripts.folder) / script)
        found.append(CalibrationPhase(name, (python, path, *words), env))

    if pickled:
        add("dataset", "step-1-prepare-calibration-dataset.py", _dataset_words(request, scripts))
    measured = _measure_words(request, rules, pickled=pickled)
    add("measure", "step-2-measure-scales.py", (*measured, *_switches(request, scripts.options[2])))
    fixing = ["-m", f"{places.measurements}/", "-o", f"{places.fixed}/"]
    if "deepseek" in request.name.lower() and "--deepseek" in scripts.options[3]:
        fixing.append("--deepseek")
    add("postprocess", scripts.postprocess, fixing)
    if scripts.whole_experts and request.experts and request.cards > 1:
        # docs/configuration/calibration/calibration.md: else a card's scales are those of its local
        # experts
        unified, expanded = f"{places.unified}/", f"{places.expanded}/"
        add(
            "unify", _UNIFY, ("-r", "1", "-m", f"{places.measurements}/", "-o", unified, "-u", "-s")
        )
        add("expand", _EXPAND, ("-m", unified, "-o", expanded, "-w", str(request.cards)))
    model = ("--model", request.model, "--tensor-parallel-size", str(request.cards))
    quantised = (*model, *rules.quantise_words, *_switches(request, scripts.options[4]))
    add("quantise", "step-4-quantize-scales.py", quantised, quant)
    return tuple(found)


def _dataset_words(request: CalibrationRequest, scripts: Scripts) -> list[str]:
    words = ["-m", request.model, "-d", request.dataset, "-o", request.name.lower()]
    if "Mixtral-8x7B" in request.model:
        template = Path(scripts.folder) / "template" / "mistral_mixtral.jinja"
        words += ["--chat-template", str(template)]
    return [*words, *_sample_words(request)]


def _measure_words(request: CalibrationRequest, rules: Rules, *, pickled: bool) -> list[str]:
    words = ["-m", request.model, "--tensor-parallel-size", str(request.cards)]
    batch = ["--batch-size", str(request.batch)]
    if pickled:
        made = f"{request.name.lower()}-calibration-dataset.pkl"
        words += ["-d", made, *batch]
    else:
        words += ["-d", request.dataset, *batch, *_AUTO, *_AUTO_LENGTHS, *_sample_words(request)]
    return [*words, *rules.measure_words]


def _sample_words(request: CalibrationRequest) -> list[str]:
    if not request.samples:
        return []
    return ["--max-dataset-samples", str(request.samples)]


def _measure_deepseek(
    request: CalibrationRequest, scripts: Scripts, rules: Rules, places: Places, python: str
) -> CalibrationPhase:
    cards, script = str(request.cards), str(Path(scripts.folder) / _DEEPSEEK_STEP)
    options = {
        "--model": request.model,
        "--tokenizer": request.model,
        "--tp_size": cards,
        "--ep_size": cards if request.experts else "1",
        "--nprompts": str(request.samples or _DEEPSEEK_SAMPLES),
    }
    words = [python, script, *(word for option in options.items() for word in option)]
    words += _DEEPSEEK_WORDS
    if request.eager:
        words.append("--enforce_eager")
    return CalibrationPhase(
        "measure", tuple(words), {**rules.env, "QUANT_CONFIG": str(places.config("measure"))}
    )


def _switches(request: CalibrationRequest, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the switches of steps 2 and 4 that these scripts have.

    The scripts of 1.21 run every model with expert parallelism.
    """
    words: tuple[str, ...] = ()
    if request.experts and "--expert-parallel" in known:
        words += ("--expert-parallel",)
    if "--max-num-prefill-seqs" in known:
        words += ("--max-num-prefill-seqs", "1")
    if request.eager and "--enforce-eager" in known:
        words += ("--enforce-eager",)
    return words


@dataclass(frozen=True)
class Done:
    """The record of a calibration: its inputs, and its completed phases."""

    about: Mapping[str, Any]
    phases: tuple[str, ...] = ()
    whole: bool = False


def about(request: CalibrationRequest, scripts: Scripts, release: str) -> dict[str, Any]:
    """Return what a calibration depends on; a change of it restarts from phase 1."""
    return {**asdict(request), "release": release, "scripts": scripts.folder}


def read_done(out: Path, now: Mapping[str, Any]) -> Done:
    """Return the record of an earlier run; an empty one if its inputs differed."""
    try:
        done = codec.read(Done, read_json(out / RECORD))
    except (OSError, ValueError) as error:
        _log.debug("the record of phases is not read: %s", error)
        return Done(now)
    if done.about == dict(now):
        return done
    return Done(now)


def write_done(out: Path, done: Done) -> None:
    """Replace the record atomically. Raises OSError."""
    write_whole(out / RECORD, json.dumps({"schema": 1, **codec.write(done)}, indent=1))
