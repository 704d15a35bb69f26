"""The services that keep running from a version that was replaced."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import setup
from gaudi_launch.engines import releases
from gaudi_launch.engines.install import environment, switch
from gaudi_launch.engines.install.in_use import in_use
from gaudi_launch.engines.registry import setup_name
from gaudi_launch.engines.releases import needed_release
from gaudi_launch.engines.vllm_cpu import install as cpu_install
from gaudi_launch.errors import ExitCode
from gaudi_launch.messages import message, text
from gaudi_launch.mirrors import Mirrors
from gaudi_launch.paths import engines_dir
from gaudi_launch.services.state import registry, store
from tests.support.refusals import refused


@pytest.fixture
def two_versions(
    own_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path]:
    """The embedded engine in two versions, the second one in force."""
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(tmp_path / "engines"))
    folders = tmp_path / "engines" / "cpu", tmp_path / "engines" / "cpu+2"
    for folder in folders:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
        (folder / "gaudi-launch.json").write_text(
            json.dumps({"vllm": folder.name}), encoding="utf-8"
        )
        cpu_install.versions().put_in_force(folder)
    return folders


def record(name: str, python: Path) -> None:
    """Write the plan of a service."""
    folder = store.service_dir(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(
        json.dumps({"engine": {"python": str(python)}}), encoding="utf-8"
    )
    (folder / "state.json").write_text(
        json.dumps({"schema": 1, "phase": "ready"}), encoding="utf-8"
    )


def test_only_running_services_of_the_replaced_version_are_named(
    two_versions: tuple[Path, Path],
) -> None:
    first, second = two_versions
    record("old", first / "bin" / "python")
    record("new", second / "bin" / "python")
    record("ended", second / "bin" / "python")
    with registry.hold("old"), registry.hold("new"):
        done = setup.roll_back("cpu")
    assert (done.folder, done.replaced.old, done.replaced.services) == (first, second, ("new",))
    assert done.python == engines_dir() / "cpu.current" / "bin" / "python"


def test_a_version_that_another_user_runs_is_known_by_its_lock(
    two_versions: tuple[Path, Path],
) -> None:
    second = two_versions[1]
    with in_use(str(second / "bin" / "python"), engines_dir()):
        done = setup.roll_back(None)
    assert (done.replaced.services, done.replaced.used, done.replaced.others) == ((), True, ())


def test_a_dry_run_changes_nothing(two_versions: tuple[Path, Path]) -> None:
    done = setup.roll_back("cpu", dry_run=True)
    assert done.folder == two_versions[0]
    assert cpu_install.environment_dir() == two_versions[1]


# --- installations -------------------------------------------------------------------------------


RELEASE = needed_release("vllm-gaudi")


def recipe(**changes: Any) -> Any:
    base = {"engine": "e", "python": "/p", "image": None, "constraints": ""}
    return SimpleNamespace(**{**base, **changes})


def test_an_environment_is_put_in_force_and_an_image_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    olds: list[Path | None] = [None, tmp_path]
    said: list[str] = []
    monkeypatch.setattr(environment, "make", lambda recipe, say, mirrors: 3)
    monkeypatch.setattr(environment, "versions_of", lambda engine: f"versions of {engine}")
    monkeypatch.setattr(environment, "put_in_force", lambda recipe, say: olds.pop(0))
    monkeypatch.setattr(environment, "linked_python", lambda engine: Path("/linked"))
    monkeypatch.setattr(setup, "_leftovers", lambda versions, old: (versions, old))
    image = setup.install(recipe(python=None, image="org/i"), said.append, Mirrors())
    assert image == setup.Installation(3, None, "org/i", None)
    first = setup.install(recipe(), said.append, Mirrors())
    assert first == setup.Installation(3, "/linked", None, None)
    second: Any = setup.install(recipe(), said.append, Mirrors())
    assert second == setup.Installation(3, "/linked", None, ("versions of e", tmp_path))  # type: ignore[arg-type]


def test_the_origin_of_the_versions_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = SimpleNamespace(date="d", python="3.11", installed=9, imported=7, left_out=("a", "b"))
    reason = message("services.drain", found=1)
    monkeypatch.setattr(releases, "trial_of", lambda file: trial if file == "/tried" else None)
    monkeypatch.setattr(releases, "no_constraints", lambda release: reason)
    by_tag = text("setup.image_by_tag", image=RELEASE.whole_image or RELEASE.bare_image)
    pins = text("setup.pins", path="/tried")
    tried = text(
        "setup.pins_tried",
        date="d",
        python="3.11",
        count=9,
        imported=7,
        missing=text("common.between").join(("a", "b")),
    )
    notes = setup.pin_notes
    assert notes(RELEASE, recipe(constraints="/tried")) == (pins, tried)
    assert notes(RELEASE, recipe(constraints="/new")) == (text("setup.pins", path="/new"),)
    assert notes(RELEASE, recipe(image="org/i", constraints="/new"))[0] == by_tag
    assert notes(RELEASE, recipe()) == (reason.render(),)
    tgi = needed_release(setup_name("tgi"))
    shown = text("setup.image_by_tag", image=tgi.whole_image)
    # a published image has the versions of its makers
    assert notes(tgi, recipe(image=tgi.whole_image)) == (shown,)
    assert notes(tgi, recipe(image="built")) == (shown, reason.render())
    monkeypatch.setattr(releases, "no_constraints", lambda release: None)
    assert notes(RELEASE, recipe()) == ()


# --- the version before --------------------------------------------------------------------------


def test_without_an_earlier_version_nothing_is_rolled_back(
    two_versions: tuple[Path, Path],
) -> None:
    first, second = two_versions
    with refused("setup.no_version_before", ExitCode.USAGE, engine="ray"):
        setup.roll_back("ray")
    (first / "bin" / "python").unlink()
    broken = {"path": str(first), "python": str(first / "bin/python"), "engine": "cpu"}
    with refused("setup.version_broken", ExitCode.FAILED, **broken):
        setup.roll_back("cpu")
    assert cpu_install.environment_dir() == second


def test_the_only_engine_with_two_versions_needs_no_name(
    two_versions: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def versions(name: str) -> Any:
        return SimpleNamespace(name=name, replaced=lambda: name in several or None)

    several = {"a"}
    monkeypatch.setattr(setup, "_versions", versions)
    monkeypatch.setattr(switch, "names_in_force", lambda: ["a", "b", "c"])
    assert setup._chosen(None).name == "a"
    assert setup._chosen("b").name == "b"
    several.add("c")
    with refused("setup.several_versions", ExitCode.USAGE, known="a, c", first="a"):
        setup._chosen(None)
    several.clear()
    with refused("setup.no_versions_before", ExitCode.USAGE):
        setup._chosen(None)


def test_a_link_that_cannot_be_changed_is_an_error(
    two_versions: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object) -> None:
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(switch.Versions, "roll_back", fail)
    link = str(cpu_install.versions().link)
    with refused("setup.switch_failed", ExitCode.FAILED, path=link, why="Permission denied"):
        setup.roll_back("cpu")


def test_other_versions_remain(two_versions: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = two_versions
    third = tmp_path / "engines" / "cpu+3"
    (third / "bin").mkdir(parents=True)
    (third / "gaudi-launch.json").write_text("{}", encoding="utf-8")
    assert setup.leftovers_of("cpu", None) is None
    left = setup.leftovers_of("cpu", first)
    assert left is not None
    assert (left.old, left.services, left.used) == (first, (), False)
    assert second not in left.others and first not in left.others
    assert setup._python_in(first) == first / "bin/python"
    (first / "venv/bin").mkdir(parents=True)
    (first / "venv/bin/python").touch()
    assert setup._python_in(first) == first / "venv/bin/python"
    assert setup._python_in(tmp_path) == tmp_path / "bin/python"
