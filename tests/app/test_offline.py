"""Packs with all their parts, installed on a host without a network.

The wheels are stand-ins.
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
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch import interrupt
from gaudi_launch.app import offline, offline_pack
from gaudi_launch.app.offline import InstallOptions
from gaudi_launch.app.offline_pack import PackOptions
from gaudi_launch.app.report import Silent
from gaudi_launch.engines.releases import needed_release
from gaudi_launch.engines.vllm_cpu import install as cpu_install
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import text
from gaudi_launch.mirrors import Mirrors
from gaudi_launch.models.fp8 import measurements
from gaudi_launch.models.hub.file_choice import Fetched, write_record
from gaudi_launch.models.hub.local import find_local, folder_for
from gaudi_launch.offline import pack_manifest
from gaudi_launch.offline.pack_manifest import (
    Manifest,
    PackEngine,
    PackFile,
    PackModel,
    PackTarget,
)
from gaudi_launch.recipe_cache import cache_root
from tests.support.packs import stand_in_index
from tests.support.recipes import PARTS, fill
from tests.support.refusals import refused
from tests.support.reporters import Lines

CONFIG = json.dumps({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"})
REPO = "Qwen/Qwen2-72B-Instruct"
TOKEN = "hf_" + "a" * 30


def as_host(monkeypatch: pytest.MonkeyPatch, home: Path) -> Path:
    """Use the empty folders of another host; return its folder of data."""
    for kind in ("DATA", "STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
    monkeypatch.delenv("GAUDI_LAUNCH_ENGINES_DIR", raising=False)
    return home / "data/gaudi-launch"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of data of the packing host, which has one small wheel."""

    def collect(order: offline_pack._Order, reporter: object) -> None:
        (order.stage / "wheels").mkdir(exist_ok=True)
        (order.stage / "wheels/a.whl").write_bytes(b"wheel")

    monkeypatch.setattr(offline_pack, "_collect_engine", collect)
    monkeypatch.setattr(offline_pack, "_collect_launcher", lambda order, reporter: None)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:hunter2@index.site/simple")
    return as_host(monkeypatch, tmp_path / "packing")


@pytest.fixture
def model(data: Path) -> Path:
    """Return the folder of a model that was downloaded by its ID."""
    folder = folder_for(REPO)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(CONFIG)
    (folder / "model.safetensors").write_bytes(b"weights")
    write_record(folder, Fetched(REPO, "hf", "c0ffee", True, {}))
    return folder


def options(tmp_path: Path, name: str = "pack", **more: Any) -> PackOptions:
    base = PackOptions("cpu", REPO, tmp_path / name, python=sys.executable)
    return replace(base, **more)


