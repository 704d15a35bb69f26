"""The page about the start scripts shows each script's options as the program reads them."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from gaudi_launch.app.fields import option_of
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.engines.vllm_fork.import_scripts import LETTERS, ScriptCall, request_of
from gaudi_launch.planning.request import Request

PAGE = Path(__file__).parents[3] / "docs" / "start-scripts.md"
RELEASES = ("1.21", "1.22", "deepseek_r1")
HELP = "h"
# a value that the script accepts; of the other options "7"
VALUES = {
    "--input": "64,128",
    "--output": "64,128",
    "--reduce": "8,1000",
    "--padding-limit": "0.2",
    "--memory-utilization": "0.7",
}


def rows() -> list[tuple[str, str, str]]:
    """Return release, letter and our option of each filled cell."""
    table = PAGE.read_text(encoding="utf-8").partition("| gaudi-launch |")[2].splitlines()[2:]
    found = []
    for line in table:
        ours, *letters, _ = [cell.strip(" `") for cell in line.split("|")[1:-1]]
        option = ours.split(", ")[-1]
        found += [
            (release, letter, option)
            for release, letter in zip(RELEASES, letters, strict=True)
            if letter
        ]
    return found


ROWS = rows()


@pytest.mark.parametrize("release", RELEASES)
def test_the_page_shows_every_letter_of_a_script(release: str) -> None:
    shown = {letter.removeprefix("-") for each, letter, _ in ROWS if each == release}
    assert shown == set(LETTERS[release].replace(":", "")) - {HELP}


def field_of(option: str) -> str:
    """Return the field of LaunchOptions, which a Request has too, that an option sets."""
    if option == "--":
        return "extra"
    return next(
        field.name
        for field in fields(LaunchOptions)
        if (known := option_of(field)) is not None and option in known.names
    )


def read(release: str, *words: str) -> Request:
    return request_of(ScriptCall(release, words, {}))


@pytest.mark.parametrize(("release", "letter", "option"), ROWS)
def test_a_letter_sets_the_shown_option_and_no_other(
    release: str, letter: str, option: str
) -> None:
    value = VALUES.get(option, "7")
    takes_value = f"{letter[1:]}:" in LETTERS[release]
    words = [letter, value] if takes_value else [letter]
    if (release, letter) == ("1.22", "-a"):
        words = [letter, {"--host": "node:", "--port": ":7"}[option]]
    base = ["-w", "/models/m"] if letter != "-w" else []
    with_it, without = read(release, *base, *words), read(release, "-w", "/models/m")
    # -i and -o leave the other one open
    with_it = replace(with_it, open_ranges=without.open_ranges)
    changed = {
        field.name
        for field in fields(Request)
        if getattr(with_it, field.name) != getattr(without, field.name)
    }
    assert changed == {field_of(option)}
