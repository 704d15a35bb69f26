"""Goals of a stack's models: a search divides the cards that remain."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.app.stack_plan import (
    StackPlan,
    at_line,
    changes_of,
    options_of,
    own_modules,
    sized_model,
)
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import text

if TYPE_CHECKING:
    from gaudi_launch.app.options import LaunchOptions
    from gaudi_launch.app.recommend import RecommendCase
    from gaudi_launch.app.report import Reporter
    from gaudi_launch.recommend.finder import Recommendation
    from gaudi_launch.recommend.trial import Trial
    from gaudi_launch.stack.stack_file import GoalChoice, StackFile, StackModel
    from gaudi_launch.stack.stack_record import StackRecord

# shares of the cards that are searched where several models have a goal without a load
_SHARES = (1, 2, 4, 8)


def recommend(path: Path, machine: str | None, reporter: Reporter) -> StackPlan:
    """Return the plan of a stack after a new search for all goals of its file.

    Raises LaunchError: USAGE where no model has a goal, MACHINE where one cannot be met.
    """
    from gaudi_launch.stack.stack_file import read_stack
    from gaudi_launch.stack.stack_record import read_record

    stack = read_stack(path)
    if not any(model.goal for model in stack.models):
        raise LaunchError("stack.no_goals", ExitCode.USAGE, path=str(path))
    before = read_record(stack.name) if machine is None else None
    if before is not None:
        before = replace(before, choices={})
    return changes_of(resolved(stack, before, reporter, machine), machine).planned


def resolved(
    stack: StackFile,
    before: StackRecord | None,
    reporter: Reporter,
    machine: str | None = None,
) -> StackFile:
    """Return the stack with replicas and options for each goal.

    A choice of the record stays as long as the goal and the model's settings do. Raises LaunchError
    with the line of a model whose goal cannot be met.
    """
    from gaudi_launch.stack.stack_file import with_choices
    from gaudi_launch.stack.stack_record import goal_hash

    goals = [model for model in stack.models if model.goal is not None]
    if not goals:
        return stack
    recorded = before.choices if before is not None else {}
    known = {
        model.name: recorded[model.name]
        for model in goals
        if model.name in recorded and recorded[model.name].of == goal_hash(model)
    }
    open_ones = [model for model in goals if model.name not in known]
    if not open_ones:
        return with_choices(stack, known)
    partly = with_choices(stack, known)
    search = _Search(partly, open_ones, before, machine)
    reporter.say(text("stack.searching", count=len(open_ones), cards=search.cards))
    return with_choices(stack, {**known, **search.choices()})


@dataclass(frozen=True)
class _Answer:
    """The search of a model with a number of cards, or why there is none."""

    found: Recommendation | None
    refusal: LaunchError | None = None

    @property
    def trial(self) -> Trial | None:
        if self.found is None:
            return None
        return self.found.winner


class _Search:
    """Divides the cards that remain among the goals of some models."""

    def __init__(
        self,
        stack: StackFile,
        models: Sequence[StackModel],
        before: StackRecord | None,
        machine: str | None,
    ) -> None:
        self._stack = stack
        self._models = models
        self._machine = machine
        self._options: dict[str, LaunchOptions] = {}
        self._cases: dict[str, RecommendCase] = {}
        self._answers: dict[tuple[str, int], _Answer] = {}
        self.cards = _remaining(stack, models, before, machine)

    def choices(self) -> dict[str, GoalChoice]:
        """Return the choice for each model; first those with a load."""
        for model in self._models:
            self._read(model)
        left = self.cards
        found: dict[str, GoalChoice] = {}
        loaded = [model for model in self._models if self._cases[model.name].goal.demand]
        rest = [model for model in self._models if model not in loaded]
        for number, model in enumerate(loaded, start=1):
            others = len(self._models) - number
            trial = self._needed(model, left - others)
            found[model.name] = self._choice(model, trial)
            left -= _cards_of(trial)
        shares = self._divided(rest, left)
        trials = {model.name: self._needed(model, shares[model.name]) for model in rest}
        for model in rest:
            left -= _cards_of(trials[model.name])
        for model in rest:
            trial = self._with_more(model, trials[model.name], left)
            left -= _cards_of(trial) - _cards_of(trials[model.name])
            found[model.name] = self._choice(model, trial)
        return found

    def _with_more(self, model: StackModel, trial: Trial, left: int) -> Trial:
        """Return a better configuration with cards that the others leave, if any."""
        if left < 1:
            return trial
        more = self._answer(model, _cards_of(trial) + left).trial
        if more is None or more.score <= trial.score:
            return trial
        return more

    def _read(self, model: StackModel) -> None:
        from gaudi_launch.app.recommend import read

        try:
            options = options_of(self._stack, model, self._machine)
            self._options[model.name] = options
            self._cases[model.name] = read(options, _given(self._stack, model), self.cards)
        except LaunchError as error:
            raise at_line(self._stack, model.line, error) from error

    def _answer(self, model: StackModel, cards: int) -> _Answer:
        """Return the best configuration with this number of cards, searched once."""
        from gaudi_launch.buckets.warmup_time import FILE_NAME, read_measured
        from gaudi_launch.paths import state_dir
        from gaudi_launch.recommend.finder import find

        key = (model.name, cards)
        if key not in self._answers:
            case = self._cases[model.name]
            pool = replace(case.search.pool, cards_per_node=cards)
            measured = read_measured(state_dir() / FILE_NAME)
            try:
                found = find(replace(case.search, pool=pool), case.goal, None, measured)
                self._answers[key] = _Answer(found)
            except LaunchError as error:
                self._answers[key] = _Answer(None, error)
        return self._answers[key]

    def _needed(self, model: StackModel, cards: int) -> Trial:
        """Return the best configuration. Raises LaunchError where none meets the goal."""
        if cards < 1:
            raise self._refused(model, cards=0, missed="cards")
        answer = self._answer(model, cards)
        if answer.refusal is not None:
            raise at_line(self._stack, model.line, answer.refusal)
        if answer.trial is not None:
            return answer.trial
        assert answer.found is not None, "there is a refusal otherwise"
        missed = ", ".join(answer.found.trials[0].missed) or "-"
        raise self._refused(model, cards=cards, missed=missed)

    def _refused(self, model: StackModel, *, cards: int, missed: str) -> LaunchError:
        return LaunchError(
            "stack.goal_unmet",
            ExitCode.MACHINE,
            path=str(self._stack.path),
            line=model.line,
            name=model.name,
            cards=cards,
            missed=missed,
        )

    def _divided(self, models: Sequence[StackModel], cards: int) -> dict[str, int]:
        """Return the cards of each model that make the lowest share the highest.

        A share compares a model with what it reaches with the best number of cards.
        """
        if len(models) < 2:
            return {model.name: cards for model in models}
        most = cards - (len(models) - 1)
        sizes = [size for size in _SHARES if size <= most]
        scores = {model.name: self._scores(model, sizes) for model in models}
        best: tuple[float, float, int] = (0.0, 0.0, 0)
        found: dict[str, int] = {}
        for sizes_of in itertools.product(sizes, repeat=len(models)):
            if sum(sizes_of) > cards:
                continue
            shares = [
                scores[model.name].get(size, 0.0)
                for model, size in zip(models, sizes_of, strict=True)
            ]
            rank = (round(min(shares), 3), round(sum(shares), 3), sum(sizes_of))
            if rank > best:
                best = rank
                found = {model.name: size for model, size in zip(models, sizes_of, strict=True)}
        if best[0] == 0.0:
            worst = min(models, key=lambda model: max(scores[model.name].values(), default=0.0))
            self._needed(worst, max(sizes, default=0))
            raise self._refused(worst, cards=cards, missed="cards")
        return found

    def _scores(self, model: StackModel, sizes: Sequence[int]) -> dict[int, float]:
        """Return the objective with each number of cards, as a share of the best."""
        found = {}
        for size in sizes:
            trial = self._answer(model, size).trial
            if trial is not None:
                found[size] = trial.score
        most = max(found.values(), default=1.0)
        return {size: score / most for size, score in found.items()}

    def _choice(self, model: StackModel, trial: Trial) -> GoalChoice:
        """Return the configuration as replicas and options of the model."""
        from gaudi_launch.app.recommend import launch_options
        from gaudi_launch.app.saved_plan import saved_fields
        from gaudi_launch.stack.stack_file import GoalChoice, ModelOption
        from gaudi_launch.stack.stack_record import goal_hash

        case, before = self._cases[model.name], self._options[model.name]
        launch = launch_options(case, trial.candidate)
        options = tuple(
            ModelOption(key, getattr(launch, name))
            for key, name in saved_fields().items()
            if getattr(launch, name) != getattr(before, name)
        )
        served = trial.served
        assert served is not None, "a winner was simulated"
        return GoalChoice(
            of=goal_hash(model),
            goal=case.goal.name,
            replicas=served.replicas,
            options=options,
            engine_arguments=launch.extra[len(before.extra) :],
            ttft=served.ttft,
            tpot=served.tpot,
            e2e=served.e2e,
            tokens=served.tokens,
        )


def _cards_of(trial: Trial) -> int:
    """Return the cards of all replicas."""
    assert trial.served is not None, "a winner was simulated"
    return trial.served.cards


def _given(stack: StackFile, model: StackModel) -> Any:
    """Return the goal as options of ``recommend``; paths are the file's."""
    from dataclasses import asdict

    from gaudi_launch.app.recommend import RecommendOptions

    assert model.goal is not None, "only models with a goal are searched"
    given = {name: value for name, value in asdict(model.goal).items() if value}
    if "trace" in given and "://" not in given["trace"]:
        given["trace"] = str(stack.path.absolute().parent / Path(given["trace"]).expanduser())
    return RecommendOptions(**given)


def _remaining(
    stack: StackFile,
    models: Sequence[StackModel],
    before: StackRecord | None,
    machine: str | None,
) -> int:
    """Return the number of cards that models without an open goal leave free."""
    from gaudi_launch.app.machine import load
    from gaudi_launch.planning.placement import parse_visible
    from gaudi_launch.stack.changes import released

    host = load(machine)
    free = set(released(host, own_modules(stack, before)).free_modules)
    visible = parse_visible(os.environ.get("HABANA_VISIBLE_MODULES"))
    if machine is None and visible is not None:
        free.intersection_update(visible)
    names = {model.name for model in models}
    fixed = [model for model in stack.models if model.name not in names]
    used = sum(sized_model(stack, model, machine).cards * model.replicas for model in fixed)
    return max(len(free) - used, 0)
