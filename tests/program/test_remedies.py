"""What to do next is a command that works: changes of a refusal, and the line of `inspect`."""

from __future__ import annotations

import random
import re
import shlex

import pytest

from tests.support.cli import output
from tests.support.every_case import examples

pytestmark = pytest.mark.usefixtures("plain_english")

MODELS = ("Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B-Instruct", "deepseek-ai/DeepSeek-R1")
# ours and the engine's after --, with values of which most are too small or too large
FORMS = (
    ("-n", "--tensor-parallel-size", ("1", "2", "8", "16", "7")),
    ("-l", "--max-model-len", ("4096", "32000", "40000", "200000")),
    ("--memory-utilization", "--gpu-memory-utilization", ("0.05", "0.15", "0.9")),
)


def drawn(chance: random.Random) -> tuple[list[str], list[str]]:
    """Return our options and those of the engine, one of each form."""
    ours = [chance.choice(MODELS), "--machine", chance.choice(("gaudi2", "gaudi3"))]
    theirs: list[str] = []
    for own, engines, values in FORMS:
        given = (chance.choice((own, engines)), chance.choice(values))
        (ours if given[0] == own else theirs).extend(given)
    return ours, theirs


def changed(words: list[str], remedy: list[str]) -> list[str]:
    """Return a list of options with those of a remedy in place of its own."""
    kept = list(words)
    for name in remedy[::2]:
        if name in kept:
            del kept[kept.index(name) : kept.index(name) + 2]
    return kept


def test_each_change_that_fits_does(capsys: pytest.CaptureFixture[str]) -> None:
    chance, tried = random.Random(17), 0
    for _ in range(examples(12, 60)):
        ours, theirs = drawn(chance)
        _, _, err = output(capsys, "plan", *ours, "--", *theirs)
        for own, engines, _ in FORMS:
            if engines in theirs:
                assert re.search(rf"(?<![\w-]){own}\b", err) is None, err
        _, found, listed = err.partition("A change that fits: ")
        if not found or listed.startswith("a machine"):
            continue
        for each in listed.partition(". (")[0].split(", "):
            remedy = each.split()
            is_theirs = remedy[0] in theirs
            more, after = (([], remedy), (remedy, []))[not is_theirs]
            words = [*changed(ours, remedy), *more, "--", *changed(theirs, remedy), *after]
            code, _, refused = output(capsys, "plan", *words)
            assert code == 0, f"{ours} {theirs}: {each}: {refused}"
            tried += 1
    assert tried >= 5


def test_the_next_command_serves_what_was_asked(capsys: pytest.CaptureFixture[str]) -> None:
    chance, served = random.Random(3), 0
    for _ in range(examples(8, 40)):
        given = {
            "--engine": chance.choice(("", "", "vllm-fork@1.22", "deepseek_r1")),
            "-l": chance.choice(("", "4096", "16k")),
            "-b": chance.choice(("", "16")),
        }
        options = [word for pair in given.items() if pair[1] for word in pair]
        words = (chance.choice(MODELS), "--machine", chance.choice(("gaudi2", "gaudi3")), *options)
        code, out, _ = output(capsys, "inspect", *words)
        found = [line for line in out.splitlines() if line.startswith("next: ")]
        if code or not found:
            continue
        command = shlex.split(found[0].removeprefix("next: "))
        assert [word for word in options if word not in command] == []
        code, _, refused = output(capsys, "plan", *command[2:], *words[1:3])
        assert code == 0, f"{words}: {found[0]}: {refused}"
        served += 1
    assert served >= 3
