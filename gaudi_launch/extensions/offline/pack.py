"""Collect what a host without a network needs: ``gaudi-launch offline pack``."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from gaudi_launch.commands.cache.case import root_of
from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.mirrors import read as read_mirrors
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.base.paths import data_dir, write_whole
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.base.version import VERSION
from gaudi_launch.core.engines.entries import entry, setup_name, setup_names
from gaudi_launch.core.engines.install.install_steps import SetupExtras, dockerfile
from gaudi_launch.core.engines.install.installation import PipPackages
from gaudi_launch.core.engines.install.step_runner import (
    InstallStep,
    base_python,
    mirrored,
    run_steps,
)
from gaudi_launch.core.engines.needed_release import needed_release
from gaudi_launch.core.engines.releases import Release, constraints_of, known
from gaudi_launch.core.engines.setups import made_by_steps
from gaudi_launch.core.launch.report import Reporter
from gaudi_launch.core.models.config import looks_like_hub_id, name_of
from gaudi_launch.core.models.folder_lock import NAME as LOCK
from gaudi_launch.core.models.folder_lock import hold
from gaudi_launch.core.models.fp8 import measurements
from gaudi_launch.core.models.hub.file_choice import PARTS
from gaudi_launch.core.models.hub.local import find_local, folder_for
from gaudi_launch.core.models.hub.record import RECORD, read_record
from gaudi_launch.core.planning import profiles
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.recipes import cache_root, ship
from gaudi_launch.core.recipes.cache_root import CacheEntry
from gaudi_launch.extensions.offline import pack_archive, pack_manifest
from gaudi_launch.extensions.offline.pack_manifest import (
    Manifest,
    PackEngine,
    PackFile,
    PackModel,
    PackTarget,
)
from gaudi_launch.extensions.offline.pack_steps import (
    CollectOrder,
    collected,
    embedded_steps,
    gaudi_steps,
    platforms,
)

_log = logging.getLogger(__name__)

DEMO = "demo"
# bytes of an engine's wheels with its code: measured 0.5 GiB for the engine on the CPU, with a
# reserve; assumed for the others, whose builds may need PyTorch
_WHEEL_BYTES = {"anywhere": 2 << 30, "gaudi": 6 << 30}
_SPARE_BYTES = 1 << 28
# where a measurement file names the folder of measurements
MEASUREMENTS_PLACE = "@MEASUREMENTS@"
# written by the installer, not part of a wheel
_INSTALLERS = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_STEPS = "steps"
_RECORD = ".gaudi-launch-pack.json"
_WORK = ".gaudi-launch-work"
_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


@dataclass(frozen=True)
class PackOptions:
    """The options of a pack.

    ``python`` is an interpreter of the target's version, ``platform`` pip's name of its platform.
    ``image``: the engine's image too.
    """

    engine: str
    model: str
    output: Path
    with_cache: bool = False
    image: bool = False
    python: str | None = None
    platform: str = ""
    cache: Path | None = None


@dataclass(frozen=True)
class _Order:
    """A checked request: nothing was written yet."""

    options: PackOptions
    engine: PackEngine
    code: Release | PipPackages
    model: PackModel
    source: Path | None
    target: PackTarget
    python: str
    recipes: tuple[CacheEntry, ...]

    @property
    def is_archive(self) -> bool:
        return self.options.output.suffix == ".tar"

    @property
    def stage(self) -> Path:
        """Return the folder that an interrupted run leaves and the next one completes."""
        return self.options.output.with_name(f"{self.options.output.name}.part")

    @property
    def request(self) -> dict[str, Any]:
        """Return what must be the same when a run continues another one."""
        named = {"engine": asdict(self.engine), "model": asdict(self.model)}
        return {**named, "target": asdict(self.target), "cache": [e.key for e in self.recipes]}


def pack(options: PackOptions, reporter: Reporter) -> tuple[Path, Manifest]:
    """Make a pack. Run again after an interruption, it continues.

    Raises LaunchError: USAGE for options, MODEL for a model, MACHINE for disk space, before
    anything is written; FAILED for a step.
    """
    order = _checked(options)
    _check_room(order)
    with hold(order.stage, "offline pack"):
        try:
            if _record(order.stage) is None:
                begun = {"request": order.request, _STEPS: []}
                write_whole(order.stage / _RECORD, json.dumps(begun))
            for number, (name, work) in enumerate(_parts(order, reporter), start=1):
                reporter.say(text("offline.part", number=number, name=text(f"offline.{name}")))
                _once(order, name, work)
            return _finish(order, reporter)
        except OSError as error:
            raise file_error("offline.io", error, error.filename or order.stage) from None


def _checked(options: PackOptions) -> _Order:
    output = options.output.expanduser().absolute()
    options = replace(options, output=output)
    if output.exists():
        raise LaunchError("offline.exists", ExitCode.USAGE, path=str(output))
    if not output.parent.is_dir():
        raise LaunchError("offline.no_parent", ExitCode.USAGE, path=str(output.parent))
    engine, code = _engine(options)
    python = _python(options, engine)
    if options.platform:
        platforms(options.platform)
    model, source = _model(options, engine)
    machine = options.platform.partition("_2_")[2].partition("_")[2] or platform.machine()
    version, why = python_version(python)
    if why:
        raise LaunchError("offline.python", ExitCode.MACHINE, python=python, why=why)
    target = PackTarget(version, machine, options.platform)
    order = _Order(options, engine, code, model, source, target, python, _recipes(options))
    _check_stage(order)
    return order


def _engine(options: PackOptions) -> tuple[PackEngine, Release | PipPackages]:
    name = setup_name(options.engine)
    if entry(name).anywhere:
        made = made_by_steps(name)
        if made.packages is None:
            packed = (each for each in setup_names() if made_by_steps(each).packages is not None)
            names = ", ".join((*packed, *known()))
            raise LaunchError("offline.engine", ExitCode.USAGE, found=options.engine, known=names)
        if options.image:
            raise LaunchError(
                "setup.not_for", ExitCode.USAGE, flag="--image", engine=options.engine
            )
        return PackEngine(options.engine, made.expected, "anywhere"), made.packages
    release = needed_release(name)
    has_wheels = release.bare_image is not None
    if has_wheels and constraints_of(release) is None:
        raise LaunchError("offline.no_constraints", ExitCode.USAGE, engine=release.engine)
    engine = PackEngine(release.engine, release.version, "gaudi", has_wheels)
    if not options.image and has_wheels:
        return engine, release
    image = release.image or ""
    saved = _docker("image", "inspect", image) is not None
    if not saved and not has_wheels:
        raise LaunchError("offline.no_image", ExitCode.MACHINE, engine=release.engine, image=image)
    file = "image/image.tar" if saved else "image/Dockerfile"
    return replace(engine, image=image, image_file=file), release


def _docker(*words: str) -> str | None:
    """Return docker's output, None where it fails or is missing."""
    try:
        done = interrupt.run(["docker", *words])
    except OSError as error:
        _log.debug("docker cannot be queried: %s", error)
        return None
    return done.stdout if done.returncode == 0 else None


