"""Packs with all their parts, made on one host and installed on another without a network.

The wheels are stand-ins, and so is docker.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.engines.install.environment import folder_of
from gaudi_launch.core.engines.needed_release import needed_release
from gaudi_launch.core.launch.report import Silent
from gaudi_launch.core.models.folder_lock import NAME as LOCK
from gaudi_launch.core.models.fp8 import measurements
from gaudi_launch.core.models.hub.download import PullProgress
from gaudi_launch.core.models.hub.local import find_local, folder_for
from gaudi_launch.core.models.hub.record import Fetched, write_record
from gaudi_launch.core.recipes import maintenance
from gaudi_launch.extensions.offline import case as offline
from gaudi_launch.extensions.offline import pack as offline_pack
from gaudi_launch.extensions.offline import pack_archive, pack_manifest
from gaudi_launch.extensions.offline.pack import PackOptions
from gaudi_launch.extensions.offline.pack_manifest import (
    Manifest,
    PackEngine,
    PackModel,
    PackTarget,
)
from tests.support.packs import made, stand_in_index
from tests.support.recipes import PARTS, fill
from tests.support.refusals import failing, raising, refused

pytestmark = pytest.mark.usefixtures("plain_english")

CONFIG = json.dumps({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"})
REPO = "Qwen/Qwen2-72B-Instruct"
TOKEN = "hf_" + "a" * 30
HERE = f"manylinux_2_28_{platform.machine()}"
# writes its arguments, fails with the command DOCKER_FAILS, and has every image, of 5 GB
DOCKER = """\
#!/bin/sh
echo "$@" >> "$DOCKER_LOG"
[ "$1" = "$DOCKER_FAILS" ] && exit 1
[ "$1" = image ] && echo 5000000000
[ "$1" = save ] && echo image > "$3"
exit 0
"""


def as_host(monkeypatch: pytest.MonkeyPatch, home: Path) -> Path:
    """Use the empty folders of another host; return its folder of data."""
    for kind in ("DATA", "STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
    monkeypatch.delenv("GAUDI_LAUNCH_ENGINES_DIR", raising=False)
    return home / "data/gaudi-launch"


@pytest.fixture(autouse=True)
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let docker be a stand-in; return the file of what it was called with."""
    program = tmp_path / "bin/docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_LOG", str(tmp_path / "docker.log"))
    monkeypatch.setenv("DOCKER_FAILS", "")
    return tmp_path / "docker.log"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a model that the packing host downloaded by its ID."""
    as_host(monkeypatch, tmp_path / "packing")
    folder = folder_for(REPO)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(CONFIG)
    (folder / "model.safetensors").write_bytes(b"weights")
    write_record(folder, Fetched(REPO, "hf", "c0ffee", True, {}))
    return folder


def options(tmp_path: Path, name: str = "pack", **more: Any) -> PackOptions:
    base = PackOptions("cpu", REPO, tmp_path / name, python=sys.executable)
    return replace(base, **more)


def install_launcher(site: Path) -> None:
    """Write what an installer writes of a small gaudi-launch."""
    info = site / "gaudi_launch-9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: gaudi-launch\nVersion: 9.9\nRequires-Dist: typer\n"
    )
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    (info / "RECORD").write_text("".join(f"{info.name}/{p.name},,\n" for p in info.iterdir()))


def test_an_image_with_model_measurements_and_recipes_comes_to_another_host(
    tmp_path: Path, model: Path, docker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_index(tmp_path / "index")
    install_launcher(tmp_path / "site")
    # an installed program has no sources
    monkeypatch.setattr(offline_pack, "checkout", lambda: None)
    monkeypatch.syspath_prepend(tmp_path / "site")
    for name, value in {
        "PIP_INDEX_URL": (tmp_path / "index").as_uri(),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_PROXY": "http://me:hunter2@proxy.site",
        "HF_TOKEN": TOKEN,
    }.items():
        monkeypatch.setenv(name, value)
    fill(tmp_path / "packing/cache/gaudi-launch/recipes")
    here = measurements.calibrated_folder(model.name, "g2", 2) / "maxabs_quant_g2.json"
    here.parent.mkdir(parents=True)
    here.write_text(json.dumps({"dump_stats_path": str(here.parent / "inc")}))
    wanted = options(tmp_path, "pack.tar", engine="tgi", with_cache=True, platform=HERE)
    image = needed_release("tgi").image or ""

    # a part that fails ends it, and what is complete stays
    monkeypatch.setenv("DOCKER_FAILS", "save")
    with refused("offline.save", ExitCode.FAILED, image=image):
        offline_pack.pack(wanted, Silent())
    launcher = tmp_path / "pack.tar.part/launcher"
    names = {path.name for path in launcher.iterdir()}
    assert names == {"gaudi_launch-9.9-py3-none-any.whl", "typer-1.5-py3-none-any.whl"}
    paths = {"path": str(tmp_path / "pack.tar.part"), "output": str(wanted.output)}
    with refused("offline.other_part", ExitCode.USAGE, **paths):
        offline_pack.pack(replace(wanted, with_cache=False), Silent())
    # what was complete is not collected again
    (launcher / "typer-1.5-py3-none-any.whl").unlink()
    monkeypatch.setenv("DOCKER_FAILS", "")
    path, manifest = offline_pack.pack(wanted, Silent())
    assert {name: count for name, (count, _) in manifest.parts().items()} == {
        "image": 1,
        "launcher": 1,
        "measurements": 1,
        "model": 2,
        "recipes": 1,
    }
    assert [each.name for each in tmp_path.glob("pack.*")] == ["pack.tar"]
    content = path.read_bytes()
    for secret in (TOKEN, "hunter2", "proxy.site", str(tmp_path)):
        assert secret.encode() not in content

    host = as_host(monkeypatch, tmp_path / "host")
    done = offline.install(path, Silent(), python=sys.executable)
    folder = host / "models" / REPO
    assert done == offline.InstalledPack(
        manifest, None, image, folder, (PARTS.key,), (), measurements=1
    )
    load = str(host / ".offline/copies/pack/image/image.tar")
    assert docker.read_text().splitlines()[-1] == f"load --input {load}"
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    # the model's ID names the folder, as after a download
    assert find_local(REPO) == folder
    there = measurements.calibrated_folder(model.name, "g2", 2) / "maxabs_quant_g2.json"
    assert json.loads(there.read_text()) == {"dump_stats_path": str(there.parent / "inc")}
    assert str(there).startswith(str(host))
    root = tmp_path / "host/cache/gaudi-launch/recipes"
    assert maintenance.find(root, PARTS.key).ledger is not None

    # again: what is there stays
    again = offline.install(path, Silent(), python=sys.executable)
    assert [key for key, _ in again.skipped] == [PARTS.key]
    assert again == replace(done, recipes=(), skipped=again.skipped, measurements=0)
    (folder / "model.safetensors").write_bytes(b"other!!")
    with refused("offline.model_other", ExitCode.FAILED, path=str(folder)):
        offline.install(path, Silent(), python=sys.executable)


@pytest.mark.parametrize(
    ("change", "id"),
    [
        ({"engine": "ray"}, "offline.engine"),
        ({"engine": "nothing"}, "serve.setup_unknown"),
        ({"engine": "tgi"}, "offline.no_image"),
        ({"model": "/not/there"}, "models.no_folder"),
        ({"engine": "vllm-gaudi", "model": "demo"}, "offline.demo"),
        ({"platform": "linux"}, "offline.platform"),
        ({"python": "/not/there"}, "offline.python"),
        ({"with_cache": True}, "offline.no_recipes"),
        ({"image": True}, "setup.not_for"),
        ({"output": Path("/not/there/pack")}, "offline.no_parent"),
        ({"output": Path("/")}, "offline.exists"),
    ],
)
def test_bad_options_write_nothing(
    tmp_path: Path, model: Path, change: dict[str, Any], id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_FAILS", "image")
    before = {*tmp_path.iterdir()} | {tmp_path / "docker.log"}
    with raising(id):
        offline_pack.pack(options(tmp_path, **change), Silent())
    assert {*tmp_path.iterdir()} <= before


@pytest.mark.parametrize(
    ("change", "more"),
    [
        ({}, 2 << 30),
        ({"engine": "vllm-gaudi"}, 6 << 30),
        ({"engine": "vllm-gaudi", "image": True}, (6 << 30) + 5_000_000_000),
        ({"engine": "tgi"}, 5_000_000_000),
    ],
)
@pytest.mark.parametrize(("name", "times"), [("pack", 1), ("pack.tar", 2)])
def test_a_full_disk_is_found_before_anything_is_written(
    change: dict[str, Any], more: int, name: str, times: int, tmp_path: Path, model: Path
) -> None:
    # a sparse file as large as all that is free
    size = shutil.disk_usage(tmp_path).free
    os.truncate(model / "model.safetensors", size)
    with failing("offline.room", ExitCode.MACHINE) as raised:
        offline_pack.pack(options(tmp_path, name, **change), Silent())
    needed = (size + len(CONFIG) + more + (1 << 28)) * times
    assert raised.value.text.values["needed"] == f"{needed / 1e9:.1f}"
    assert not list(tmp_path.glob("pack*.part"))


def test_a_stage_with_only_a_lock_is_new(tmp_path: Path, model: Path) -> None:
    stage = tmp_path / "pack.part"
    stage.mkdir()
    (stage / LOCK).touch()
    # what is refused next
    os.truncate(model / "model.safetensors", shutil.disk_usage(tmp_path).free)
    with failing("offline.room", ExitCode.MACHINE):
        offline_pack.pack(options(tmp_path), Silent())
    (stage / "x").touch()
    paths = {"path": str(stage), "output": str(tmp_path / "pack")}
    with refused("offline.other_part", ExitCode.USAGE, **paths):
        offline_pack.pack(options(tmp_path), Silent())


class Downloads(Silent):
    def __init__(self) -> None:
        self.seen: list[PullProgress | None] = []

    def downloading(self, progress: PullProgress) -> None:
        self.seen.append(progress)

    def downloaded(self) -> None:
        self.seen.append(None)


def test_a_copy_reports_its_progress_and_copies_what_changed(tmp_path: Path) -> None:
    source = tmp_path / "Small"
    for name, content in (("a", b"12345"), ("sub/x", b"xyz"), ("weights", b"weights")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    target, reporter = tmp_path / "copied", Downloads()
    offline_pack.copy(source, target, reporter)
    assert reporter.seen == [
        PullProgress(0, 15, 0, 3, "a", 0, 5),
        PullProgress(5, 15, 1, 3, "sub/x", 0, 3),
        PullProgress(8, 15, 2, 3, "weights", 0, 7),
        None,
    ]
    assert (target / "weights").stat().st_mtime_ns == (source / "weights").stat().st_mtime_ns
    # an equal size and time is the same file
    os.utime(target / "weights", ns=(1, 1))
    (target / "sub/x").write_bytes(b"abc")
    status = (source / "sub/x").stat()
    os.utime(target / "sub/x", ns=(status.st_atime_ns, status.st_mtime_ns))
    (target / "weights").write_bytes(b"WEIGHTS")
    offline_pack.copy(source, target, Silent())
    assert {
        path.relative_to(target).as_posix(): path.read_bytes()
        for path in target.rglob("*")
        if path.is_file()
    } == {"a": b"12345", "sub/x": b"abc", "weights": b"weights"}


# --- an installation -----------------------------------------------------------------------------


GAUDI = PackEngine("vllm-gaudi", "1", "gaudi", wheels=False)
CPU = PackEngine("cpu", "1", "anywhere")
MODEL = PackModel("small", "models/small")


def pack_of(folder: Path, *, files: dict[str, str] | None = None, **changes: Any) -> Path:
    """Write a pack for this host's architecture with other entries, and with more files."""
    manifest = pack_manifest.read_folder(made(folder))
    for name, content in (files or {}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    more = {"files": pack_manifest.listed(folder), **changes}
    base = {"target": PackTarget("3.11", platform.machine())}
    (folder / pack_manifest.NAME).unlink()
    pack_manifest.write(folder, replace(manifest, **{**base, **more}))
    return folder


@pytest.mark.parametrize(
    ("engine", "model", "python", "command"),
    [
        (CPU, PackModel("demo", "d", demo=True), "/p", "demo"),
        (CPU, PackModel("x", "d", "org/x"), "/p", "org/x --engine cpu"),
        (CPU, MODEL, "/p", "/here/small --engine cpu"),
        (GAUDI, MODEL, "/p", "/here/small --python /p"),
        (GAUDI, MODEL, None, "/here/small --engine vllm-gaudi --in docker"),
    ],
)
def test_the_command_serves_what_was_installed(
    engine: PackEngine, model: PackModel, python: str | None, command: str
) -> None:
    manifest = Manifest("0", "2026-01-02T03:04:05Z", engine, model, PackTarget("3.11", "x"))
    done = offline.InstalledPack(manifest, python, None, Path("/here/small"), (), (), 0)
    assert done.command == f"gaudi-launch serve {command}"


SAVED = replace(GAUDI, image="org/i", image_file="image/image.tar")
THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"


LOADED = {"engine": SAVED, "files": {"image/image.tar": "image"}}
OLD = {"target": PackTarget("3.1", platform.machine())}
ALIEN = {"target": PackTarget("3.11", "riscv64")}


@pytest.mark.parametrize(
    ("change", "python", "id", "found", "wanted"),
    [
        (ALIEN, None, "offline.machine", platform.machine(), "riscv64"),
        (OLD, sys.executable, "offline.python_other", THIS, "3.1"),
        ({}, "/bin/false", "offline.python_other", "exit status 1", "3.11"),
        ({}, "/gone", "offline.python_other", os.strerror(2), "3.11"),
        (LOADED, None, "offline.load", "", ""),
    ],
)
def test_a_pack_for_another_host_is_refused(
    change: dict[str, Any],
    python: str | None,
    id: str,
    found: str,
    wanted: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_host(monkeypatch, tmp_path / "host")
    monkeypatch.setenv("DOCKER_FAILS", "load")
    pack = pack_of(tmp_path / "pack", **change)
    code = ExitCode.FAILED if id == "offline.load" else ExitCode.MACHINE
    values = {"found": found, "wanted": wanted} if found else {"image": "org/i"}
    named = {"python": python} if python is not None else {}
    with refused(id, code, **named, **values):
        offline.install(pack, Silent(), python=python)
    assert (tmp_path / "host").exists() is (id == "offline.load")


def test_a_missing_pack_and_a_missing_docker_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused("offline.no_pack", ExitCode.USAGE, path="/gone"):
        offline.show(Path("/gone"))
    pack = pack_of(tmp_path / "pack", engine=SAVED)
    monkeypatch.setenv("PATH", "/gone")
    with refused("offline.no_docker", ExitCode.MACHINE, image="org/i"):
        offline.install(pack, Silent())


@pytest.mark.parametrize("archive", [False, True])
def test_the_disk_has_room_for_the_environment_and_the_copy(
    archive: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_host(monkeypatch, tmp_path)
    pack = pack_of(tmp_path / "pack", engine=GAUDI)
    # an engine's environment is eight times as large as its wheels (5 bytes), the model has 12
    needed = 8 * 5 + 12 + (1 << 28)
    if archive:
        manifest = pack_manifest.read_folder(pack)
        pack_archive.write(pack, tmp_path / "pack.tar", manifest)
        pack, needed = tmp_path / "pack.tar", needed + 5
    free = [needed - 1]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, free[0]))
    with failing("offline.room", ExitCode.MACHINE):
        offline.install(pack, Silent())
    free[0] = needed
    assert offline.install(pack, Silent()).model.is_dir()


def test_the_file_for_an_image_is_where_setup_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_host(monkeypatch, tmp_path / "host")
    engine = replace(GAUDI, image="org/i", image_file="image/Dockerfile")
    pack = pack_of(tmp_path / "pack", engine=engine, files={"image/Dockerfile": "FROM x"})
    assert offline.install(pack, Silent()).image is None
    target = folder_of(needed_release("vllm-gaudi")) / "docker" / "Dockerfile"
    assert target.read_text() == "FROM x"


def test_damaged_recipes_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_host(monkeypatch, tmp_path / "host")
    files = {"recipes/k.tar.zst": "nothing"}
    pack = pack_of(tmp_path / "pack", engine=GAUDI, recipes=("k",), files=files)
    with failing("cache.import_damaged", ExitCode.FAILED):
        offline.install(pack, Silent())


def test_an_engine_for_cards_is_installed_as_setup_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = as_host(monkeypatch, tmp_path / "host")
    engine = replace(GAUDI, wheels=True)
    target = PackTarget(THIS, platform.machine())
    pack = pack_of(tmp_path / "pack", engine=engine, target=target, files={"git/x.git": ""})
    # an interpreter that has PyTorch for Gaudi
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *habana*) exit 0;; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    with failing("serve.setup_failed", ExitCode.FAILED) as raised:
        offline.install(pack, Silent(), python=str(python))
    assert str(host / ".offline/copies/git/vllm-project") in str(raised.value.detail)


