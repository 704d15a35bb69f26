"""The package of docs/extending.md: a command, an engine and a target, used by the program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import TOP

pytestmark = pytest.mark.usefixtures("own_folders")

ENGINE = ("Qwen/Qwen3-8B", "--engine", "echo", "--machine", "simulated:hls2", "-n", "1")


def written(page: str) -> dict[str, str]:
    """Return the files of a page by the name in their first line."""
    text = (TOP / "docs" / page).read_text(encoding="utf-8")
    return dict(re.findall(r"```\w+\n# (\S+)\n(.*?)```", text, re.DOTALL))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The page's package as pip installs it; no package can be built without a network."""
    files, folder = written("extending.md"), tmp_path / "installed"
    facts = folder / "gaudi_launch_hello-1.dist-info"
    facts.mkdir(parents=True)
    (folder / "gaudi_hello.py").write_text(files["gaudi_hello.py"], encoding="utf-8")
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: gaudi-launch-hello\nVersion: 1\n")
    tables = re.findall(r'entry-points\."(\S+)"\]\n(.*?)\n\n', files["pyproject.toml"], re.DOTALL)
    lines = [f"[{name}]\n{rows.replace(chr(34), '')}\n" for name, rows in tables]
    (facts / "entry_points.txt").write_text("".join(lines))
    return folder


def ran(folder: Path, *words: str) -> tuple[int, str, str]:
    """Return the exit code and the output of the program with the package in this folder."""
    path = os.pathsep.join((str(folder), str(TOP)))
    done = subprocess.run(
        [sys.executable, "-m", "gaudi_launch", *words, "--lang", "en"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_package_adds_a_command_an_engine_and_a_target(package: Path) -> None:
    assert ran(package, "hello", "world") == (0, "Hello, world.\n", "")
    for name, *words in (("hello", "--help-all"), ("note", "render", "--help")):
        page = ran(package, *words)[1]
        assert re.search(rf"^ *{name} +From the package gaudi-launch-hello\.$", page, re.M)
    code, page, _ = ran(package, "plan", *ENGINE, "--json")
    assert (code, json.loads(page)["engine"]["name"]) == (0, "echo")
    code, note, _ = ran(package, "render", "note", *ENGINE)
    assert (code, note) == (0, "/bin/echo --model Qwen/Qwen3-8B --port 30001\n")
    shutil.rmtree(package)
    codes = [ran(package, *words)[0] for words in (("hello",), ("render", "note"))]
    assert (codes, ran(package, "plan", *ENGINE)[0]) == ([2, 2], 2)


def test_what_cannot_be_imported_or_has_our_name_breaks_nothing_else(package: Path) -> None:
    (package / "gaudi_hello.py").write_text("import not_there\n")
    facts = next(package.glob("*.dist-info")) / "entry_points.txt"
    facts.write_text(facts.read_text().replace("hello =", "ps = gaudi_hello:ps\nhello ="))
    for words in (("hello",), ("render", "note", *ENGINE), ("plan", *ENGINE)):
        code, _, err = ran(package, *words)
        assert (code, "which cannot be imported: ModuleNotFoundError" in err) == (1, True)
    assert ran(package, "ps") == (0, ran(package.parent, "ps")[1], "")
    code, _, err = ran(package, "--help-all")
    assert (code, "gaudi-launch-hello has another 'ps', which is not used" in err) == (0, True)


def test_both_pages_have_the_same_package() -> None:
    assert written("extending.md") == written("extending_zh.md")