def _python(options: PackOptions, engine: PackEngine) -> str:
    """Return the interpreter whose version the target has. Raises LaunchError."""
    if options.python is not None:
        return options.python
    if engine.kind == "anywhere":
        return base_python()
    return shutil.which("python3") or sys.executable


def python_version(python: str) -> tuple[str, str]:
    """Return the version of an interpreter as "3.11", or "" and why it gives none."""
    try:
        done = interrupt.run([python, "-c", _VERSION], seconds=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", getattr(error, "strerror", None) or str(error)
    if done.returncode:
        return "", f"exit status {done.returncode}"
    return done.stdout.strip(), ""


def _model(options: PackOptions, engine: PackEngine) -> tuple[PackModel, Path | None]:
    """Return the model and its folder, None for one that is downloaded."""
    word = options.model
    if word == DEMO:
        if engine.kind != "anywhere":
            raise LaunchError("offline.demo", ExitCode.USAGE, engine=engine.name)
        return PackModel(DEMO, "models/demo", demo=True), None
    folder = Path(word).expanduser()
    if looks_like_hub_id(word) and not folder.is_dir():
        found = find_local(word, code=True) or find_local(word)
        record = mapped(read_record, found)
        inside = folder_for(word).relative_to(data_dir()).as_posix()
        revision = record.revision if record is not None else ""
        return PackModel(name_of(word), inside, word, revision), found
    known_model(str(folder))
    name = folder.absolute().name
    return PackModel(name, f"models/{name}"), folder


def _recipes(options: PackOptions) -> tuple[CacheEntry, ...]:
    """Return the keys of this model's recipes.

    Raises LaunchError where there are none."""
    if not options.with_cache:
        return ()
    root = root_of(options.cache)
    name = name_of(options.model)
    entries = [each for each in cache_root.entries(root) if each.ledger is not None]
    found = tuple(e for e in entries if e.ledger is not None and e.ledger.parts.model == name)
    if not found:
        raise LaunchError("offline.no_recipes", ExitCode.USAGE, model=name, path=str(root))
    return found


def _check_stage(order: _Order) -> None:
    """Raise LaunchError (USAGE) for the unfinished pack of another request."""
    record = _record(order.stage)
    if record is not None and record.get("request") == order.request:
        return
    if order.stage.is_dir():
        names = {path.name for path in order.stage.iterdir()}
    else:
        names = set()
    is_new = not order.stage.exists() or (order.stage.is_dir() and names <= {LOCK})
    if not is_new:
        raise LaunchError(
            "offline.other_part",
            ExitCode.USAGE,
            path=str(order.stage),
            output=str(order.options.output),
        )


def _check_room(order: _Order) -> None:
    """Raise LaunchError (MACHINE) where the disk is too small.

    What exists already is subtracted."""
    needed = _SPARE_BYTES
    needed += _WHEEL_BYTES[order.engine.kind] if order.engine.wheels else 0
    if order.source is not None:
        needed += sum(path.stat().st_size for path, _ in model_files(order.source))
    needed += sum(entry.bytes for entry in order.recipes)
    if order.engine.image_file.endswith(".tar"):
        size = _docker("image", "inspect", "--format", "{{.Size}}", order.engine.image)
        needed += int(size) if size is not None and size.strip().isdecimal() else 0
    # the archive is written next to the folder that it is made of
    needed *= 2 if order.is_archive else 1
    files = (path for path in order.stage.rglob("*") if path.is_file())
    there = sum(path.lstat().st_size for path in files)
    free = shutil.disk_usage(order.options.output.parent).free
    if needed - there > free:
        raise LaunchError(
            "offline.room",
            ExitCode.MACHINE,
            path=str(order.options.output.parent),
            needed=f"{(needed - there) / 1e9:.1f}",
            free=f"{free / 1e9:.1f}",
        )


def _record(stage: Path) -> dict[str, Any] | None:
    try:
        found = read_json(stage / _RECORD)
    except (OSError, ValueError) as error:
        _log.debug("no pack was begun: %s", error)
        return None
    return found if isinstance(found, dict) else None


def _once(order: _Order, name: str, work: Callable[[], None]) -> None:
    """Make one part of the pack, unless an earlier run completed it."""
    record = _record(order.stage) or {"request": order.request, _STEPS: []}
    if name in record[_STEPS]:
        return
    work()
    record = {**record, _STEPS: [*record[_STEPS], name]}
    write_whole(order.stage / _RECORD, json.dumps(record))


def _parts(order: _Order, reporter: Reporter) -> list[tuple[str, Callable[[], None]]]:
    """Return the parts of this pack in order, each with its work."""
    parts: list[tuple[str, Callable[[], None]]] = []
    if order.engine.wheels:
        parts.append(("wheels", lambda: _collect_engine(order, reporter)))
    parts.append(("launcher", lambda: _collect_launcher(order, reporter)))
    if order.engine.image_file:
        parts.append(("image", lambda: _save_image(order)))
    if not order.model.demo:
        parts.append(("model", lambda: _collect_model(order, reporter)))
        parts.append(("measurements", lambda: _collect_measurements(order)))
    if order.recipes:
        parts.append(("recipes", lambda: _export_recipes(order)))
    return parts


def _collect_order(order: _Order) -> CollectOrder:
    stage = order.stage
    work = stage / _WORK
    # pip's files of a run that was killed
    shutil.rmtree(work / "tmp", ignore_errors=True)
    (work / "tmp").mkdir(parents=True)
    return CollectOrder(order.python, stage / "wheels", stage / "git", work, order.options.platform)


def _collect_engine(order: _Order, reporter: Reporter) -> None:
    wanted, mirrors = _collect_order(order), read_mirrors()
    wanted.wheels.mkdir(exist_ok=True)
    if isinstance(order.code, PipPackages):
        steps = embedded_steps(wanted, order.code, demo=order.model.demo)
    else:
        steps = gaudi_steps(wanted, order.code)
    run_steps(mirrored(steps, mirrors), reporter.say, mirrors, wanted.work / "tmp")


def _collect_launcher(order: _Order, reporter: Reporter) -> None:
    wanted, mirrors = _collect_order(order), read_mirrors()
    folder = order.stage / "launcher"
    folder.mkdir(exist_ok=True)
    sources = checkout()
    steps = [] if Path(wanted.pip_python).exists() else [wanted.venv_step]
    if sources is None:
        write_installed_wheel(folder)
    else:
        # pure Python: any platform's wheel
        build = replace(wanted, platform="")
        words = collected(build, folder, ("--no-deps", str(sources)))
        steps.append(InstallStep("offline.step_launcher", words))
    run_steps(mirrored(steps, mirrors), reporter.say, mirrors, wanted.work / "tmp")
    wheel = sorted(folder.glob("gaudi_launch-*.whl"))[0]
    needs = InstallStep("offline.step_launcher_needs", collected(wanted, folder, (str(wheel),)))
    run_steps(mirrored([needs], mirrors), reporter.say, mirrors, wanted.work / "tmp")


def checkout() -> Path | None:
    """Return the folder of the sources that this program runs from, None for a wheel."""
    folder = Path(__file__).parents[3]
    if not (folder / "pyproject.toml").is_file():
        return None
    return folder


def write_installed_wheel(target: Path) -> Path:
    """Write the wheel of the installed files to a folder; return its path.

    docs: "Binary distribution format" (packaging.python.org). Raises OSError.
    """
    found = metadata.distribution("gaudi-launch")
    contents: dict[str, bytes] = {}
    for file in found.files or ():
        name = file.as_posix()
        own = name.startswith("gaudi_launch") and file.name not in _INSTALLERS
        if own and "__pycache__" not in file.parts:
            contents[name] = Path(str(file.locate())).read_bytes()
    record = f"gaudi_launch-{found.version}.dist-info/RECORD"
    lines = []
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    contents[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    wheel = target / f"gaudi_launch-{found.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return wheel


def _save_image(order: _Order) -> None:
    target = order.stage / order.engine.image_file
    target.parent.mkdir(exist_ok=True)
    if target.suffix != ".tar":
        assert not isinstance(order.code, PipPackages)
        target.write_text(dockerfile(order.code, SetupExtras()), encoding="utf-8")
        return
    part = target.with_suffix(".part")
    part.unlink(missing_ok=True)
    if _docker("save", "--output", str(part), order.engine.image) is None:
        raise LaunchError("offline.save", ExitCode.FAILED, image=order.engine.image)
    part.replace(target)


def model_files(folder: Path) -> list[tuple[Path, str]]:
    """Return the files of a model's folder with their paths in it.

    Without the records and parts of downloads. Links of a hub's cache are followed.
    """
    unwanted = (PARTS, RECORD, LOCK, ".cache", ".git")
    found = []
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if relative.parts[0] not in unwanted and path.is_file():
            found.append((path, relative.as_posix()))
    return found


def _collect_model(order: _Order, reporter: Reporter) -> None:
    target = order.stage / "model"
    if order.source is None:
        from gaudi_launch.core.launch.model_setup import Wanted, fetch

        fetch(Wanted(order.model.repo, to=target), reporter)
        # remove what a download leaves besides the model
        for name in (RECORD, LOCK):
            (target / name).unlink(missing_ok=True)
        for name in (PARTS, ".cache"):
            shutil.rmtree(target / name, ignore_errors=True)
        return
    copy(order.source, target, reporter)


def copy(source: Path, target: Path, reporter: Reporter) -> None:
    """Copy the files of a model; a file appears complete, and is not copied twice."""
    from gaudi_launch.core.models.hub.download import PullProgress

    files = model_files(source)
    sizes = {relative: path.stat().st_size for path, relative in files}
    total, done = sum(sizes.values()), 0
    try:
        for number, (path, relative) in enumerate(files):
            size = sizes[relative]
            reporter.downloading(PullProgress(done, total, number, len(files), relative, 0, size))
            _copy_file(path, target / relative)
            done += size
    finally:
        reporter.downloaded()


def _copy_file(source: Path, target: Path) -> None:
    status = source.stat()
    if target.is_file():
        there = target.stat()
        if (there.st_size, there.st_mtime_ns) == (status.st_size, status.st_mtime_ns):
            return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    shutil.copyfile(source, part)
    os.utime(part, ns=(status.st_atime_ns, status.st_mtime_ns))
    part.replace(target)


def _collect_measurements(order: _Order) -> None:
    """Copy this machine's measurements of the model, without this machine's path."""
    root = measurements.root()
    folders = [measurements.root() / "calibrated" / order.model.name.lower()]
    known = known_model(str(order.stage / "model"), must_exist=False)
    profile = profiles.match(replace(known, name=order.model.name))
    for each in profile.measurements if profile is not None else ():
        folders.append(measurements.downloaded_folder(each.repo))
    for folder in [folder for folder in dict.fromkeys(folders) if folder.is_dir()]:
        for path, relative in model_files(folder):
            inside = folder.relative_to(root).as_posix()
            target = order.stage / "measurements" / inside / relative
            _copy_file(path, target)
            if target.suffix == ".json":
                _replace_in(target, str(root.absolute()), MEASUREMENTS_PLACE)


def _replace_in(path: Path, before: str, after: str) -> None:
    content = path.read_bytes()
    if before.encode() in content:
        path.write_bytes(content.replace(before.encode(), after.encode()))


def place_measurements(path: Path, root: Path) -> None:
    """Write the folder of measurements of this machine into a file of a pack."""
    _replace_in(path, MEASUREMENTS_PLACE, str(root.absolute()))


def _export_recipes(order: _Order) -> None:
    folder = order.stage / "recipes"
    folder.mkdir(exist_ok=True)
    root = root_of(order.options.cache)
    for recipe in order.recipes:
        ship.export(root, recipe, folder / f"{recipe.key}.tar.zst")


def _finish(order: _Order, reporter: Reporter) -> tuple[Path, Manifest]:
    """Hash every file, write the list, and give the pack its name."""
    stage, output = order.stage, order.options.output
    shutil.rmtree(stage / _WORK, ignore_errors=True)
    reporter.say(text("offline.hashing"))
    own = (_RECORD, LOCK)
    files: tuple[PackFile, ...] = tuple(
        file for file in pack_manifest.listed(stage) if file.path not in own
    )
    manifest = Manifest(
        launcher=VERSION,
        created=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        engine=order.engine,
        model=order.model,
        target=order.target,
        recipes=tuple(entry.key for entry in order.recipes),
        files=files,
    )
    pack_manifest.write(stage, manifest)
    if order.is_archive:
        reporter.say(text("offline.writing", path=str(output)))
        pack_archive.write(stage, output, manifest)
        shutil.rmtree(stage)
        return output, manifest
    for name in own:
        (stage / name).unlink(missing_ok=True)
    stage.rename(output)
    return output, manifest