def engine_installed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the wheels that the engine would be installed from."""
    found: list[str] = []

    def setup(say: object, *, demo: bool, mirrors: object) -> None:
        found.append(str(getattr(mirrors, "wheels", "")))

    monkeypatch.setattr(cpu_install, "setup", setup)
    return found


@pytest.mark.parametrize("name", ["pack", "pack.tar"])
def test_a_model_with_measurements_and_recipes_comes_to_another_host(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fill(tmp_path / "packing/cache/gaudi-launch/recipes")
    here = measurements.calibrated_folder(model.name, "g2", 2) / "maxabs_quant_g2.json"
    here.parent.mkdir(parents=True)
    here.write_text(json.dumps({"dump_stats_path": str(here.parent / "inc")}))
    packed = offline_pack.pack(options(tmp_path, name, with_cache=True), Silent())
    assert sorted(packed.manifest.parts()) == ["measurements", "model", "recipes", "wheels"]
    assert [path.name for path in tmp_path.iterdir()].count(f"{name}.part") == 0
    if name == "pack":
        content = b"".join(p.read_bytes() for p in packed.path.rglob("*") if p.is_file())
    else:
        content = packed.path.read_bytes()
    for secret in (TOKEN, "hunter2", "index.site", str(tmp_path)):
        assert secret.encode() not in content

    host = as_host(monkeypatch, tmp_path / "host")
    wheels = engine_installed(monkeypatch)
    done = offline.install(InstallOptions(packed.path, sys.executable), Silent())
    assert (done.model, done.recipes, done.skipped) == (host / "models" / REPO, (PARTS.key,), ())
    assert (done.model / "model.safetensors").read_bytes() == b"weights"
    # the model's ID names the folder, as after a download
    assert find_local(REPO) == done.model
    there = measurements.calibrated_folder(model.name, "g2", 2) / "maxabs_quant_g2.json"
    assert json.loads(there.read_text()) == {"dump_stats_path": str(there.parent / "inc")}
    assert str(there).startswith(str(host))
    root = tmp_path / "host/cache/gaudi-launch/recipes"
    assert cache_root.find(root, PARTS.key).ledger is not None
    assert len(wheels) == 1 and wheels[0].endswith("/wheels")
    assert done.command == f"gaudi-launch serve {REPO} --engine cpu"

    # again: what is there stays
    again = offline.install(InstallOptions(packed.path, sys.executable), Silent())
    assert (again.model, again.recipes, [key for key, _ in again.skipped]) == (
        done.model,
        (),
        [PARTS.key],
    )


def test_another_model_in_the_folder_is_kept(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = offline_pack.pack(options(tmp_path), Silent())
    host = as_host(monkeypatch, tmp_path / "host")
    wheels = engine_installed(monkeypatch)
    (host / "models" / REPO).mkdir(parents=True)
    (host / "models" / REPO / "model.safetensors").write_bytes(b"other!!")
    with pytest.raises(LaunchError) as caught:
        offline.install(InstallOptions(packed.path, sys.executable), Silent())
    assert (caught.value.id, wheels) == ("offline.model_other", [])
    assert (host / "models" / REPO / "model.safetensors").read_bytes() == b"other!!"


@pytest.mark.parametrize(
    ("target", "id"),
    [({"python": "3.1"}, "offline.python_other"), ({"machine": "riscv64"}, "offline.machine")],
)
def test_a_pack_for_another_host_is_refused(
    tmp_path: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: dict[str, str],
    id: str,
) -> None:
    packed = offline_pack.pack(options(tmp_path), Silent())
    other = replace(packed.manifest, target=replace(packed.manifest.target, **target))
    pack_manifest.write(packed.path, other)
    as_host(monkeypatch, tmp_path / "host")
    with pytest.raises(LaunchError) as caught:
        offline.install(InstallOptions(packed.path, sys.executable), Silent())
    assert (caught.value.id, int(caught.value.exit_code)) == (id, ExitCode.MACHINE)
    assert not (tmp_path / "host").exists()


def test_an_interrupted_pack_continues_and_another_one_does_not(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[str] = []
    ours = offline_pack._collect_engine

    def collect(order: offline_pack._Order, reporter: Silent) -> None:
        collected.append(order.model.name)
        ours(order, reporter)

    def stop(source: Path, target: Path, reporter: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(offline_pack, "_collect_engine", collect)
    with monkeypatch.context() as interrupted:
        interrupted.setattr(offline_pack, "copy", stop)
        with pytest.raises(KeyboardInterrupt):
            offline_pack.pack(options(tmp_path), Silent())
    assert not (tmp_path / "pack").exists()
    fill(tmp_path / "packing/cache/gaudi-launch/recipes")
    with pytest.raises(LaunchError) as caught:
        offline_pack.pack(options(tmp_path, with_cache=True), Silent())
    assert caught.value.id == "offline.other_part"
    packed = offline_pack.pack(options(tmp_path), Silent())
    assert collected == [model.name]
    pack_manifest.verify(packed.path, packed.manifest)


@pytest.mark.parametrize(
    ("change", "id"),
    [
        ({"engine": "ray"}, "offline.engine"),
        ({"engine": "nothing"}, "serve.setup_unknown"),
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
    tmp_path: Path, model: Path, change: dict[str, Any], id: str
) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(LaunchError) as caught:
        offline_pack.pack(options(tmp_path, **change), Silent())
    assert caught.value.id == id
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk_is_found_before_anything_is_written(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 1))
    with pytest.raises(LaunchError) as caught:
        offline_pack.pack(options(tmp_path), Silent())
    assert (caught.value.id, (tmp_path / "pack.part").exists()) == ("offline.room", False)


# --- parts of an installation --------------------------------------------------------------------


GAUDI = PackEngine("vllm-gaudi", "1", "gaudi", wheels=False)
SMALL = Manifest(
    launcher="0",
    created="2026-01-02T03:04:05Z",
    engine=PackEngine("cpu", "1", "anywhere"),
    model=PackModel("small", "models/small"),
    target=PackTarget("3.11", platform.machine()),
)


@pytest.mark.parametrize(
    ("engine", "model", "python", "command"),
    [
        (SMALL.engine, PackModel("demo", "d", demo=True), "/p", "demo"),
        (SMALL.engine, PackModel("x", "d", "org/x"), "/p", "org/x --engine cpu"),
        (SMALL.engine, SMALL.model, "/p", "/here/small --engine cpu"),
        (GAUDI, SMALL.model, "/p", "/here/small --python /p"),
        (GAUDI, SMALL.model, None, "/here/small --engine vllm-gaudi --in docker"),
    ],
)
def test_the_command_serves_what_was_installed(
    engine: PackEngine, model: PackModel, python: str | None, command: str
) -> None:
    manifest = replace(SMALL, engine=engine, model=model)
    done = offline.InstalledPack(manifest, python, None, Path("/here/small"), (), (), 0)
    assert done.command == f"gaudi-launch serve {command}"


def test_a_missing_pack_and_a_missing_docker_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("offline.no_pack", ExitCode.USAGE, path="/gone"):
        offline.show(Path("/gone"))
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(offline, "_check_python", lambda *words: asked.append(words))
    monkeypatch.setattr(cpu_install, "base_python", lambda: "/base")
    found: dict[str, str] = {"python3": "/bin/python3"}
    monkeypatch.setattr(shutil, "which", found.get)
    pack = InstallOptions(Path("/pack"))
    imaged = replace(GAUDI, image="org/i", image_file="image/image.tar")
    assert offline._check_host(SMALL, pack) == "/base"
    assert offline._check_host(SMALL, replace(pack, python="/mine")) == "/mine"
    assert offline._check_host(replace(SMALL, engine=GAUDI), pack) == "/bin/python3"
    assert asked == [("/base", "3.11"), ("/mine", "3.11")]
    with refused("offline.no_docker", ExitCode.MACHINE, image="org/i"):
        offline._check_host(replace(SMALL, engine=imaged), pack)
    found["docker"] = "/bin/docker"
    del found["python3"]
    assert offline._check_host(replace(SMALL, engine=imaged), pack) == "python3"


@pytest.mark.parametrize(
    ("python", "found"), [("/bin/false", "exit status 1"), ("/gone", os.strerror(2))]
)
def test_an_interpreter_of_another_version_is_named(python: str, found: str) -> None:
    values = {"python": python, "found": found, "wanted": "3.11"}
    with refused("offline.python_other", ExitCode.MACHINE, **values):
        offline._check_python(python, "3.11")


def test_the_disk_has_room_for_the_environment_and_the_copy(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = (
        PackFile("wheels/a", 1000, ""),
        PackFile("model/b", 300, ""),
        PackFile("launcher/c", 20, ""),
    )
    manifest = replace(SMALL, files=files)
    free = {"bytes": 0}

    def usage(path: Path) -> object:
        # the folder of data does not exist yet
        assert path == tmp_path
        return shutil._ntuple_diskusage(0, 0, free["bytes"])

    monkeypatch.setattr(shutil, "disk_usage", usage)
    for name, needed in (("pack", 8300), ("pack.tar", 9320)):
        (tmp_path / name).mkdir() if name == "pack" else (tmp_path / name).touch()
        pack = InstallOptions(tmp_path / name)
        total = needed + (1 << 28)
        free["bytes"] = total
        offline._check_room(manifest, pack)
        free["bytes"] -= 1
        values = {"needed": f"{total / 1e9:.1f}", "free": f"{(total - 1) / 1e9:.1f}"}
        with refused("offline.room", ExitCode.MACHINE, path=str(tmp_path), **values):
            offline._check_room(manifest, pack)


def test_an_image_is_loaded_or_its_file_placed(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gaudi_launch.engines.install.environment import folder_of

    ran: list[Any] = []
    status = {"code": 0}

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        ran.append(words)
        return subprocess.CompletedProcess(words, status["code"], "", " no space \n")

    monkeypatch.setattr(interrupt, "run", run)
    said = Lines()
    load = offline._load_image
    assert load(SMALL, tmp_path, said) is None
    saved = replace(SMALL, engine=replace(GAUDI, image="org/i", image_file="image/image.tar"))
    assert load(saved, tmp_path, said) == "org/i"
    words = ["docker", "load", "--input", str(tmp_path / "image/image.tar")]
    assert (ran, said.lines) == ([words], [text("offline.loading", image="org/i")])
    status["code"] = 1
    with refused("offline.load", ExitCode.FAILED, image="org/i"):
        load(saved, tmp_path, said)
    (tmp_path / "image").mkdir()
    (tmp_path / "image/Dockerfile").write_text("FROM x")
    said.lines.clear()
    file = replace(SMALL, engine=replace(GAUDI, image="org/i", image_file="image/Dockerfile"))
    assert load(file, tmp_path, said) is None
    target = folder_of(needed_release("vllm-gaudi")) / "docker" / "Dockerfile"
    assert target.read_text() == "FROM x"
    assert said.lines == [text("offline.context", path=str(target))]
    assert len(ran) == 2


def test_an_engine_for_cards_is_installed_as_setup_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gaudi_launch.engines.install import environment

    as_host(monkeypatch, tmp_path / "host")
    done: list[Any] = []
    (tmp_path / "git/a.git").mkdir(parents=True)

    def install(recipe: object, say: object, mirrors: Mirrors) -> Any:
        git = Path(str(mirrors.git).removeprefix("file://"))
        done.append((recipe, mirrors.wheels, [path.name for path in git.iterdir()]))
        assert git != tmp_path / "git"
        return SimpleNamespace(python="/engine/python")

    monkeypatch.setattr(environment, "in_venv", lambda release, python, extras: (release, python))
    monkeypatch.setattr(environment, "check", lambda made, python, _: done.append((made, python)))
    monkeypatch.setattr("gaudi_launch.app.setup.install", install)
    manifest = replace(SMALL, engine=replace(GAUDI, wheels=True))
    found = offline._install_engine(manifest, tmp_path, "/base", Silent())
    recipe = (needed_release("vllm-gaudi"), "/base")
    assert found == "/engine/python"
    assert done == [(recipe, "/base"), (recipe, str(tmp_path / "wheels"), ["a.git"])]


def test_recipes_of_another_machine_are_skipped_and_damaged_ones_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gaudi_launch.app import cache
    from gaudi_launch.recipe_cache import ship

    asked: list[Any] = []
    ids = {"b": "cache.import_differs", "c": "cache.import_exists", "d": "cache.no_ledger"}

    def import_(root: Path, source: Path, parts: object, *, force: bool) -> None:
        asked.append((root, source, parts, force))
        key = source.name.partition(".")[0]
        if key in ids:
            raise LaunchError(
                ids[key], ExitCode.FAILED, key=key, why="w", differences="d", root="r"
            )

    monkeypatch.setattr(cache, "parts_here", lambda machine: "parts")
    monkeypatch.setattr(ship, "import_", import_)
    pack = InstallOptions(Path("/pack"), cache=tmp_path / "root", force=True)
    imported, skipped = offline._import_recipes(
        replace(SMALL, recipes=("a", "b", "c")), tmp_path, pack
    )
    assert (imported, [key for key, _ in skipped]) == (("a",), ["b", "c"])
    source = tmp_path / "recipes" / "a.tar.zst"
    assert asked[0] == (tmp_path / "root", source, "parts", True)
    with pytest.raises(LaunchError) as caught:
        offline._import_recipes(replace(SMALL, recipes=("d",)), tmp_path, pack)
    assert caught.value.id == "cache.no_ledger"


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
        *(*program, "pack", "--engine", "cpu", "--model", str(folder), "-o", pack, "--json"),
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
