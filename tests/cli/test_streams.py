"""Terminals that show only ASCII: no command fails for a character, and drawings have
look-alikes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gaudi_launch.cli.streams import asks_for_ascii, is_utf, shows
from gaudi_launch.cli.table import COMMANDS
from tests.support.places import TOP

# variables that decide what a terminal shows; each case has only its own
DECIDING = (
    "LC_ALL",
    "LC_CTYPE",
    "LANG",
    "PYTHONIOENCODING",
    "PYTHONUTF8",
    "TERM",
    "GAUDI_LAUNCH_LANG",
    "NO_COLOR",
)
FORCED = (
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C"},
    {"LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
)
# what draws: tables, a bar, a heat map, progress
DRAWING = (
    "devices --machine simulated:hls2",
    "plan Qwen/Qwen3-8B -n 1 --machine simulated:hls2",
    "plan Qwen/Qwen3-8B -n 1 --machine simulated:hls2 --all",
    "doctor --machine simulated:hls2+bad-tuning",
    "warmup Qwen/Qwen3-8B -n 1 -i 64,512 -o 1,128 --machine simulated:hls2",
    "inspect Qwen/Qwen3-8B --all",
    "engines",
    "ps -a",
    "inspect",
    "cache list",
    "help",
    "setup cpu --dry-run",
)


def ran(
    words: list[str], place: Path, variables: dict[str, str]
) -> subprocess.CompletedProcess[bytes]:
    inherited = {name: value for name, value in os.environ.items() if name not in DECIDING}
    homes = {f"XDG_{kind}_HOME": str(place / kind) for kind in ("STATE", "DATA", "CONFIG", "CACHE")}
    return subprocess.run(
        [sys.executable, "-m", "gaudi_launch", *words],
        cwd=place,
        env={**inherited, **homes, **variables, "PYTHONPATH": str(TOP)},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("line", DRAWING)
def test_a_drawing_has_look_alikes(line: str, tmp_path: Path) -> None:
    done = ran(line.split(), tmp_path, {"LC_ALL": "C"})
    assert done.stdout.isascii() and done.stderr.isascii()
    assert b"itself failed" not in done.stderr and b"\\u" not in done.stdout


@pytest.mark.parametrize("variables", FORCED, ids=["encoding", "locale", "old locale"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_help_fails_for_a_character(
    language: str, variables: dict[str, str], tmp_path: Path
) -> None:
    # one process for all commands: each would take half a second
    program = (
        "import os, sys\nfrom gaudi_launch.cli import main, streams\n"
        "streams.prepare_streams(os.environ, english=sys.argv[1] == 'en')\n"
        f"lines = [[name, option] for name in {list(COMMANDS)!r} for option in ('--help', "
        "'--no-such')]\ncodes = {main.run([*line, '--lang', sys.argv[1]]) for line in lines}\n"
        "sys.exit(0 if codes == {0, 2} else 1)\n"
    )
    inherited = {name: value for name, value in os.environ.items() if name not in DECIDING}
    done = subprocess.run(
        [sys.executable, "-c", program, language],
        cwd=tmp_path,
        env={**inherited, "XDG_STATE_HOME": str(tmp_path), **variables, "PYTHONPATH": str(TOP)},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert b"itself failed" not in done.stderr


def test_chinese_is_english_where_the_encoding_has_no_chinese(tmp_path: Path) -> None:
    variables = {"PYTHONIOENCODING": "ascii", "GAUDI_LAUNCH_LANG": "zh"}
    assert ran(["serv"], tmp_path, variables).stderr.startswith(
        b"gaudi-launch: There is no command 'serv'."
    )
    gb = ran(["serv"], tmp_path, {"PYTHONIOENCODING": "gb18030", "GAUDI_LAUNCH_LANG": "zh"})
    assert "没有命令" in gb.stderr.decode("gb18030")


def test_json_has_escapes_where_the_encoding_lacks_a_character(tmp_path: Path) -> None:
    words = ["plan", "-w", "模型→/不存在😀", "--machine", "simulated:hls2", "--json"]
    done = ran(words, tmp_path, {"PYTHONIOENCODING": "ascii"})
    assert done.stdout.isascii()
    assert "模型→/不存在😀" in json.dumps(json.loads(done.stdout), ensure_ascii=False)


def test_a_name_keeps_its_bytes_in_the_locale_c(tmp_path: Path) -> None:
    done = ran(["status", "模型"], tmp_path, {"LC_ALL": "C"})
    assert "模型" in done.stderr.decode()
    # bytes that are no UTF-8 come back as they were typed
    odd = subprocess.run(
        [sys.executable, "-m", "gaudi_launch", "inspect", b"/x\xff"],
        env={
            **os.environ,
            "LC_ALL": "C.UTF-8",
            "XDG_STATE_HOME": str(tmp_path),
            "GAUDI_LAUNCH_LANG": "en",
        },
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert b"itself failed" not in odd.stderr
    assert b"/x\xff" in odd.stderr


@pytest.mark.parametrize(
    ("environment", "is_terminal", "expected"),
    [
        ({"LC_ALL": "C"}, False, True),
        ({"LANG": "POSIX"}, False, True),
        ({"LC_ALL": "C.UTF-8"}, True, False),
        ({"LC_ALL": "zh_CN.UTF-8", "LANG": "C"}, True, False),
        ({}, True, False),
        ({"TERM": "dumb"}, True, True),
        ({"TERM": "dumb"}, False, False),
        ({"LC_ALL": "C", "PYTHONIOENCODING": "utf-8"}, True, False),
        ({"LC_ALL": "C", "PYTHONUTF8": "1"}, True, False),
    ],
)
def test_the_locale_or_the_terminal_asks_for_ascii(
    environment: dict[str, str], is_terminal: bool, expected: bool
) -> None:
    assert asks_for_ascii(environment, is_terminal=is_terminal) is expected


def test_drawing_characters_become_ascii() -> None:
    target = io.BytesIO()
    stream = io.TextIOWrapper(target, encoding="ascii", errors="gaudi_launch.plain.escaped")
    stream.write("┌─┐│█▒… → ≤ é ⠋")
    stream.flush()
    assert target.getvalue() == b"+-+|#+... -> <= \\xe9 *"
    assert not is_utf(stream) and not shows(stream, "é") and shows(stream, "e")
