"""Card locks with real processes: taken, seen, released at the end and at a kill, raced for."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.host.card_locks import lock_folders, read_holder, read_reserved
from gaudi_launch.core.host.machine import load
from gaudi_launch.core.planning.placement import choose
from gaudi_launch.core.services.state import reservation
from gaudi_launch.core.services.state.reservation import claim, reserve
from tests.support.machines import link_tree, use
from tests.support.places import TOP
from tests.support.waiting import GENEROUS


@contextlib.contextmanager
def launch(root: Path, modules: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.holder", str(root), modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=TOP,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_second_launch_is_refused_and_told_who(tmp_path: Path) -> None:
    with launch(tmp_path, "0,1") as first:
        assert said(first) == "held"
        with pytest.raises(LaunchError) as caught, reserve((1, 2), tmp_path):
            pass
        assert (caught.value.id, caught.value.exit_code) == ("placement.reserved", ExitCode.MACHINE)
        assert f"pid {first.pid}" in str(caught.value)
        # all or none: module 2 was not left locked
        assert set(read_reserved(tmp_path)) == {0, 1}
        with reserve((2, 3), tmp_path):
            assert set(read_reserved(tmp_path)) == {0, 1, 2, 3}
    assert read_reserved(tmp_path) == {}


def test_looking_takes_nothing(tmp_path: Path) -> None:
    with reserve((4,), tmp_path):
        holder = read_reserved(tmp_path)[4]
        assert holder is not None and (holder.pid, holder.command) == (os.getpid(), "gaudi-launch")
        read_reserved(tmp_path)
    with launch(tmp_path, "4") as process:
        assert said(process) == "held"


def test_a_killed_launch_releases(tmp_path: Path) -> None:
    with launch(tmp_path, "5") as process:
        assert said(process) == "held"
        process.kill()
        process.wait()
        with reserve((5,), tmp_path):
            pass


def test_an_engine_that_outlives_the_launch_does_not_keep_the_lock(tmp_path: Path) -> None:
    with reserve((6,), tmp_path):
        child = subprocess.Popen(["sleep", "30"])
    try:
        assert read_reserved(tmp_path) == {}
    finally:
        child.kill()
        child.wait()


def test_lock_files_are_for_all_users(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        with reserve((0,), tmp_path):
            pass
    finally:
        os.umask(old)
    for folder in lock_folders(tmp_path):
        assert folder.stat().st_mode & 0o7777 == 0o1777
        assert (folder / "module-0.lock").stat().st_mode & 0o777 == 0o666


def test_one_usable_folder_is_enough(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with reserve((0,), tmp_path):
        assert set(read_reserved(tmp_path)) == {0}


def test_no_usable_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    (tmp_path / "tmp").write_text("")
    with pytest.raises(LaunchError) as caught, reserve((0,), tmp_path):
        pass
    assert (caught.value.id, caught.value.exit_code) == (
        "placement.no_lock_folder",
        ExitCode.MACHINE,
    )


def test_a_link_in_place_of_a_lock_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for folder in lock_folders(tmp_path):
        folder.mkdir(parents=True)
        (folder / "module-0.lock").symlink_to(victim)
    with pytest.raises(LaunchError) as caught, reserve((0,), tmp_path):
        pass
    assert caught.value.id == "placement.no_lock_folder"
    assert victim.read_text() == "precious"
    assert read_reserved(tmp_path) == {}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"pid": "x"}', '{"pid": true}', "[" * 100_000]
)
def test_a_lock_file_with_nonsense(text: str) -> None:
    assert read_holder(text) is None


def test_reserved_cards_show_as_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = link_tree("gaudi2e-4", tmp_path)
    use(monkeypatch, tmp_path, programs)
    with launch(tmp_path, "2,3") as process:
        assert said(process) == "held"
        host = load()
        assert host.free_modules == (0, 1)
        card = host.card(2)
        assert card is not None and (card.busy, card.busy_because) == (True, "reserved")
        assert [holder.pid for holder in card.holders] == [process.pid]
        with pytest.raises(LaunchError) as caught:
            choose(host, 4)
        assert f"2,3: gaudi-launch (pid {process.pid}" in str(caught.value)
    assert load().free_modules == (0, 1, 2, 3)


def test_launches_that_race_get_different_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five launches of two cards on a machine with eight: four get pairs, one is refused."""
    programs = link_tree("hls2+no-hl-smi", tmp_path)
    use(monkeypatch, tmp_path, programs)
    start, end = threading.Barrier(5), threading.Barrier(5)
    got: list[tuple[int, ...]] = []
    refused: list[str] = []

    def race() -> None:
        start.wait(GENEROUS)
        try:
            with claim(load, lambda host: choose(host, 2), tmp_path) as (placement, _):
                got.append(placement.modules)
                end.wait(GENEROUS)
        except LaunchError as error:
            refused.append(error.id)
            end.wait(GENEROUS)

    racers = [threading.Thread(target=race) for _ in range(5)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(GENEROUS)
    assert sorted(got) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    # it may have looked while the last pair was half taken
    assert refused in (["placement.none_free"], ["placement.too_few"])


def test_claim_gives_up_when_the_same_cards_stay_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservation, "_PAUSE_SECONDS", 0.0)
    host = load("simulated:hls2")
    again = claim(lambda: host, lambda h: choose(h, 1, (0,)), tmp_path)
    with reserve((0,), tmp_path), pytest.raises(LaunchError) as caught, again:
        pass
    assert caught.value.id == "placement.reserved"
