"""``gaudi-launch calibrate``: the measurements that fp8 needs, by the engine's own calibration scripts."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from gaudi_launch.engines.detect import Installed
    from gaudi_launch.host.records import Host
    from gaudi_launch.models.calibrate import Scripts, Wish
    from gaudi_launch.models.quant_config import QuantFile
    from gaudi_launch.models.records import Model
    from gaudi_launch.planning.plan import Placement
    from gaudi_launch.services.steps import StepProgress

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})

_EVERY_SECONDS = 10.0
# more cards than one server has need Ray and a shared folder on every host
_MOST_CARDS = 8
# what the scripts' README recommends where they can make prompts of a data set themselves
_DATASET = "NeelNanda/pile-10k"


@app.command()
def calibrate(
    model: str = typer.Argument(..., metavar="MODEL", help="A folder or a hub id."),
    cards: str = typer.Option("", "-n", "--cards", metavar="N", help="As many cards as will serve it."),
    dataset: str = typer.Option(
        "", "--dataset", help=f"A .pkl file, a folder, or a hub's data set (default: {_DATASET})."
    ),
    modules: str = typer.Option("", "-m", "--modules", metavar="LIST", help="Module IDs to use, e.g. 0,1,2,3."),
    python: str = typer.Option("", "--python", metavar="PATH", help="The engine's interpreter."),
    batch: str = typer.Option("", "--batch", metavar="N", help="Prompts at once (default: 32; deepseek_r1: 1)."),
    samples: str = typer.Option("", "--samples", metavar="N", help="Prompts in all."),
    eager: bool = typer.Option(False, "--eager", help="Without graphs (slower, less memory)."),
    scripts: Path | None = typer.Option(
        None, "--scripts", metavar="DIR", help="The calibration folder of vllm-hpu-extension or vllm-gaudi."
    ),
    code: bool = typer.Option(False, "--trust-remote-code", help="Let the model's own code run."),
    again: bool = typer.Option(False, "--force", help="Calibrate again from the beginning."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Measure a model so that -d fp8 can serve it, on as many cards as will serve it.

    Runs the engine's own calibration scripts, phase by phase. A run that was stopped goes on where it was.
    """
    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.messages import text

    found, wish, how = run(model, cards, dataset, modules, python, batch, samples, eager, scripts, code, again)
    if as_json:
        document = {"quant_config": found.path, "cards": wish.cards, "generation": wish.generation}
        return emit_json({"schema": 1, "model": wish.model, **document, "kv_cache_dtype": found.kv_dtype})
    return print(text("calibrate.whole", path=found.path, model=model, cards=wish.cards, how=how))


def run(
    model: str,
    cards: str,
    dataset: str,
    modules: str,
    python: str,
    batch: str,
    samples: str,
    eager: bool,
    folder: Path | None,
    code: bool,
    again: bool,
) -> tuple[QuantFile, Wish, str]:
    """Everything of calibrate but its last words; the last of the three is serve's option for the result. Raises
    LaunchError before anything is fetched or started where that can be known."""
    import os

    from gaudi_launch.engines.detect import detect
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.host.machine import load
    from gaudi_launch.models.calibrate import Wish, read_scripts
    from gaudi_launch.models.calibrate_rules import DEEPSEEK
    from gaudi_launch.models.config import name_of
    from gaudi_launch.paths import machine_root
    from gaudi_launch.planning.asked import number
    from gaudi_launch.planning.placement import choose, parse_modules, parse_visible
    from gaudi_launch.services.calibrate import calibrate as go
    from gaudi_launch.services.provision import generation_of
    from gaudi_launch.services.reservation import claim

    wanted = parse_modules(modules) if modules else None
    count = number("-n", cards) if cards else len(wanted or (0,))
    if count > _MOST_CARDS:
        home = "https://github.com/vllm-project/vllm-gaudi"
        raise LaunchError("calibrate.many_cards", ExitCode.USAGE, cards=count, most=_MOST_CARDS, home=home)
    at_once = number("--batch", batch) if batch else None
    in_all = number("--samples", samples) if samples else None
    installed = detect(python or None)
    release, interpreter = _release(installed)
    there = read_scripts(folder if folder is not None else _scripts_of(installed, release), release)
    known = _known(model, code)
    deepseek = release == DEEPSEEK
    if deepseek and (dataset or batch):
        option = "--dataset" if dataset else "--batch"
        raise LaunchError("calibrate.fixed", ExitCode.USAGE, option=option, engine=release, dataset=_DATASET)
    data = _DATASET if deepseek else _dataset(dataset, there)
    visible = parse_visible(os.environ.get("HABANA_VISIBLE_MODULES"))

    def place(host: Host) -> Placement:
        return choose(host, count, wanted, visible)

    # refuse what cannot be before hours of fetching
    host = load(None)
    place(host)
    if deepseek:
        weights = _converted(model, count, code, host, installed)
    else:
        weights, data = _fetched(model, code), _fetched_dataset(data)
    wish = Wish(
        model=weights,
        name=name_of(model),
        cards=count,
        generation=generation_of(host),
        dataset=data,
        batch=at_once or (1 if deepseek else 32),
        samples=in_all,
        experts=bool(known.moe),
        eager=eager,
    )
    shown = _Shown()
    with claim(lambda: load(None), place, machine_root()) as (placement, _):
        words = ",".join(map(str, placement.modules))
        env = {"HABANA_VISIBLE_MODULES": words}
        found = go(wish, there, release, interpreter, env, again=again, told=shown.phase, progress=shown.progress)
    return found, wish, "-q" if deepseek else "-d fp8"


