"""Questions to hl-smi: what is run, what is asked next, and what an answer without cards means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gaudi_launch.host import hl_smi
from gaudi_launch.host.hl_smi import CARD_FIELDS, HlSmi, HlSmiOutput
from gaudi_launch.host.hl_smi_text import Affinity, HlSmiRow, LogCard, Table

WIDE, SHORT, LEAST = (f"-Q {','.join(fields)} -f csv" for fields in CARD_FIELDS)
NAME = "-Q name -f csv"
HANGS = HlSmiOutput("", "it hangs", timed_out=True)


@dataclass
class Answers:
    """An hl-smi with fixed answers; all others are problems."""

    known: dict[str, HlSmiOutput]
    asked: list[str] = field(default_factory=list)

    def __call__(self, arguments: Sequence[str]) -> HlSmiOutput:
        self.asked.append(" ".join(arguments))
        return self.known.get(self.asked[-1], HlSmiOutput("", "not known"))


def session(known: dict[str, str | HlSmiOutput]) -> tuple[HlSmi, list[str]]:
    outputs = {
        name: HlSmiOutput(answer) if isinstance(answer, str) else answer
        for name, answer in known.items()
    }
    answers = Answers(outputs)
    return HlSmi(answers), answers.asked


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    def write(script: str) -> str:
        path = tmp_path / "hl-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return write


def test_a_program_gets_its_arguments_and_a_folder_for_its_logs(
    program: Callable[[str], str],
) -> None:
    path = program(
        'echo "$@" $ENABLE_CONSOLE; touch "$HABANA_LOGS/a" && echo "$HABANA_LOGS"; echo no >&2; '
        "read line || printf 'end\\033\\t'"
    )
    found = hl_smi.run(path, ["topo", "-c"])
    lines = found.text.splitlines()
    assert (lines[0], lines[2], found.problem, found.timed_out) == (
        "topo -c false",
        "end?\t",
        None,
        False,
    )
    assert Path(lines[1]).name.startswith("gaudi-launch-hl-smi-")
    assert not Path(lines[1]).exists()


@pytest.mark.parametrize(
    ("script", "text", "problem"),
    [
        ("exit 3", "", "'hl-smi -L' ended with exit code 3"),
        (
            "echo one; echo ' two '; exit 1",
            "one\n two \n",
            "'hl-smi -L' ended with exit code 1: two",
        ),
    ],
)
def test_an_exit_code_is_a_problem_with_the_last_line(
    script: str, text: str, problem: str, program: Callable[[str], str]
) -> None:
    assert hl_smi.run(program(script), ["-L"]) == HlSmiOutput(text, problem)


def test_a_long_last_line_is_cut(program: Callable[[str], str]) -> None:
    path = program(f"echo {'x' * 200}; exit 1")
    problem = hl_smi.run(path, []).problem
    assert problem == "'hl-smi' ended with exit code 1: " + "x" * 120


def test_a_program_that_hangs_is_ended_with_what_it_started(
    program: Callable[[str], str], tmp_path: Path
) -> None:
    path = program(f"echo begun; sleep 60 & echo $! > {tmp_path}/pid; wait")
    found = hl_smi.run(path, ["-L"], seconds=0.3)
    assert found == HlSmiOutput(
        "begun\n", "'hl-smi -L' gave no answer within 0.3 s", timed_out=True
    )
    assert found.content == ""


def test_a_program_that_cannot_be_run_is_a_problem(tmp_path: Path) -> None:
    assert hl_smi.run(str(tmp_path / "none"), ["-L"]) == HlSmiOutput(
        problem="'hl-smi -L' cannot be run: No such file or directory"
    )


def test_the_program_is_the_one_on_path(
    program: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program('echo "asked $1"')
    monkeypatch.setenv("PATH", str(Path(path).parent))
    ask = hl_smi.find()
    assert ask is not None and ask(["-L"]) == HlSmiOutput("asked -L\n")
    monkeypatch.setenv("PATH", "/nowhere")
    assert hl_smi.find() is None


def test_a_table_without_cards_is_a_problem() -> None:
    table = "| 3  HL-225  N/A | 0000:19:00.0  N/A | 0 |\n"
    talk, _ = session({"": table})
    assert talk.table() == Table(
        rows=(HlSmiRow(3, "HL-225", "0000:19:00.0", uncorrectable_events=0),)
    )
    assert (talk.problems, talk.hangs) == ({}, False)
    talk, _ = session({"": "nothing"})
    assert talk.table() is None
    assert talk.problems == {"hl-smi table": "'hl-smi' printed no card"}
    talk, _ = session({"": HANGS})
    assert talk.table() is None
    assert (talk.problems, talk.hangs) == ({"hl-smi table": "it hangs"}, True)


def test_fewer_fields_are_asked_for_where_a_release_lacks_some() -> None:
    talk, asked = session({SHORT: "index, module_id\n0, 3\nno, 4\n"})
    assert talk.cards() == ({"index": "0", "module_id": "3"},)
    assert (asked, talk.problems) == ([WIDE, SHORT], {})


def test_cards_without_modules_are_those_of_the_widest_answer() -> None:
    talk, asked = session(
        {WIDE: "index, name\n0, HL-225\n", SHORT: "index, bus_id\n0, a\n", LEAST: "index\n0\n"}
    )
    assert talk.cards() == ({"index": "0", "name": "HL-225"},)
    assert asked == [WIDE, SHORT, LEAST]
    assert talk.problems == {"hl-smi -Q": "'hl-smi -Q index,module_id' listed no module"}


def test_after_an_answer_that_hangs_only_the_shortest_is_asked() -> None:
    talk, asked = session({WIDE: HANGS, LEAST: "index, module_id\n0, 3\n"})
    assert talk.cards() == ({"index": "0", "module_id": "3"},)
    assert (asked, talk.problems) == ([WIDE, LEAST], {})
    talk, _ = session({WIDE: HANGS})
    assert talk.cards() == ()
    assert talk.problems == {"hl-smi -Q": "not known"}


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ("name\nHL-225\nHL-225\n", "HL-225"),
        ("name\nHL-225\nHL-288\n", None),
        ("name\nHL-225\nother\n", "HL-225"),
        ("name\nother\n", None),
        ("module\nHL-225\n", None),
        (HANGS, None),
    ],
)
def test_a_name_is_that_of_all_cards(answer: str | HlSmiOutput, name: str | None) -> None:
    talk, asked = session({NAME: answer})
    assert (talk.name(), asked) == (name, [NAME])


def test_the_other_questions_and_their_problems() -> None:
    talk, asked = session(
        {
            "-L": "[2] AIP (accel2) 0000:19:00.0\n",
            "-n link -i 0000:19:00.0": "port 1: UP\nport 2: DOWN\n",
            "topo -c -N": "modID CPU Affinity NUMA Affinity\n3 0-3 1\n",
        }
    )
    assert [each.index for each in talk.log()] == [2]
    assert isinstance(talk.log()[0], LogCard)
    assert talk.links("0000:19:00.0") == {1: "UP", 2: "DOWN"}
    assert talk.topo() == (Affinity(3, ((0, 3),), 1),)
    assert asked == ["-L", "-L", "-n link -i 0000:19:00.0", "topo -c -N"]
    assert talk.problems == {}
    talk, _ = session({"topo -c -N": "nothing"})
    assert talk.topo() == ()
    assert talk.problems == {"hl-smi topo": "'hl-smi topo -c -N' listed no module"}
    talk, _ = session({})
    assert (talk.topo(), talk.log(), talk.links("a")) == ((), (), {})
    assert talk.problems == {"hl-smi topo": "not known"}
