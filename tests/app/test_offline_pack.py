"""offline pack without a download: requests, engines, images, disk space, copies, steps."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch import interrupt
from gaudi_launch.app import offline_pack
from gaudi_launch.app.offline_pack import PackOptions
from gaudi_launch.app.report import Silent
from gaudi_launch.engines.install import pack_steps
from gaudi_launch.engines.install.pack_steps import CollectOrder
from gaudi_launch.engines.registry import setup_name
from gaudi_launch.engines.releases import needed_release
from gaudi_launch.engines.vllm_cpu import install as cpu_install
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.mirrors import read
from gaudi_launch.models.hub.download import PullProgress
from gaudi_launch.offline import launcher_wheel
from gaudi_launch.offline.pack_manifest import PackEngine, PackModel, PackTarget
from gaudi_launch.recipe_cache import cache_root
from tests.support.recipes import fill
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

CPU = PackEngine("cpu", cpu_install.VLLM, "anywhere")
FREE = 10**18


@pytest.fixture(autouse=True)
def _large_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, FREE))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return the folder of a model with 107 bytes."""
    folder = tmp_path / "Small"
    folder.mkdir()
    (folder / "config.json").write_text("{}".ljust(100))
    (folder / "weights").write_bytes(b"weights")
    return folder


def options(tmp_path: Path, **changes: Any) -> PackOptions:
    base = PackOptions("cpu", "demo", tmp_path / "pack", python=sys.executable)
    return replace(base, **changes)


def order(tmp_path: Path, **changes: Any) -> offline_pack._Order:
    """Return a checked request whose stage exists."""
    base = offline_pack._Order(
        options(tmp_path),
        CPU,
        None,
        PackModel("demo", "models/demo", demo=True),
        None,
        PackTarget("3.11", "x86_64"),
        sys.executable,
        (),
    )
    base.stage.mkdir(exist_ok=True)
    return replace(base, **changes)


