"""``inspect`` without a model: which models fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.commands.inspect.fit import InspectOptions, fit
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.profiles import own_dir, shipped_dir
from tests.support.cli import output

pytestmark = pytest.mark.usefixtures("plain_english")

# on none, eight, four, two cards and one; of three engines
SAMPLE = (
    "meta-llama/Meta-Llama-3.1-405B",
    "deepseek-ai/DeepSeek-R1",
    "openai/gpt-oss-120b",
    "meta-llama/Llama-3.1-70B-Instruct",
    "Qwen/Qwen3-32B",
)


def test_the_models_that_fit_are_those_of_their_own_pages(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shipped = (shipped_dir() / "qwq-32b.yaml").read_text(encoding="utf-8")
    own_dir().mkdir(parents=True)
    text = shipped.replace("name: qwq-32b", "name: my-qwq")
    (own_dir() / "mine.yaml").write_text(text, encoding="utf-8")
    code, out, _ = output(capsys, "inspect", "--machine", "simulated:hls2", "--json")
    document = json.loads(out)
    assert (code, document["accelerator"], document["cards"]) == (0, "gaudi2", 8)
    found = {each["model"]: each["smallest_n"] for each in document["models"]}
    expected = {}
    for name in SAMPLE:
        options = InspectOptions(name, accelerator="gaudi2", complete=False)
        expected[name] = fit(known_model(name, must_exist=False), options).table.smallest_n
    assert sorted(map(str, expected.values())) == ["1", "2", "4", "8", "None"]
    assert {name: found[name] for name in SAMPLE} == expected
    names = sorted([*(path.stem for path in shipped_dir().glob("*.yaml")), "my-qwq"])
    assert sorted(each["profile"] for each in document["models"]) == names
    assert [each["profile"] for each in document["models"] if each["own"]] == ["my-qwq"]


def test_the_answer_is_the_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(capsys, "inspect", "-n", "1")
    lines = out.splitlines()
    assert (code, lines[0]) == (0, "42 of 60 models with a profile fit on 1 Gaudi2 card.")
    assert lines[1] == "This machine has no Gaudi card: these are the cards of a server."


def test_cards_of_another_maker_have_no_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = output(capsys, "inspect", "--machine", "inf2")
    assert (code, "inf2.48xlarge" in err) == (2, True)
