"""Read and install a pack: ``gaudi-launch offline show`` and ``install``.

Every file is compared with the list before anything is changed.
"""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.commands.cache.case import parts_here, root_of
from gaudi_launch.commands.setup import case as setup
from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.mirrors import Mirrors
from gaudi_launch.core.base.paths import data_dir
from gaudi_launch.core.engines.install import environment
from gaudi_launch.core.engines.install.install_steps import SetupExtras
from gaudi_launch.core.engines.install.step_runner import base_python
from gaudi_launch.core.engines.needed_release import needed_release
from gaudi_launch.core.engines.setups import made_by_steps
from gaudi_launch.core.launch.report import Reporter
from gaudi_launch.core.models.folder_lock import hold
from gaudi_launch.core.models.hub.record import Fetched, write_record
from gaudi_launch.core.recipes import ship
from gaudi_launch.extensions.offline import pack_archive, pack_manifest
from gaudi_launch.extensions.offline.pack import (
    copy,
    model_files,
    place_measurements,
    python_version,
)
from gaudi_launch.extensions.offline.pack_manifest import Manifest

_SPARE_BYTES = 1 << 28
# an environment takes about this many times the bytes of its wheels: 3.4 GiB with compiled modules
# from 0.5 GiB for the engine on the CPU
_UNPACKED = 8


@dataclass(frozen=True)
class InstalledPack:
    """The result: interpreter or image, the model's folder, recipes by key.

    ``skipped`` are the recipes that were not imported, each with the reason.
    """

    manifest: Manifest
    python: str | None
    image: str | None
    model: Path
    recipes: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    measurements: int

    @property
    def command(self) -> str:
        """Return the command that serves the model."""
        if self.manifest.model.demo:
            return "gaudi-launch serve demo"
        model = self.manifest.model.repo or str(self.model)
        if self.manifest.engine.kind == "anywhere":
            return f"gaudi-launch serve {model} --engine {self.manifest.engine.name}"
        if self.python is None:
            return f"gaudi-launch serve {model} --engine {self.manifest.engine.name} --in docker"
        return f"gaudi-launch serve {model} --python {self.python}"


def show(pack: Path) -> Manifest:
    """Return the list of a pack, without reading its files. Raises LaunchError."""
    if not pack.exists():
        raise LaunchError("offline.no_pack", ExitCode.USAGE, path=str(pack))
    if pack_archive.is_archive(pack):
        return pack_archive.read_manifest(pack)
    return pack_manifest.read_folder(pack)


def install(
    pack: Path,
    reporter: Reporter,
    *,
    python: str | None = None,
    cache: Path | None = None,
    force: bool = False,
) -> InstalledPack:
    """Verify a pack completely, then install it.

    ``python`` is the base interpreter, ``cache`` the root of recipes. ``force``: recipes of another
    machine too. Raises LaunchError: FAILED for a damaged pack, MACHINE for a host that it is not
    for, before anything is changed.
    """
    manifest = show(pack)
    reporter.say(text("offline.verifying", size=f"{manifest.size / 1e9:.1f}"))
    try:
        if pack_archive.is_archive(pack):
            manifest = pack_archive.verify(pack)
        else:
            pack_manifest.verify(pack, manifest)
        base = _check_host(manifest, python)
        _check_model(manifest)
        _check_room(manifest, unpack=pack_archive.is_archive(pack))
        with hold(_copies().parent, "offline install"):
            # what a run that was killed left
            shutil.rmtree(_copies(), ignore_errors=True)
            try:
                return _install(manifest, _unpacked(pack), base, reporter, cache, force)
            finally:
                shutil.rmtree(_copies(), ignore_errors=True)
    except OSError as error:
        raise file_error("offline.install_io", error, error.filename or pack) from None


def _check_host(manifest: Manifest, python: str | None) -> str:
    """Return the base interpreter.

    Raises LaunchError (MACHINE) for another kind of host."""
    machine = platform.machine()
    if manifest.target.machine != machine:
        wanted = manifest.target.machine
        raise LaunchError("offline.machine", ExitCode.MACHINE, found=machine, wanted=wanted)
    if python is None and manifest.engine.kind == "anywhere":
        python = base_python()
    python = python or shutil.which("python3") or "python3"
    if manifest.engine.wheels:
        wanted = manifest.target.python
        found, why = python_version(python)
        if found != wanted:
            raise LaunchError(
                "offline.python_other",
                ExitCode.MACHINE,
                python=python,
                found=found or why,
                wanted=wanted,
            )
    if manifest.engine.image_file.endswith(".tar") and shutil.which("docker") is None:
        raise LaunchError("offline.no_docker", ExitCode.MACHINE, image=manifest.engine.image)
    return python


def _check_model(manifest: Manifest) -> None:
    """Raise LaunchError (FAILED) for a folder of the model with other files."""
    target = data_dir() / manifest.model.folder
    if manifest.model.demo or not target.exists() or has_model(manifest, target):
        return
    raise LaunchError("offline.model_other", ExitCode.FAILED, path=str(target))


def has_model(manifest: Manifest, target: Path) -> bool:
    """Return True if a folder has every file of the pack's model, by content."""
    wanted = [file for file in manifest.files if file.path.startswith("model/")]
    for file in wanted:
        path = target / file.path.removeprefix("model/")
        if not path.is_file() or path.stat().st_size != file.size:
            return False
    paths = ((file, target / file.path.removeprefix("model/")) for file in wanted)
    return all(pack_manifest.sha256_of(path) == file.sha256 for file, path in paths)


