"""A start script's command line is read as the script reads it, or refused."""

from __future__ import annotations

import shlex

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.planning.request import Request
from gaudi_launch.extensions.migrate.import_scripts import (
    ScriptCall,
    read_call,
    request_of,
)
from gaudi_launch.extensions.migrate.start_command import split_shell
from tests.support.refusals import refused

RELEASES = ("1.21", "1.22", "deepseek_r1")


def read(release: str, *words: str) -> Request:
    return request_of(ScriptCall(release, words, {}))


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
    text = f"export A=1; nohup {shlex.join(FORK_CALL)} -n 2 2>&1 | tee log"
    found = read_call(split_shell(text))
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
    with refused("migrate.no_model", ExitCode.USAGE, release="1.21"):
        read("1.21", "-n", "1")
    with refused("migrate.release", ExitCode.USAGE, found="1.20", known=", ".join(RELEASES)):
        read_call(["-w", "/m"], "1.20")
    with refused("migrate.unknown", ExitCode.USAGE, found="-w /m -Y"):
        read_call(["-w", "/m", "-Y"])
    assert read("deepseek_r1").model == "/data/hf_models/DeepSeek-R1-Gaudi"
