"""Goals of a stack: the cards that remain are divided once, and a choice stays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import stack_goals
from gaudi_launch.app.recommend import RecommendOptions
from gaudi_launch.app.report import Silent
from gaudi_launch.app.stack_plan import StackPlan
from gaudi_launch.cli.views.stack import to_json
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.simulated import make
from gaudi_launch.recommend import finder
from gaudi_launch.stack.stack_file import GoalChoice, parse_stack
from gaudi_launch.stack.stack_record import (
    StackRecord,
    goal_hash,
    held,
    read_record,
    write_record,
)
from tests.support.refusals import refused

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


# --- the division without a search ---------------------------------------------------------------


def trial(score: float, cards: int, replicas: int = 1) -> Any:
    served = SimpleNamespace(cards=cards, replicas=replicas)
    return SimpleNamespace(score=score, served=served)


def searched(
    folder: Path, content: str, scores: Mapping[str, Mapping[int, float]], cards: int
) -> stack_goals._Search:
    """Return a search whose answers are known: the score of each model by its cards."""
    stack = parse_stack(HEAD + content, folder / "site.yaml")
    made = object.__new__(stack_goals._Search)
    made._stack, made._models, made._machine = stack, stack.models, None
    made._answers, made._cases, made._options = {}, {}, {}
    made.cards = cards
    for name, known in scores.items():
        for count in range(1, cards + 1):
            score = known.get(count)
            found = SimpleNamespace(
                winner=None if score is None else trial(score, count),
                trials=[SimpleNamespace(missed=("ttft", "tpot"))],
            )
            made._answers[name, count] = stack_goals._Answer(found)  # type: ignore[arg-type]
    return made


STEPS = {1: 10.0, 2: 18.0, 4: 30.0, 8: 32.0}


def test_the_model_that_is_served_worst_is_served_best(tmp_path: Path) -> None:
    two = searched(tmp_path, GOAL + OTHER, {"a": STEPS, "b": {4: 1.0, 8: 2.0}}, 8)
    assert two._divided(two._models, 8) == {"a": 4, "b": 4}
    one = searched(tmp_path, GOAL, {"a": STEPS}, 8)
    assert one._divided(one._models, 8) == {"a": 8}
    assert one._divided((), 8) == {}
    small = searched(tmp_path, GOAL + OTHER, {"a": STEPS, "b": STEPS}, 3)
    assert small._divided(small._models, 3) in ({"a": 1, "b": 2}, {"a": 2, "b": 1})
    assert small._scores(small._models[0], [1, 2, 3]) == {1: 10 / 18, 2: 1.0}
    assert small._scores(small._models[0], [3]) == {}


def test_a_model_that_no_number_serves_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "site.yaml")
    none = searched(tmp_path, GOAL + OTHER, {"a": STEPS, "b": {}}, 8)
    values = {"path": path, "line": 7, "name": "b", "cards": 4, "missed": "ttft, tpot"}
    with refused("stack.goal_unmet", ExitCode.MACHINE, **values):
        none._divided(none._models, 8)
    few = searched(tmp_path, GOAL, {"a": {}}, 1)
    values = {"path": path, "line": 3, "name": "a", "cards": 0, "missed": "cards"}
    with refused("stack.goal_unmet", ExitCode.MACHINE, **values):
        few._needed(few._models[0], 0)
    error = LaunchError("services.drain", ExitCode.MODEL, found=1)
    few._answers["a", 1] = stack_goals._Answer(None, error)
    with refused("stack.at_line", ExitCode.MODEL, path=path, line=3, why=str(error)):
        few._needed(few._models[0], 1)


def test_cards_that_the_others_leave_are_used_where_they_help(tmp_path: Path) -> None:
    search = searched(tmp_path, GOAL, {"a": {2: 5.0, 4: 5.0, 6: 9.0}}, 8)
    [model] = search._models
    small = trial(5.0, 2)
    assert search._with_more(model, small, 0) is small
    assert search._with_more(model, small, 1) is small
    assert search._with_more(model, small, 2) is small
    assert search._with_more(model, small, 4).score == 9.0


def test_a_goal_has_the_paths_of_its_file(tmp_path: Path) -> None:
    content = GOAL.replace("for: throughput", "for: latency\n  trace: past.csv\n  ttft: 1s")
    stack = parse_stack(HEAD + content, tmp_path / "site.yaml")
    given = stack_goals._given(stack, stack.models[0])
    assert given == RecommendOptions(goal="latency", trace=str(tmp_path / "past.csv"), ttft="1s")
    far = parse_stack(
        HEAD + content.replace("past.csv", "http://h/metrics"), tmp_path / "site.yaml"
    )
    assert stack_goals._given(far, far.models[0]).trace == "http://h/metrics"


def test_cards_remain_that_no_other_model_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = parse_stack(HEAD + GOAL + FIXED, tmp_path / "site.yaml")
    hosts = {"simulated:x": make("hls2+busy=0"), None: make("hls2+busy=0,1")}
    monkeypatch.setattr("gaudi_launch.app.machine.load", lambda name: hosts[name])
    monkeypatch.setattr(
        stack_goals, "sized_model", lambda stack, model, machine: SimpleNamespace(cards=2)
    )
    monkeypatch.setattr(stack_goals, "own_modules", lambda stack, before: (1,))
    open_ones = [stack.models[0]]
    # three replicas of two cards
    assert stack_goals._remaining(stack, open_ones, None, "simulated:x") == 7 - 6
    assert stack_goals._remaining(stack, open_ones, None, None) == 7 - 6
    assert stack_goals._remaining(stack, stack.models, None, None) == 7
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "1,2,3")
    assert stack_goals._remaining(stack, stack.models, None, None) == 3
    assert stack_goals._remaining(stack, stack.models, None, "simulated:x") == 7
    assert stack_goals._remaining(stack, open_ones, None, None) == 0
