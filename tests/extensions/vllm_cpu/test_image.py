"""The embedded engine's image, with a stand-in for docker and podman."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines.install.demo import demo_dir, demo_is_ready
from gaudi_launch.core.engines.install.installation import ImageRequest
from gaudi_launch.core.engines.install.pip_settings import PipSettings
from gaudi_launch.extensions.vllm_cpu.image import BASE, IMAGE, base_image, build, steps
from tests.support.places import PACKAGE
from tests.support.refusals import failing

# notes its arguments; `run` makes the demo model as the real one's container does, `commit` keeps
# the base image, which `image inspect` answers
PROGRAM = """
import json, os, sys
from pathlib import Path
here, words = Path(__file__).parent, sys.argv[1:]
with (here / "asked").open("a") as file:
    file.write(json.dumps(words) + "\\n")
kept = here / "base"
if words[0] == "image":
    sys.exit(print(kept.read_text()) if kept.exists() else 1)
if words[0] == "commit":
    label = next(word for word in words if word.startswith("LABEL"))
    kept.write_text(label.partition("=")[2])
if words[0] == "run":
    print("pip: cannot find torch" if os.environ.get("STUB_FAILS") else "done")
    for word in words:
        if word.endswith(":/run/gaudi-launch/demo"):
            model = Path(word.partition(":")[0]) / "model"
            model.mkdir()
            (model / "model.safetensors").touch(0o600)
    sys.exit(1 if os.environ.get("STUB_FAILS") else 0)
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with the arguments of a stand-in podman on PATH."""
    stub = tmp_path / "bin" / "podman"
    stub.parent.mkdir()
    stub.write_text(f"#!{sys.executable}{PROGRAM}")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("GAUDI_LAUNCH_ENGINES_DIR", raising=False)
    return stub.parent / "asked"


def verbs(asked: Path) -> list[str]:
    return [json.loads(line)[0] for line in asked.read_text().splitlines()]


def test_the_container_has_the_settings_only_while_it_runs(tmp_path: Path) -> None:
    settings = PipSettings("[global]\n", {"/run/gaudi-launch/pip/0": "/opt/wheels"}, {})
    run, commit, clear = steps(ImageRequest("podman", "base:1", demo=False), settings, tmp_path)
    package = PACKAGE
    assert run.argv[:-5] == (
        *("podman", "run", "--name", "gaudi-launch-setup-cpu", "--network=host", "--user=0:0"),
        *("--volume", f"{package}:/run/gaudi-launch/package/gaudi_launch:ro"),
        *("--volume", f"{tmp_path}:/run/gaudi-launch/settings:ro"),
        *("--volume", "/opt/wheels:/run/gaudi-launch/pip/0:ro"),
        "--entrypoint=python3",
    )
    assert run.argv[-5:-3] == ("base:1", "-c")
    assert "USER 65532:65532" in commit.argv and commit.argv[-1] == IMAGE
    assert clear.argv == ("podman", "rm", "--force", "gaudi-launch-setup-cpu")


def test_an_image_is_built_once(asked: Path) -> None:
    said: list[str] = []
    request = ImageRequest("podman", "base:1")
    assert build(request, os.environ, said.append) == 3
    assert verbs(asked) == ["image", "rm", "run", "commit", "rm", "rm"]
    model = demo_dir() / "model.safetensors"
    assert (model.stat().st_mode & 0o777, demo_is_ready()) == (0o644, True)
    assert build(request, os.environ, said.append) == 0
    assert build(ImageRequest("podman", "other:1"), os.environ, said.append) == 3


def test_a_failed_installation_is_explained_and_leaves_no_container(
    asked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_FAILS", "1")
    with pytest.raises(LaunchError) as error:
        build(ImageRequest("podman", "base:1"), os.environ, lambda line: None)
    assert error.value.detail == "pip: cannot find torch"
    assert verbs(asked) == ["image", "rm", "run", "rm"]
    assert not demo_is_ready()


def test_a_missing_program_is_named(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with failing("setup.no_docker", ExitCode.MACHINE):
        build(ImageRequest("podman", "base:1"), os.environ, lambda line: None)


def test_the_base_image_is_an_option_a_variable_or_the_default() -> None:
    variable = {"GAUDI_LAUNCH_BASE_IMAGE": "mine:2"}
    assert base_image("mine:1", variable) == "mine:1"
    assert base_image(None, variable) == "mine:2"
    assert base_image(None, {}) == BASE
    with pytest.raises(LaunchError) as error:
        base_image("--privileged", {})
    assert error.value.exit_code == ExitCode.USAGE


def test_a_complete_demo_model_is_not_made_again(asked: Path) -> None:
    request = ImageRequest("podman", "base:1")
    build(request, os.environ, lambda line: None)
    before = demo_dir().stat().st_ino
    (asked.parent / "base").unlink()
    assert build(request, os.environ, lambda line: None) == 3
    runs = [json.loads(line) for line in asked.read_text().splitlines() if '"run"' in line]
    mounted = [any(word.endswith("/demo") for word in words) for words in runs]
    assert (mounted, demo_dir().stat().st_ino) == ([True, False], before)