class Docker:
    """Answers for docker: known images with their sizes; records the calls."""

    def __init__(self, **images: str) -> None:
        self.images = images
        self.calls: list[tuple[str, ...]] = []

    def run(self, words: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
        self.calls.append(tuple(words))
        if not self.images:
            raise FileNotFoundError("docker")
        found = next((size for name, size in self.images.items() if name in words[-1]), None)
        if "save" in words and found is not None:
            Path(words[words.index("--output") + 1]).write_text("image")
        status = 0 if found is not None else 1
        return subprocess.CompletedProcess(list(words), status, found or "", "")


# --- the request ---------------------------------------------------------------------------------


# --- engines and images --------------------------------------------------------------------------


def test_a_release_for_cards_is_packed_as_wheels_and_its_image_where_requested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = needed_release("vllm-gaudi")
    wheels = PackEngine(release.engine, release.version, "gaudi")
    docker = Docker()
    monkeypatch.setattr(interrupt, "run", docker.run)
    wanted = PackOptions("vllm-gaudi", "m", Path("/x"))
    assert offline_pack._engine(wanted) == (wheels, release)
    assert docker.calls == []
    image = release.image or ""
    dockerfile = replace(wheels, image=image, image_file="image/Dockerfile")
    assert offline_pack._engine(replace(wanted, image=True)) == (dockerfile, release)
    docker.images = {image: "1"}
    saved = replace(wheels, image=image, image_file="image/image.tar")
    assert offline_pack._engine(replace(wanted, image=True)) == (saved, release)
    assert docker.calls[-1] == ("docker", "image", "inspect", image)


def test_an_engine_that_is_an_image_needs_it_here(monkeypatch: pytest.MonkeyPatch) -> None:
    release = needed_release(setup_name("tgi"))
    assert release.bare_image is None
    wanted = PackOptions("tgi", "m", Path("/x"))
    monkeypatch.setattr(interrupt, "run", Docker(other="1").run)
    image = release.image or ""
    values = {"engine": release.engine, "image": image}
    with refused("offline.no_image", ExitCode.MACHINE, **values):
        offline_pack._engine(wanted)
    monkeypatch.setattr(interrupt, "run", Docker(**{image: "1"}).run)
    engine, found = offline_pack._engine(wanted)
    assert found == release
    assert (engine.wheels, engine.image, engine.image_file) == (False, image, "image/image.tar")


def test_an_image_is_saved_complete_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = PackEngine("x", "1", "gaudi", image="org/image", image_file="image/image.tar")
    one = order(tmp_path, engine=engine)
    docker = Docker(**{"org/image": "1"})
    monkeypatch.setattr(interrupt, "run", docker.run)
    offline_pack._save_image(one)
    part = one.stage / "image/image.part"
    assert docker.calls == [("docker", "save", "--output", str(part), "org/image")]
    assert ((one.stage / "image/image.tar").read_text(), part.exists()) == ("image", False)
    monkeypatch.setattr(interrupt, "run", Docker(other="1").run)
    with refused("offline.save", ExitCode.FAILED, image="org/image"):
        offline_pack._save_image(one)
    release = needed_release("vllm-gaudi")
    file = replace(one, engine=replace(engine, image_file="image/Dockerfile"), release=release)
    offline_pack._save_image(file)
    assert "FROM " in (one.stage / "image/Dockerfile").read_text()


# --- disk space ----------------------------------------------------------------------------------


def test_the_disk_has_room_for_all_parts(
    tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spare = 1 << 28
    free = {"bytes": 0}

    def usage(path: Path) -> object:
        assert path == tmp_path
        return shutil._ntuple_diskusage(0, 0, free["bytes"])

    monkeypatch.setattr(shutil, "disk_usage", usage)
    monkeypatch.setattr(interrupt, "run", Docker(**{"org/image": "1000\n"}).run)

    def needs(one: offline_pack._Order, count: int) -> None:
        free["bytes"] = count
        offline_pack._check_room(one)
        free["bytes"] = count - 1
        values = {"needed": f"{count / 1e9:.1f}", "free": f"{(count - 1) / 1e9:.1f}"}
        with refused("offline.room", ExitCode.MACHINE, path=str(tmp_path), **values):
            offline_pack._check_room(one)

    one = order(tmp_path)
    needs(one, spare + (2 << 30))
    needs(replace(one, engine=replace(CPU, kind="gaudi")), spare + (6 << 30))
    bare = replace(CPU, wheels=False)
    needs(replace(one, engine=bare), spare)
    needs(replace(one, engine=bare, source=small), spare + 107)
    imaged = replace(bare, image="org/image", image_file="image/image.tar")
    needs(replace(one, engine=imaged), spare + 1000)
    needs(replace(one, engine=replace(imaged, image="unknown")), spare)
    fill(tmp_path / "recipes")
    [entry] = cache_root.entries(tmp_path / "recipes")
    needs(replace(one, engine=bare, recipes=(entry,)), spare + entry.bytes)
    tar = replace(one, engine=bare, options=options(tmp_path, output=tmp_path / "pack.tar"))
    needs(tar, 2 * spare)
    # what an interrupted run left is there already
    (one.stage / "sub").mkdir()
    (one.stage / "sub" / "a").write_bytes(b"12345")
    needs(replace(one, engine=bare), spare - 5)


# --- files ---------------------------------------------------------------------------------------


class Downloads(Silent):
    def __init__(self) -> None:
        self.seen: list[PullProgress | None] = []

    def downloading(self, progress: PullProgress) -> None:
        self.seen.append(progress)

    def downloaded(self) -> None:
        self.seen.append(None)


def test_a_copy_reports_its_progress_and_copies_what_changed(small: Path, tmp_path: Path) -> None:
    (small / "sub").mkdir()
    (small / "sub/x").write_bytes(b"xyz")
    target, reporter = tmp_path / "copied", Downloads()
    offline_pack.copy(small, target, reporter)
    assert reporter.seen == [
        PullProgress(0, 110, 0, 3, "config.json", 0, 100),
        PullProgress(100, 110, 1, 3, "sub/x", 0, 3),
        PullProgress(103, 110, 2, 3, "weights", 0, 7),
        None,
    ]
    assert {name: (target / name).read_bytes() for name in ("sub/x", "weights")} == {
        "sub/x": b"xyz",
        "weights": b"weights",
    }
    assert (target / "weights").stat().st_mtime_ns == (small / "weights").stat().st_mtime_ns
    # an equal size and time is the same file
    os.utime(target / "weights", ns=(1, 1))
    (target / "sub/x").write_bytes(b"abc")
    status = (small / "sub/x").stat()
    os.utime(target / "sub/x", ns=(status.st_atime_ns, status.st_mtime_ns))
    (target / "weights").write_bytes(b"WEIGHTS")
    offline_pack.copy(small, target, Silent())
    assert (target / "weights").read_bytes() == b"weights"
    assert (target / "sub/x").read_bytes() == b"abc"
    assert sorted(path.name for path in target.iterdir()) == ["config.json", "sub", "weights"]


def test_each_part_is_made_once_and_only_what_the_pack_has(tmp_path: Path, small: Path) -> None:
    one = order(tmp_path)

    def names(found: offline_pack._Order) -> list[str]:
        return [name for name, _ in offline_pack._parts(found, Silent())]

    assert names(one) == ["wheels", "launcher"]
    imaged = replace(CPU, wheels=False, image_file="image/Dockerfile")
    folder = replace(one, engine=imaged, model=PackModel("Small", "models/Small"), source=small)
    assert names(folder) == ["launcher", "image", "model", "measurements"]
    entry: Any = "entry"
    assert names(replace(one, recipes=(entry,))) == ["wheels", "launcher", "recipes"]
    done: list[str] = []
    offline_pack._begin(one)
    for _ in range(2):
        offline_pack._once(one, "wheels", lambda: done.append("wheels"))
    offline_pack._begin(one)
    offline_pack._once(one, "launcher", lambda: done.append("launcher"))
    assert done == ["wheels", "launcher"]
    record = offline_pack._record(one.stage)
    assert record == {"request": one.request, "steps": ["wheels", "launcher"]}
    offline_pack._check_stage(one)
    other = replace(one, model=PackModel("x", "models/x"))
    with refused(
        "offline.other_part",
        ExitCode.USAGE,
        path=str(one.stage),
        output=str(tmp_path / "pack"),
    ):
        offline_pack._check_stage(other)


def test_a_stage_with_only_a_lock_is_new(tmp_path: Path) -> None:
    from gaudi_launch.models.folder_lock import NAME as LOCK

    one = order(tmp_path)
    (one.stage / LOCK).write_text("")
    offline_pack._check_stage(one)
    (one.stage / "x").write_text("")
    with pytest.raises(LaunchError):
        offline_pack._check_stage(one)
    shutil.rmtree(one.stage)
    one.stage.write_text("")
    with pytest.raises(LaunchError):
        offline_pack._check_stage(one)


# --- packages ------------------------------------------------------------------------------------


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...]]]:
    """Record the steps that would run."""
    found: list[tuple[str, tuple[str, ...]]] = []

    def run_steps(steps: Any, say: Any, mirrors: Any, temporary: Path) -> None:
        say("a line")
        assert mirrors == read()
        found.extend((step.id, step.argv) for step in steps)

    monkeypatch.setattr(cpu_install, "run_steps", run_steps)
    return found


