"""The page about the start scripts shows each script's options as the program reads them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import option_of
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host import simulated
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from gaudi_launch.extensions.migrate.import_scripts import (
    LETTERS,
    ScriptCall,
    read_call,
    request_of,
)
from tests.support.places import TOP

PAGE = TOP / "docs" / "start-scripts.md"
RELEASES = ("1.21", "1.22", "deepseek_r1")
ENGINES = ("vllm-gaudi", "vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1")
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
    changed = {
        field.name
        for field in fields(Request)
        if getattr(with_it, field.name) != getattr(without, field.name)
    }
    assert changed == {field_of(option)}


FORK_CALL = ["bash", "/s/start_gaudi_vllm_server.sh", "-w", "/m/x"]


@pytest.mark.parametrize(
    ("words", "release", "folder"),
    [
        (["-w", "/m/DeepSeek-R1"], "deepseek_r1", ""),
        (["-w", "/m/DeepSeek-R1-Distill-Llama-8B"], "1.21", ""),
        (["-w", "/m/x"], "1.21", ""),
        (["./start_vllm.sh", "-w", "/m/x"], "deepseek_r1", "."),
        ([*FORK_CALL, "-n", "2"], "1.21", "/s"),
        # -t is a number of cards for 1.22 and of tokens for 1.21
        ([*FORK_CALL, "-t", "8"], "1.22", "/s"),
        ([*FORK_CALL, "-t", "64"], "1.22", "/s"),
        ([*FORK_CALL, "-t", "65"], "1.21", "/s"),
        ([*FORK_CALL], "1.21", "/s"),
        ([*FORK_CALL, "-x", "4"], "1.22", "/s"),
    ],
)
def test_the_release_is_that_of_the_script_or_of_its_options(
    words: list[str], release: str, folder: str
) -> None:
    found = read_call(words)
    assert (found.release, found.folder) == (release, folder)
    assert read_call(words, "1.22").release == "1.22"


def test_variables_and_the_end_of_a_command_are_not_options() -> None:
    words = ["A=1", "nohup", *FORK_CALL, "-n", "2", "2>&1", "|", "tee", "log"]
    found = read_call(words)
    assert found == ScriptCall("1.21", ("-w", "/m/x", "-n", "2"), {"A": "1"}, "/s")


@pytest.mark.parametrize(
    ("release", "words", "expected"),
    [
        ("1.21", ("-n", "65"), message("plan.number", flag="-n", found="65", least=1, most=64)),
        ("1.21", ("-n", "0"), message("plan.number", flag="-n", found="0", least=1, most=64)),
        ("1.21", ("x",), message("migrate.left_over", found="x", release="1.21")),
        ("1.21", ("-h",), message("migrate.only_help")),
    ],
)
def test_what_a_script_would_refuse_is_refused(
    release: str, words: tuple[str, ...], expected: Message
) -> None:
    with pytest.raises(LaunchError) as caught:
        read(release, "-w", "/m/x", *words)
    assert (caught.value.exit_code, caught.value.text) == (ExitCode.USAGE, expected)


def test_a_script_without_a_model_or_of_another_release_is_refused() -> None:
    with pytest.raises(LaunchError) as caught:
        read("1.21", "-n", "1")
    assert caught.value.text == message("migrate.no_model", release="1.21")
    with pytest.raises(LaunchError) as caught:
        read_call(["-w", "/m"], "1.20")
    assert caught.value.text == message("migrate.release", found="1.20", known=", ".join(RELEASES))
    with pytest.raises(LaunchError) as caught:
        read_call(["-w", "/m", "-Y"])
    assert caught.value.text == message("migrate.unknown", found="-w /m -Y")
    assert read("deepseek_r1").model == "/data/hf_models/DeepSeek-R1-Gaudi"


@pytest.mark.parametrize("page", [PAGE, PAGE.with_name("start-scripts_zh.md")], ids=str)
def test_the_page_has_the_defaults_of_the_plans(page: Path) -> None:
    table = page.read_text(encoding="utf-8").partition("| vllm-gaudi |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    for column, engine in enumerate(ENGINES):
        made = make_plan(
            Request("Qwen/QwQ-32B", cards=8, engine=engine),
            simulated.make("hls2"),
            known_model("Qwen/QwQ-32B", False),
            find(engine),
        )
        planned = {setting.name: setting.value for setting in made.settings}
        for option, *values in rows:
            assert planned[option.strip("`")] == values[column]
