"""The checkers of rendered files, and systemd's own parser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.support.waiting import GENEROUS

_SYSTEMD = Path("/lib/systemd/systemd")
_NOBODY = 65534
# anything but text that no program can be given (NUL), and surrogates
_TRAPS = [
    "a b",
    "'",
    '"',
    "$HOME",
    "${X}",
    "$$",
    "`id`",
    "$(id)",
    "\\",
    "\\n",
    "#x",
    "%h",
    "%%",
    "中文",
    "*",
    "~",
]
_MORE = [
    "!",
    "&",
    ";",
    "é",
    "--a=b c",
    "a: b",
    "- x",
    "{}",
    "\u2028",
    "\ufeff",
    "-1",
    "no",
    "=",
    "",
    " ",
    "|",
    "a\nb",
]
ODD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30) | st.sampled_from(
    [*_TRAPS, *_MORE, "\n", "\t", "\U0001f600"]
)
NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{3,8}", fullmatch=True).map(lambda name: f"ODD_{name}")


def no_control(words: str) -> bool:
    """Return True if the text has no control characters that systemd rejects."""
    return not any((ord(mark) < 32 and mark not in "\t\n") or ord(mark) == 127 for mark in words)


def tool(name: str) -> str:
    """Return a program of the dev extra."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found is not None, f"{name} is not here: pip install '.[dev]'"
    return found


def shellcheck(*files: Path) -> None:
    """Check that shellcheck reports nothing, not even about style."""
    words = [tool("shellcheck"), "--severity=style", *map(str, files)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def quadlet() -> str:
    """Return podman's generator. Not everywhere: podman 4.4 and newer have it."""
    places = [os.environ.get("GAUDI_LAUNCH_TEST_QUADLET", ""), "/usr/libexec/podman/quadlet"]
    places += [
        "/usr/lib/podman/quadlet",
        "/usr/lib/systemd/system-generators/podman-system-generator",
    ]
    found = next((place for place in places if place and Path(place).exists()), None)
    if found is None:
        pytest.skip("no podman with Quadlet on this machine")
    return found


def generated(folder: Path, files: Mapping[str, str]) -> str:
    """Return the one service that Quadlet makes of these files."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    done = subprocess.run(
        [quadlet(), "-dryrun", "-no-kmsg-log"],
        env={**os.environ, "QUADLET_UNIT_DIRS": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "unsupported" not in done.stderr.lower(), done.stderr
    return done.stdout.partition("---\n")[2]


@dataclass(frozen=True)
class Loaded:
    """A unit as systemd understood it: every command by its key, and the variables."""

    commands: Mapping[str, Sequence[Sequence[str]]]
    environment: Mapping[str, str]


def loaded(unit: str) -> Loaded:
    """Let systemd itself read a unit (its test mode starts nothing).

    Skips where its test mode does not run.
    """
    if not _runs():
        pytest.skip("systemd's test mode does not run on this machine")
    return _load(unit)


@cache
def _runs() -> bool:
    if not _SYSTEMD.exists():
        return False
    try:
        return bool(_load("[Service]\nExecStart=/bin/true\n").commands)
    except AssertionError:
        return False


def _load(unit: str) -> Loaded:
    marked = unit.replace("[Service]\n", "[Service]\nEnvironment=AAA_FIRST=1\n", 1)
    marked = re.sub(
        r"(\[Service\]\n.*?)(\n\[|\Z)",
        r"\1\nEnvironment=ZZZ_LAST=1\n\2",
        marked,
        count=1,
        flags=re.S,
    )
    root = os.getuid() == 0
    # its test mode refuses root, and pytest's own folders are for their user only
    with tempfile.TemporaryDirectory() as name:
        folder, runtime = Path(name), Path(name) / "run"
        folder.chmod(0o755)
        (folder / "odd.service").write_text(marked, encoding="utf-8")
        runtime.mkdir()
        if root:
            os.chown(runtime, _NOBODY, _NOBODY)
        done = subprocess.run(
            [str(_SYSTEMD), "--test", "--user", "--unit=odd.service"],
            env={
                "HOME": name,
                "XDG_RUNTIME_DIR": str(runtime),
                "SYSTEMD_UNIT_PATH": f"{name}:/usr/lib/systemd/user",
                "LC_ALL": "C.UTF-8",
            },
            capture_output=True,
            user=_NOBODY if root else None,
            group=_NOBODY if root else None,
            extra_groups=[] if root else None,
            timeout=GENEROUS,
            check=False,
        )
    text = done.stdout.decode("utf-8", errors="surrogateescape")
    assert "-> Unit odd.service:" in text, (done.stderr, marked)
    assert b"odd.service:" not in done.stderr.replace(b"odd.service: Cannot add dependency", b""), (
        done.stderr
    )
    block = text.partition("-> Unit odd.service:\n")[2].partition("\n\t-> Unit ")[0]
    found = block.partition("\t\tEnvironment: AAA_FIRST=1\n")[2].partition(
        "\t\tEnvironment: ZZZ_LAST=1\n"
    )[0]
    pairs = [line.partition("=")[::2] for line in found.split("\t\tEnvironment: ")[1:]]
    commands: dict[str, list[list[str]]] = {}
    key = ""
    for line in block.split("\n"):
        if match := re.fullmatch(r"\t\t-> (Exec\w+):", line):
            key = match[1]
        if line.startswith("\t\t\tCommand Line: "):
            words = shell_words(line.removeprefix("\t\t\tCommand Line: "))
            # as it does when it runs them
            commands.setdefault(key, []).append([word.replace("$$", "$") for word in words])
    return Loaded(commands, {name: value.removesuffix("\n") for name, value in pairs})


def shell_words(line: str) -> list[str]:
    """Return the arguments of systemd's quoting of a command.

    It is shell_escape: double quotes, C escapes.
    """
    words: list[str] = []
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"|([^ ]+)', line):
        if match[2] is not None:
            words.append(match[2])
            continue
        raw = match[1].encode("utf-8", errors="surrogateescape")
        short = {
            b"n": b"\n",
            b"t": b"\t",
            b"a": b"\a",
            b"b": b"\b",
            b"f": b"\f",
            b"r": b"\r",
            b"v": b"\v",
        }

        def back(found: re.Match[bytes], short: dict[bytes, bytes] = short) -> bytes:
            escape = found[1]
            if escape[:1] == b"x":
                return bytes([int(escape[1:], 16)])
            if escape[:1].isdigit():
                return bytes([int(escape, 8)])
            return short.get(escape, escape)

        plain = re.sub(rb"\\(x[0-9a-f]{2}|[0-7]{3}|.)", back, raw, flags=re.S)
        words.append(plain.decode("utf-8"))
    return words