def test_the_engine_is_collected_for_the_platform(
    tmp_path: Path, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def embedded(order: CollectOrder, *, demo: bool) -> list[Any]:
        asked.append((order, demo))
        return []

    def gaudi(order: CollectOrder, release: object) -> list[Any]:
        asked.append((order, release))
        return []

    monkeypatch.setattr(pack_steps, "embedded_steps", embedded)
    monkeypatch.setattr(pack_steps, "gaudi_steps", gaudi)
    one = order(tmp_path, options=options(tmp_path, platform="manylinux_2_28_x86_64"))
    wanted = CollectOrder(
        sys.executable,
        one.stage / "wheels",
        one.stage / "git",
        one.stage / ".gaudi-launch-work",
        "manylinux_2_28_x86_64",
    )
    offline_pack._collect_engine(one, Silent())
    release = needed_release("vllm-gaudi")
    offline_pack._collect_engine(replace(one, release=release), Silent())
    assert asked == [(wanted, True), (wanted, release)]
    assert wanted.wheels.is_dir() and wanted.work.is_dir()


@pytest.mark.parametrize("from_sources", [True, False])
def test_the_launcher_is_built_from_its_sources_or_taken_as_installed(
    from_sources: bool, tmp_path: Path, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = order(tmp_path, options=options(tmp_path, platform="manylinux_2_28_x86_64"))
    folder = one.stage / "launcher"
    folder.mkdir()
    wheel = folder / "gaudi_launch-1-py3-none-any.whl"
    wheel.write_text("")
    taken: list[Path] = []
    sources = tmp_path / "sources" if from_sources else None
    monkeypatch.setattr(launcher_wheel, "checkout", lambda: sources)
    monkeypatch.setattr(launcher_wheel, "from_installed", taken.append)
    offline_pack._collect_launcher(one, Silent())
    wanted = offline_pack._collect_order(one)
    needs = ("offline.step_launcher_needs", pack_steps.collected(wanted, folder, (str(wheel),)))
    venv = (wanted.venv_step.id, wanted.venv_step.argv)
    if not from_sources:
        assert (taken, ran) == ([folder], [venv, needs])
        return
    built = pack_steps.collected(replace(wanted, platform=""), folder, ("--no-deps", str(sources)))
    assert (taken, ran) == ([], [venv, ("offline.step_launcher", built), needs])
    # pip is there already
    Path(wanted.pip_python).parent.mkdir(parents=True)
    Path(wanted.pip_python).write_text("")
    ran.clear()
    offline_pack._collect_launcher(one, Silent())
    assert ran == [("offline.step_launcher", built), needs]
