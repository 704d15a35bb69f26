"""Whose launcher is dead, and of whom that cannot be told: with real namespaces, rights and
removed folders."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base import codec
from gaudi_launch.core.services.process import lineage
from gaudi_launch.core.services.state import chosen, orphans, registry, store
from gaudi_launch.core.services.state.registry import ask_lock
from tests.support.processes import is_alive
from tests.support.waiting import GENEROUS, until

# as a launcher does: the folder is held, the engine carries the mark and may leave the session
LAUNCHER = """
import os, subprocess, sys, time
from pathlib import Path
from gaudi_launch.core.services.process import process
from gaudi_launch.core.services.state import registry, store
from gaudi_launch.core.services.process.marks import MARK
process.adopt_orphans()
with registry.hold("a"):
    folder = store.service_dir("a")
    store.write(folder, "state.json", {"name": "a", "phase": "ready"})
    marked = {**os.environ, MARK: str(folder)}
    engine = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env=marked, start_new_session=True
    )
    Path(sys.argv[-1]).write_text(str(engine.pid))
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def own_state(own_folders: Path) -> Path:
    return own_folders / "state"


Launch = Callable[..., tuple[subprocess.Popen[bytes], int]]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start a launcher after some words (``unshare -m ...``), named as ours is; with it the pid
    of its engine."""
    started: list[subprocess.Popen[bytes]] = []
    engines: list[int] = []
    package = tmp_path / "package" / "gaudi_launch_stand_in"
    script = tmp_path / "bin" / "gaudi-launch"

    def start(*before: str, named: bool = True) -> tuple[subprocess.Popen[bytes], int]:
        program = script if named else package
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(LAUNCHER, encoding="utf-8")
        told = tmp_path / f"engine-{len(started)}.pid"
        words = [*before, sys.executable, str(program), "serve", str(told)]
        launcher = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(Path.cwd())})
        started.append(launcher)
        until(lambda: told.exists() and told.read_text(encoding="utf-8"), "the launcher's engine")
        engines.append(int(told.read_text(encoding="utf-8")))
        return launcher, engines[-1]

    yield start
    for launcher in started:
        launcher.kill()
        launcher.wait(GENEROUS)
    for pid in engines:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def seen(pid: int) -> str:
    """What `look` says of a process: dead, unsure or (no word of it) alive."""
    for orphan in orphans.look():
        if orphan.process.pid == pid:
            return "dead" if orphan.doubt is None else "unsure"
    return "alive"


def in_own_mounts(folder: Path) -> tuple[str, ...]:
    """The words that start a program with a file system of its own at ``folder``, as a container
    has."""
    folder.mkdir(parents=True, exist_ok=True)
    return ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder))


@pytest.mark.root
@pytest.mark.parametrize("named", [True, False], ids=["by its name too", "by its lock alone"])
def test_a_service_of_another_mount_namespace_lives(
    launch: Launch, own_state: Path, named: bool
) -> None:
    launcher, engine = launch(*in_own_mounts(own_state), named=named)
    assert not store.service_dir("a").exists()
    assert seen(engine) == "alive"
    # what is killed there is found from here, where its lock can be looked at
    launcher.kill()
    launcher.wait(GENEROUS)
    assert seen(engine) == "dead"
    # the service of this name that we see is another one
    with registry.hold("a"):
        pass
    assert orphans.orphans(store.service_dir("a")) == []


@pytest.mark.root
def test_a_link_is_followed_as_the_process_would(launch: Launch, own_state: Path) -> None:
    """Its state folder is a link to an absolute path that is another folder for us."""
    own_state.mkdir()
    here = own_state.with_name("elsewhere")
    here.mkdir()
    inside = (
        'mount -t tmpfs none "$0" && mkdir "$0/kept" && ln -sfn "$0/kept" "$1/gaudi-launch" && '
        'shift && exec "$@"'
    )
    _, engine = launch("unshare", "-m", "sh", "-c", inside, str(here), str(own_state), named=False)
    assert lineage.seen_by(engine, own_state / "gaudi-launch/services/a/lock").is_file()
    assert seen(engine) == "alive"


DROPPED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")


def without_rights(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours as root that may not look into another user's folders, as on a home
    by NFS."""
    return subprocess.run(
        [*DROPPED, sys.executable, "-m", "gaudi_launch", *words],
        capture_output=True,
        text=True,
        timeout=GENEROUS,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def rows(done: subprocess.CompletedProcess[str], key: str) -> dict[int, dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return {row["pid"]: row for row in json.loads(done.stdout)[key]}


@pytest.mark.root
@pytest.mark.usefixtures("only_orphans")
@pytest.mark.parametrize("named", [True, False])
def test_a_folder_that_cannot_be_read_ends_nothing(
    launch: Launch, own_state: Path, named: bool
) -> None:
    launcher, engine = launch(named=named)
    os.chown(own_state, 65534, 65534)
    own_state.chmod(0o700)
    done = without_rights("stop", "--orphans", "--yes", "--json")
    assert engine not in rows(done, "ended")
    unsure = rows(done, "unsure")
    # a launcher above it is proof of life; without one it is listed, with the reason
    if named:
        assert engine not in unsure
    else:
        assert "Permission denied" in unsure[engine]["reason"]
        assert "Permission denied" in without_rights("stop", "--orphans", "--yes").stderr
    assert is_alive(engine) and launcher.poll() is None


@pytest.mark.parametrize("named", [True, False])
def test_a_removed_folder_proves_no_death(launch: Launch, named: bool) -> None:
    launcher, engine = launch(named=named)
    shutil.rmtree(store.service_dir("a"))
    assert seen(engine) == ("alive" if named else "unsure")
    launcher.kill()
    launcher.wait(GENEROUS)
    # its lock is gone, so nothing shows that it was not only moved away
    assert seen(engine) == "unsure"


def test_a_free_lock_below_a_living_launcher_is_a_doubt(launch: Launch) -> None:
    """Another folder was put in its place: the lock that is seen is not the one that is held."""
    _, engine = launch()
    shutil.rmtree(store.service_dir("a"))
    with registry.hold("a"):
        pass
    assert seen(engine) == "unsure"


def test_a_dead_launchers_engine_is_an_orphan(launch: Launch) -> None:
    launcher, engine = launch()
    assert seen(engine) == "alive"
    launcher.kill()
    launcher.wait(GENEROUS)
    assert seen(engine) == "dead"
    assert [orphan.process.pid for orphan in orphans.orphans(store.service_dir("a"))] == [engine]


def test_the_three_answers_of_a_lock(tmp_path: Path) -> None:
    folder = store.service_dir("a")
    assert ask_lock(folder) == registry.LockAnswer(None, "No such file or directory")
    with registry.hold("a"):
        assert ask_lock(folder) == registry.LockAnswer(True)
    assert ask_lock(folder) == registry.LockAnswer(False)


def test_a_service_whose_lock_cannot_be_looked_at_lives_as_long_as_its_launcher() -> None:
    from gaudi_launch.core.services.state import identity

    mine = identity.of(os.getpid())
    assert mine is not None
    with registry.hold("a"):
        folder = store.service_dir("a")
    (folder / "lock").unlink()
    document = {"name": "a", "phase": "ready", "launcher": codec.write(mine)}
    store.write(folder, "state.json", document)
    assert chosen.find("a").alive
    store.write(folder, "state.json", {**document, "launcher": {**codec.write(mine), "ticks": 1}})
    assert not chosen.find("a").alive


def test_the_parent_of_a_process_from_outside_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, one that was brought in from outside (docker exec) has the parent 0."""
    monkeypatch.setattr(lineage, "_parent", {30: 20, 20: 0, 40: 1, 1: 0}.get)
    monkeypatch.setattr(lineage, "_is_launcher", lambda pid: False)
    assert lineage.above(30) is lineage.Above.HIDDEN
    assert lineage.above(40) is lineage.Above.NO_LAUNCHER
    monkeypatch.setattr(lineage, "_is_launcher", lambda pid: pid == 20)
    assert lineage.above(30) is lineage.Above.LAUNCHER


@pytest.mark.parametrize(
    ("held", "ancestors", "elsewhere", "doubt"),
    [
        (False, lineage.Above.NO_LAUNCHER, False, None),
        (False, lineage.Above.NO_LAUNCHER, True, None),
        (False, lineage.Above.HIDDEN, False, None),
        (False, lineage.Above.HIDDEN, True, "services.doubt_hidden"),
        (False, lineage.Above.LAUNCHER, False, "services.doubt_launcher"),
        (None, lineage.Above.NO_LAUNCHER, False, "services.doubt_lock"),
        (None, lineage.Above.HIDDEN, True, "services.doubt_lock"),
    ],
)
def test_when_it_cannot_be_told(
    held: bool | None, ancestors: lineage.Above, elsewhere: bool, doubt: str | None
) -> None:
    answer = registry.LockAnswer(held, "why")
    found = orphans.doubt("/s/a", answer, ancestors, elsewhere=elsewhere)
    assert (found.id if found is not None else None) == doubt