def _check_room(manifest: Manifest, *, unpack: bool) -> None:
    """Raise LaunchError (MACHINE) where the disk of the folder of data is too small."""
    sizes = {name: size for name, (_, size) in manifest.parts().items()}
    needed = _UNPACKED * sizes.get("wheels", 0) + sizes.get("model", 0) + _SPARE_BYTES
    if unpack:
        needed += manifest.size - sizes.get("model", 0)
    place = data_dir()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed > free:
        values = {"needed": f"{needed / 1e9:.1f}", "free": f"{free / 1e9:.1f}"}
        raise LaunchError("offline.room", ExitCode.MACHINE, path=str(place), **values)


def _copies() -> Path:
    """Return the folder for what an installation copies of its pack."""
    return data_dir() / ".offline" / "copies"


def _unpacked(pack: Path) -> Path:
    """Return the pack as a folder; an archive is unpacked for it."""
    if not pack_archive.is_archive(pack):
        return pack.absolute()
    folder = _copies() / "pack"
    pack_archive.unpack(pack, folder)
    return folder


def _install(
    manifest: Manifest,
    folder: Path,
    python: str,
    reporter: Reporter,
    cache: Path | None,
    force: bool,
) -> InstalledPack:
    model = _place_model(manifest, folder, reporter)
    measured = _place_measurements(folder)
    engine = None
    if manifest.engine.wheels:
        engine = _install_engine(manifest, folder, python, reporter)
    image = _load_image(manifest, folder, reporter)
    imported, skipped = _import_recipes(manifest, folder, cache, force=force)
    return InstalledPack(manifest, engine, image, model, imported, skipped, measured)


def _install_engine(manifest: Manifest, folder: Path, python: str, reporter: Reporter) -> str:
    """Install the engine as `setup` does, from the pack; return its interpreter."""
    mirrors = Mirrors(wheels=str(folder / "wheels"))
    if manifest.engine.kind == "anywhere":
        embedded = made_by_steps(manifest.engine.name)
        embedded.setup(reporter.say, demo=manifest.model.demo, mirrors=mirrors)
        return str(embedded.python())
    release = needed_release(manifest.engine.name)
    # git refuses the repositories of another user
    git = shutil.copytree(folder / "git", _copies() / "git")
    mirrors = Mirrors(wheels=mirrors.wheels, git=git.as_uri())
    extras = SetupExtras(mirrors)
    recipe = environment.in_venv(release, python, extras)
    environment.check(recipe, python, extras)
    return str(setup.install(recipe, reporter.say, mirrors).python)


def _place_model(manifest: Manifest, folder: Path, reporter: Reporter) -> Path:
    """Copy the model to its folder, which appears complete; return that."""
    target = data_dir() / manifest.model.folder
    if manifest.model.demo or target.exists():
        return target
    reporter.say(text("offline.placing", path=str(target)))
    part = target.with_name(f".{target.name}.offline")
    part.parent.mkdir(parents=True, exist_ok=True)
    copy(folder / "model", part, reporter)
    _write_model_record(manifest, part)
    part.rename(target)
    return target


def _write_model_record(manifest: Manifest, folder: Path) -> None:
    """Record the files as a download does, so that the model's ID names this folder."""
    from gaudi_launch.core.models.hub.download import SOURCES

    if not manifest.model.repo:
        return
    files = {}
    for file in manifest.files:
        if file.path.startswith("model/"):
            name = file.path.removeprefix("model/")
            changed = (folder / name).stat().st_mtime_ns
            files[name] = (file.size, f"sha256:{file.sha256}", changed)
    revision = manifest.model.revision
    write_record(folder, Fetched(manifest.model.repo, SOURCES[0], revision, True, files))


def _place_measurements(folder: Path) -> int:
    """Copy the measurements that are not here; return how many files."""
    from gaudi_launch.core.models.fp8 import measurements

    root, count = measurements.root(), 0
    source = folder / "measurements"
    for path, relative in model_files(source) if source.is_dir() else ():
        target = root / relative
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        shutil.copyfile(path, part)
        place_measurements(part, root)
        part.replace(target)
        count += 1
    return count


def _load_image(manifest: Manifest, folder: Path, reporter: Reporter) -> str | None:
    """Load the saved image, or place the Dockerfile where `setup` has it."""
    engine = manifest.engine
    if not engine.image_file:
        return None
    source = folder / engine.image_file
    if source.suffix != ".tar":
        target = environment.folder_of(needed_release(engine.name)) / "docker" / "Dockerfile"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        reporter.say(text("offline.context", path=str(target)))
        return None
    reporter.say(text("offline.loading", image=engine.image))
    done = interrupt.run(["docker", "load", "--input", str(source)])
    if done.returncode:
        raise LaunchError(
            "offline.load", ExitCode.FAILED, image=engine.image, detail=done.stderr.strip()
        )
    return engine.image


def _import_recipes(
    manifest: Manifest, folder: Path, cache: Path | None, *, force: bool
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Import the recipes that fit this machine.

    Return their keys, and the others with why."""
    imported: list[str] = []
    skipped: list[tuple[str, str]] = []
    root = root_of(cache)
    for key in manifest.recipes:
        source = folder / "recipes" / f"{key}.tar.zst"
        try:
            ship.import_(root, source, parts_here(None), force=force)
            imported.append(key)
        except LaunchError as error:
            if error.id not in ("cache.import_differs", "cache.import_exists"):
                raise
            skipped.append((key, str(error)))
    return tuple(imported), tuple(skipped)