def _namespace() -> tuple[str, ...]:
    """Return the words that run a command without a network, () for none."""
    words = ("unshare", "--net") if os.geteuid() == 0 else ("unshare", "--net", "--map-root-user")
    if shutil.which("unshare") is None:
        return ()
    done = subprocess.run([*words, "true"], capture_output=True, check=False)
    return words if done.returncode == 0 else ()


def test_a_host_without_a_network_gets_the_engine(tmp_path: Path) -> None:
    words = _namespace()
    if not words:
        pytest.skip("no network namespace can be made here")
    stand_in_index(tmp_path / "index")
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "GAUDI_LAUNCH"))}
    index = {"PIP_INDEX_URL": (tmp_path / "index").as_uri(), "PIP_CONFIG_FILE": os.devnull}
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_text(CONFIG)

    def run(*command: str, home: str, **more: str) -> subprocess.CompletedProcess[str]:
        places = {f"XDG_{k}_HOME": str(tmp_path / home / k) for k in ("DATA", "STATE", "CACHE")}
        environment = {**keep, **places, "XDG_CONFIG_HOME": str(tmp_path / home), **more}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert "Traceback" not in done.stderr
        return done

    program = (sys.executable, "-m", "gaudi_launch", "offline")
    pack = str(tmp_path / "pack")
    done = run(
        *(*program, "pack", "--engine", "cpu", str(folder), "--to", pack, "--json"),
        home="packing",
        **index,
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["schema"], shown["model"]["name"]) == (1, "small")
    launcher = {path.name for path in (tmp_path / "pack/launcher").iterdir()}
    assert launcher == {"gaudi_launch-0.1.0-py3-none-any.whl", "typer-1.5-py3-none-any.whl"}
    assert str(tmp_path / "index") not in (tmp_path / "pack/manifest.json").read_text()

    # nothing but the pack: the index is not named, and there is no route to any
    done = run(*words, *program, "install", pack, "--json", home="host")
    assert done.returncode == 0, done.stderr
    installed = json.loads(done.stdout)
    python = Path(installed["python"])
    assert python.is_relative_to(tmp_path / "host")
    code = "import vllm, torch, tiny; print(vllm.x)"
    assert run(str(python), "-c", code, home="host").stdout == "1\n"
    assert Path(installed["model"], "config.json").read_text() == CONFIG