def _release(installed: Installed | None) -> tuple[str, str]:
    """The scripts' release and the interpreter. Raises LaunchError for an engine that is not calibrated here."""
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.models.calibrate_rules import RELEASES

    engine = installed.engine if installed is not None else ""
    python = installed.python if installed is not None else "PATH"
    release = engine.removeprefix("vllm-fork@")
    if release not in RELEASES:
        raise LaunchError("calibrate.engine", ExitCode.MACHINE, python=python, found=engine or "-")
    return release, python


def _scripts_of(installed: Installed | None, release: str) -> Path:
    from gaudi_launch.models.calibrate_rules import DEEPSEEK

    facts = installed.facts if installed is not None else {}
    if release == DEEPSEEK:
        return Path(facts.get("source", "")) / "scripts"
    return Path(facts.get("plugin_source") or facts.get("extension_source", "")) / "calibration"


def _known(model: str, code: bool) -> Model:
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.models.config import looks_like_hub_id
    from gaudi_launch.models.local import find_local
    from gaudi_launch.profiles import known_model

    local = find_local(model) if looks_like_hub_id(model) else None
    known = known_model(str(local or model), must_exist=not looks_like_hub_id(model))
    # the scripts give every engine --trust-remote-code
    if known.remote_code and not code:
        raise LaunchError("plan.remote_code", ExitCode.MODEL, model=known.name)
    return known


def _fetched(model: str, code: bool) -> str:
    from gaudi_launch.cli.pull import fetch
    from gaudi_launch.models.config import looks_like_hub_id
    from gaudi_launch.models.local import find_local

    if not looks_like_hub_id(model):
        return str(Path(model).expanduser().absolute())
    folder = find_local(model, code=code) or fetch(model, code=code).folder
    _known(str(folder), code)
    return str(folder.absolute())


def _converted(model: str, cards: int, code: bool, host: Host, installed: Installed | None) -> str:
    """The folder that serve would give this engine: fetched, and converted where its cards want that."""
    from gaudi_launch.cli.provide import bring
    from gaudi_launch.engines.registry import find
    from gaudi_launch.planning.request import Request
    from gaudi_launch.services.provision import look

    request = Request(model, cards=cards, engine="deepseek_r1", trust_remote_code=code)
    engine = find("auto", installed)
    bring(request, look(request, host, engine, installed))
    folder = str((look(request, host, engine, installed).facts.final or Path(model).expanduser()).absolute())
    _known(folder, code)
    return folder


def _dataset(dataset: str, scripts: Scripts) -> str:
    """The data set in words that can be fetched or read. Raises LaunchError (USAGE) for what is no such thing."""
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.models.config import looks_like_hub_id

    chosen = dataset or (_DATASET if scripts.reads_any_dataset else "")
    if not scripts.reads_any_dataset and not chosen.endswith(".pkl"):
        raise LaunchError("calibrate.dataset_pkl", ExitCode.USAGE, found=chosen or "-", path=scripts.folder)
    path = Path(chosen).expanduser()
    if path.exists():
        return str(path.absolute())
    if chosen.endswith(".pkl") or not looks_like_hub_id(chosen):
        raise LaunchError("calibrate.dataset_missing", ExitCode.USAGE, found=chosen)
    return chosen


def _fetched_dataset(dataset: str) -> str:
    from gaudi_launch.cli.pull import fetch
    from gaudi_launch.models.config import looks_like_hub_id

    if not looks_like_hub_id(dataset):
        return dataset
    return str(fetch(dataset, repo_type="dataset", everything=True).folder.absolute())


class _Shown:
    """A line for each phase, and now and then one with its count, on stderr."""

    def __init__(self) -> None:
        self._next = 0.0

    def phase(self, name: str, state: str, number: int, count: int) -> None:
        from gaudi_launch.messages import text

        if state == "done":
            return
        what = text(f"calibrate.phase_{name}")
        id = "calibrate.skip" if state == "skip" else "calibrate.begin"
        _say(text(id, number=number, count=count, what=what))
        self._next = time.monotonic() + _EVERY_SECONDS

    def progress(self, progress: StepProgress) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY_SECONDS
            _say(f"  {progress.word}: {progress.done}/{progress.total}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
