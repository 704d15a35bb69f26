"""Completion through the shells' protocol: values of options and arguments, without asking the
machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gaudi_launch.cli import completion
from gaudi_launch.cli.completion import TypedWords, joined_words, values_of
from gaudi_launch.core.engines.entries import names
from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.host.simulated import NAMES
from gaudi_launch.core.planning.profiles import profiles
from tests.support.help_texts import all_commands
from tests.support.machines import write_stub

MACHINES = [f"simulated:{name}" for name in NAMES]
# programs that a completion may not start
PROGRAMS = ("hl-smi", "docker", "kubectl", "ssh", "python3")


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    """Return variables of a user with two services and one downloaded model; whatever is started
    leaves a file."""
    services = tmp_path / "state/gaudi-launch/services"
    for name, phase in (("demo", "ready"), ("qwen", "failed")):
        (services / name).mkdir(parents=True)
        (services / name / "state.json").write_text(json.dumps({"name": name, "phase": phase}))
    model = tmp_path / "data/gaudi-launch/models/me/own"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    own = tmp_path / "config/gaudi-launch/profiles"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("schema: 1\nname: mine\nmodels:\n  - me/tuned\n")
    for program in PROGRAMS:
        write_stub(
            tmp_path / "bin" / program,
            {},
            otherwise=f"open({str(tmp_path / 'started')!r}, 'w').close()",
        )
    homes = {
        f"XDG_{kind}_HOME": str(tmp_path / kind.lower())
        for kind in ("STATE", "DATA", "CONFIG", "CACHE")
    }
    return {
        **os.environ,
        **homes,
        "PATH": str(tmp_path / "bin"),
        "HOME": str(tmp_path),
        "GAUDI_LAUNCH_LANG": "en",
    }


def completed(environment: dict[str, str], line: str, shell: str = "bash") -> list[str]:
    """Return what a shell gets for a line; for bash split as it splits: at ``:``, ``@`` and
    ``=``."""
    if shell == "bash":
        for mark in ":@=":
            line = line.replace(mark, f"\n{mark}\n")
        words = [
            word for part in line.split(" ") for word in part.split("\n") if word or part == ""
        ]
        variables = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    else:
        variables = {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(
        [sys.executable, "-m", "gaudi_launch"],
        env={**environment, **variables, "_GAUDI_LAUNCH_COMPLETE": f"complete_{shell}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert not Path(environment["HOME"], "started").exists()
    return done.stdout.split()


BASH = {
    "gaudi-launch se": ["serve", "setup"],
    "gaudi-launch render qu": ["quadlet"],
    "gaudi-launch status ": ["demo", "qwen"],
    "gaudi-launch bench q": ["qwen"],
    "gaudi-launch logs d": ["demo"],
    "gaudi-launch stop demo q": ["qwen"],
    "gaudi-launch kube logs ": [],
    "gaudi-launch plan --engine ": list(names()),
    "gaudi-launch plan --engine=tgi": [name for name in names() if name.startswith("tgi")],
    "gaudi-launch plan --engine vllm-fork@1.2": ["@1.21", "@1.22"],
    "gaudi-launch plan --machine ": MACHINES,
    "gaudi-launch inspect m --machine ": [*MACHINES, *accelerators()],
    "gaudi-launch plan --machine simulated:h": ["hls2"],
    "gaudi-launch plan --machine=simulated:": list(NAMES),
    "gaudi-launch devices --machine s": MACHINES,
    "gaudi-launch profiles show mine": ["mine"],
    "gaudi-launch profiles show mixtral-8x7": ["mixtral-8x7b"],
    "gaudi-launch serve me/": ["me/own", "me/tuned"],
    "gaudi-launch serve -w dem": ["demo"],
    "gaudi-launch plan /models/": [],
    "gaudi-launch --lang ": ["en", "zh"],
    "gaudi-launch devices pick --format m": ["modules"],
    "gaudi-launch setup r": ["ray", "ray-serve"],
    "gaudi-launch doctor --only ne": ["network"],
    "gaudi-launch ps --js": ["--json"],
    "gaudi-launch serve --help": ["--help-all", "--help"],
}


@pytest.mark.parametrize("line", BASH)
def test_bash_gets_values(line: str, place: dict[str, str]) -> None:
    assert completed(place, line) == BASH[line]


def test_fish_and_zsh_get_the_phase_of_a_service_too(place: dict[str, str]) -> None:
    assert completed(place, "gaudi-launch status d", "fish") == ["demo", "ready"]
    assert '"demo":"ready"' in " ".join(completed(place, "gaudi-launch status d", "zsh"))
    # a straight apostrophe would end the word of zsh
    assert '"--launcher":"The launcher\u02bcs log."' in " ".join(
        completed(place, "gaudi-launch logs --l", "zsh")
    )


def test_a_damaged_state_hides_no_service(place: dict[str, str]) -> None:
    state = Path(place["XDG_STATE_HOME"], "gaudi-launch/services/demo/state.json")
    for content in ("[]", "{", "\x00"):
        state.write_text(content)
        assert completed(place, "gaudi-launch status ") == ["demo", "qwen"]


def test_every_option_of_a_kind_has_values() -> None:
    without = [
        (found.path, param.opts)
        for found in all_commands()
        for param in found.command.params
        if {"--engine", "--machine", "--accelerator", "--weights"} & {*param.opts}
        and values_of(param.opts, param.metavar or "", found.command.callback.__module__) is None
    ]
    assert without == []


def test_every_argument_for_a_service_a_model_or_a_profile_has_values() -> None:
    without = [
        (found.path, param.metavar)
        for found in all_commands()
        for param in found.command.params
        if param.param_type_name == "argument"
        and any(
            word in str(param.metavar).partition("[--")[0]
            for word in ("NAME", "MODEL", "SERVICE", "ENGINE")
        )
        and not found.path.startswith("kube")
        and values_of(param.opts, str(param.metavar), found.command.callback.__module__) is None
    ]
    assert without == []


def test_the_quick_reading_of_profiles_finds_what_yaml_finds() -> None:
    assert {each.value for each in completion.accelerators()} == set(accelerators())
    assert {each.value for each in completion.profiles()} == {
        profile.name for profile in profiles()
    }
    listed = {hub_id for profile in profiles() for hub_id in profile.models}
    assert listed <= {each.value for each in completion.models()}


@pytest.mark.parametrize(
    ("words", "position", "expected"),
    [
        (
            ["g", "plan", "--machine", "simulated", ":"],
            4,
            TypedWords(("g", "plan", "--machine", "simulated:"), 3, 10),
        ),
        (["g", "plan", "--engine", "="], 3, TypedWords(("g", "plan", "--engine", ""), 3)),
        (["g", "serve"], 2, TypedWords(("g", "serve", ""), 2)),
        (["g", "serve", "x", "y"], 1, TypedWords(("g", "serve"), 1)),
    ],
)
def test_words_that_bash_took_apart_are_put_together(
    words: list[str], position: int, expected: TypedWords
) -> None:
    assert joined_words(words, position) == expected
