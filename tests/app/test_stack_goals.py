"""Goals of a stack: the cards that remain are divided once, and a choice stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.app import stack_goals
from gaudi_launch.app.report import Silent
from gaudi_launch.app.stack_plan import StackPlan
from gaudi_launch.cli.views.stack import to_json
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.recommend import finder
from gaudi_launch.stack.stack_file import GoalChoice, parse_stack
from gaudi_launch.stack.stack_record import (
    StackRecord,
    goal_hash,
    held,
    read_record,
    write_record,
)

pytestmark = pytest.mark.usefixtures("plain_english", "own_folders")

HEAD = "schema: 1\nmodels:\n"
# few configurations to search: one type of weights, one batch
SMALL = "options: {cards: 1, dtype: bf16, max-num-seqs: 32, max-prefill-seqs: 1, \
max-num-batched-tokens: 2048}"
GOAL = f"- name: a\n  model: Qwen/Qwen3-8B\n  for: throughput\n  {SMALL}\n"
OTHER = f"- name: b\n  model: Qwen/Qwen3-8B\n  for: throughput\n  {SMALL}\n"
FIXED = "- name: c\n  model: Qwen/Qwen3-8B\n  replicas: 3\n  options: {cards: 1}\n"


def written(folder: Path, content: str) -> Path:
    path = folder / "site.yaml"
    path.write_text(HEAD + content, encoding="utf-8")
    return path


def divided(folder: Path, content: str, machine: str = "simulated:hls2") -> StackPlan:
    return stack_goals.recommend(written(folder, content), machine, Silent())


def cards_of(planned: StackPlan) -> dict[str, int]:
    """Return the cards of each model; none is used twice."""
    used = [module for each in planned.services for module in each.modules]
    assert len(set(used)) == len(used)
    found: dict[str, int] = {}
    for each in planned.services:
        found[each.model.name] = found.get(each.model.name, 0) + len(each.modules)
    return found


def test_a_goal_gets_all_cards_that_other_models_leave(tmp_path: Path) -> None:
    planned = divided(tmp_path, GOAL + FIXED)
    assert cards_of(planned) == {"a": 5, "c": 3}
    choice = planned.stack.choices["a"]
    options = {each.key: each.value for each in choice.options}
    assert (choice.replicas, options["max-model-len"], options["input"]) == (5, "1280", "1,1024")
    [goal] = to_json(planned)["goals"]
    assert (goal["model"], goal["goal"], goal["cards"]) == ("a", "throughput", 5)
    assert goal["tokens_per_second"] > 0


def test_goals_without_a_load_share_the_cards_alike(tmp_path: Path) -> None:
    assert cards_of(divided(tmp_path, GOAL + OTHER)) == {"a": 4, "b": 4}


def test_a_rate_gets_the_fewest_cards_and_the_others_the_rest(tmp_path: Path) -> None:
    rate = OTHER.replace("for: throughput", "rate: 1/s\n  e2e: 60s")
    assert cards_of(divided(tmp_path, GOAL + rate)) == {"a": 7, "b": 1}


def test_only_free_cards_are_divided(tmp_path: Path) -> None:
    planned = divided(tmp_path, GOAL, "simulated:hls2+busy=0,1,2,3,4,5")
    assert [each.modules for each in planned.services] == [(6,), (7,)]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (FIXED + GOAL.replace("for: throughput", "ttft: 1us"), 7),
        (GOAL.replace("for: throughput", "rate: 100000/s"), 3),
        (GOAL.replace("Qwen/Qwen3-8B", "meta-llama/Llama-3.1-70B-Instruct"), 3),
        (FIXED.replace("replicas: 3", "replicas: 8") + GOAL, 7),
        (GOAL.replace("for: throughput", "rate: fast"), 3),
        (GOAL.replace("for: throughput", "rate: 1/s\n  concurrency: 2"), 3),
        (GOAL.replace("for: throughput", "trace: none.csv"), 3),
    ],
)
def test_a_goal_that_cannot_be_met_names_its_line(content: str, line: int, tmp_path: Path) -> None:
    with pytest.raises(LaunchError) as raised:
        divided(tmp_path, content)
    assert raised.value.text.values.get("line") == line, str(raised.value)


def test_without_goals_there_is_nothing_to_divide(tmp_path: Path) -> None:
    with pytest.raises(LaunchError) as raised:
        divided(tmp_path, FIXED)
    assert (raised.value.id, raised.value.exit_code) == ("stack.no_goals", ExitCode.USAGE)


def test_a_recorded_choice_stays_until_the_goal_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = parse_stack(HEAD + GOAL, tmp_path / "site.yaml")
    [model] = stack.models
    choice = GoalChoice(goal_hash(model), "throughput", 2, model.options[:1], ("--seed", "1"))
    record = StackRecord("site", "", {}, {}, {"a": choice})
    with held("site"):
        write_record(record)

    assert read_record("site") == record
    monkeypatch.setattr(finder, "find", lambda *words: pytest.fail("a search"))
    found = stack_goals.resolved(stack, record, Silent())
    assert (found.models[0].replicas, found.models[0].engine_arguments) == (2, ("--seed", "1"))
    other = parse_stack((HEAD + GOAL).replace("throughput", "latency"), tmp_path / "site.yaml")
    assert goal_hash(other.models[0]) != choice.of
