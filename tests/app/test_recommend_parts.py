"""Parts of recommend without a search: machine, cards, load, commands, the saved answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import machine, prepare, recommend, saved_plan
from gaudi_launch.app.command_line import serve_command
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.prepare import Prepared
from gaudi_launch.app.recommend import (
    Recommended,
    RecommendOptions,
    cluster_command,
    save,
    solve,
)
from gaudi_launch.app.saved_plan import SavedTraffic
from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.engines.registry import find
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.accelerators import accelerators
from gaudi_launch.host.hardware import Host
from gaudi_launch.host.simulated import make
from gaudi_launch.messages import message
from gaudi_launch.models.model import Model
from gaudi_launch.planning.request import Request
from gaudi_launch.recommend import finder
from gaudi_launch.recommend.goal import Goal
from gaudi_launch.recommend.space import Candidate, CardPool
from tests.support.recommend import NO_TARGETS
from tests.support.refusals import failing, refused

pytestmark = pytest.mark.usefixtures("plain_english")

GIVEN = RecommendOptions()
LAUNCH = LaunchOptions(model="org/m", machine="simulated:hls2", cards="2", port="8000", force=True)
ONE = Candidate("vllm-gaudi", "bfloat16", 4, 32, 1, 2048, 4096, False)
TWO = replace(ONE, cards=8, pipeline=2, hosts=2)
MODEL = Model("org/m", "m", max_position_embeddings=2000)
BALANCED = Goal("balanced", NO_TARGETS)


# --- commands ------------------------------------------------------------------------------------


def test_a_cluster_has_hosts_to_be_named() -> None:
    launch = LaunchOptions(model="org/m", cards="8")
    head = ("gaudi-launch", "cluster", "up", "org/m", "--hosts")
    sizes = ("--tensor-parallel", "8", "--pipeline-parallel", "2")
    assert cluster_command(launch, TWO) == (*head, "HOST1,HOST2", *sizes, "-n", "8")
    local = replace(TWO, hosts=1, pipeline=1)
    assert cluster_command(launch, local) == (*head, "local", *sizes[:2], "-n", "8")


# --- the machine and its cards -------------------------------------------------------------------


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> dict[str | None, Host]:
    """Return the machines by their name; this one has no card."""
    known: dict[str | None, Host] = {None: Host(), "simulated:hls2": make("hls2")}
    monkeypatch.setattr(
        machine, "load", lambda name=None: known.get(name) or make(name.partition(":")[2])
    )
    return known


def test_a_machine_is_given_or_that_of_a_product(here: dict[str | None, Host]) -> None:
    notes: list[Any] = []

    def found(options: LaunchOptions, **given: str) -> tuple[str | None, Host]:
        return recommend._machine(options, replace(GIVEN, **given), notes)

    assert found(LAUNCH) == ("simulated:hls2", make("hls2"))
    assert str(found(LaunchOptions(), accelerator="gaudi3")[1].product).startswith("gaudi3")
    with refused("recommend.one_machine", ExitCode.USAGE):
        found(LAUNCH, accelerator="gaudi2")
    assert notes == []
    # this machine has no card: a server of the usual product
    assumed = found(LaunchOptions())
    product = accelerators()["gaudi2"]
    assert assumed[0] is not None and len(assumed[1].cards) == product.cards
    assert notes == [
        message("recommend.assumed_machine", product=product.title, cards=product.cards)
    ]
    here[None] = make("hls2")
    assert found(LaunchOptions()) == (None, make("hls2"))


def test_cards_are_free_ones_or_those_of_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    product = accelerators()["gaudi2"]
    busy = make("hls2+busy=0,1")

    def pool(options: LaunchOptions = LAUNCH, goal: Goal = BALANCED, **given: Any) -> CardPool:
        return recommend._pool(busy, options, replace(GIVEN, **given), goal)

    assert pool() == CardPool(product, 6, 1)
    assert pool(nodes="3") == CardPool(product, 6, 3)
    assert pool(accelerator="gaudi2") == CardPool(product, 8, 1)
    assert pool(goal=replace(BALANCED, rate=1.0), accelerator="gaudi2") == CardPool(
        product, 8, None
    )
    assert pool(accelerator="gaudi2", nodes="2") == CardPool(product, 8, 2)
    assert pool(replace(LAUNCH, cards=None, modules="0,1,2")) == CardPool(product, 3, 1)
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "1,2,3")
    # modules of the environment are those of this machine
    assert pool() == CardPool(product, 6, 1)
    assert pool(replace(LAUNCH, machine=None)) == CardPool(product, 2, 1)
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "0")
    with refused("recommend.no_free_card", ExitCode.MACHINE, machine=busy.origin):
        pool(replace(LAUNCH, machine=None))
    unknown = replace(Host(), origin="x")
    with refused("recommend.unknown_card", ExitCode.MACHINE, machine="x"):
        recommend._pool(unknown, LAUNCH, GIVEN, BALANCED)
    with pytest.raises(LaunchError):
        pool(nodes="100001")


def test_given_cards_are_a_number_or_modules() -> None:
    assert recommend._cards_given(LAUNCH) == 2
    assert recommend._cards_given(replace(LAUNCH, cards=None, modules="1,2,3")) == 3
    with pytest.raises(LaunchError):
        recommend._cards_given(replace(LAUNCH, modules="1,2,3"))


# --- goal and load -------------------------------------------------------------------------------


def traffic(*lengths: tuple[int, int]) -> Traffic:
    return Traffic(tuple((float(at), *both) for at, both in enumerate(lengths)))


# --- inputs of plans -----------------------------------------------------------------------------


def test_plans_are_prepared_with_the_fewest_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, str | None]] = []
    refusing: set[str | None] = set()
    engine = {"name": "vllm-gaudi"}

    def made(options: LaunchOptions) -> Any:
        asked.append((options.cards, options.machine))
        if options.cards in refusing:
            raise LaunchError("services.drain", ExitCode.MACHINE, found=options.cards)
        return Prepared(Request("m"), Host(), MODEL, find(engine["name"]), None)

    monkeypatch.setattr(prepare, "prepare", made)
    recommend._prepared(LAUNCH, "simulated:x")
    plain = replace(LAUNCH, cards=None)
    recommend._prepared(plain, None)
    refusing.add("1")
    recommend._prepared(plain, None)
    assert asked == [("2", "simulated:x"), ("1", None), ("1", None), ("8", None)]
    refusing.add("8")
    # the first refusal is the one to see
    with refused("services.drain", ExitCode.MACHINE, found="1"):
        recommend._prepared(plain, None)
    engine["name"] = "cpu"
    with failing("fit.engine", ExitCode.USAGE) as raised:
        recommend._prepared(LAUNCH, None)
    assert raised.value.text.values["found"] == "cpu"


# --- the answer ----------------------------------------------------------------------------------


def plan(high: float | None = None) -> Any:
    estimate = None if high is None else SimpleNamespace(high_seconds=high)
    return SimpleNamespace(estimate=estimate)


def test_a_warm_up_that_takes_too_long_is_no_answer() -> None:
    limited = replace(BALANCED, most_start=60.0)
    recommend._check_start(BALANCED, plan(1e9))
    recommend._check_start(limited, plan())
    recommend._check_start(limited, plan(60.0))
    with refused("recommend.slow_start", ExitCode.MACHINE, seconds="61", most="60"):
        recommend._check_start(limited, plan(61.0))


def trial(candidate: Candidate, replicas: int = 3) -> Any:
    return SimpleNamespace(candidate=candidate, served=SimpleNamespace(replicas=replicas))


def test_the_best_answer_that_has_a_plan_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    error = LaunchError("services.drain", ExitCode.MACHINE, found=1)
    left = [trial(TWO), trial(ONE)]
    removed: list[Any] = []

    def found() -> Any:
        return SimpleNamespace(winner=left[0] if left else None, left=len(left))

    def without(one: Any, winner: Any, why: Any) -> Any:
        removed.append((winner.candidate, why))
        left.pop(0)
        return found()

    def cluster(case: Any, launch: Any, candidate: Candidate) -> None:
        raise error

    monkeypatch.setattr(finder, "find", lambda *words: found())
    monkeypatch.setattr(finder, "without", without)
    monkeypatch.setattr(recommend, "launch_options", lambda case, candidate: LAUNCH)
    monkeypatch.setattr(recommend, "_planned_cluster", cluster)
    monkeypatch.setattr(recommend, "_planned", lambda case, launch: plan(1.0))
    monkeypatch.setattr(Candidate, "needs_cluster", property(lambda self: self.hosts > 1))
    case: Any = SimpleNamespace(search=None, goal=BALANCED)
    done = solve(case)
    assert removed == [(TWO, error.text)]
    assert (done.launch, done.cluster, done.command) == (LAUNCH, None, serve_command(LAUNCH))
    left[:] = [trial(TWO)]
    nothing = solve(case)
    assert (nothing.launch, nothing.plan, nothing.command) == (None, None, ())
    left[:] = [trial(TWO)]
    monkeypatch.setattr(
        recommend, "_planned_cluster", lambda *words: SimpleNamespace(plan=plan(2.0))
    )
    several = solve(case)
    assert several.command == cluster_command(LAUNCH, TWO)


def test_the_saved_load_is_that_of_one_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    monkeypatch.setattr(
        saved_plan,
        "write",
        lambda file, launch, plan, *, goal, traffic: written.append((file, launch, goal, traffic)),
    )
    file = Path("/x.yaml")

    def answer(goal: Goal, **changes: Any) -> Recommended:
        case: Any = SimpleNamespace(goal=goal, options=LAUNCH)
        found: Any = SimpleNamespace(winner=trial(ONE))
        return replace(Recommended(case, found, LAUNCH, plan()), **changes)

    assert save(answer(BALANCED), GIVEN, file)
    assert save(answer(replace(BALANCED, clients=7)), GIVEN, file)
    ranged = replace(LAUNCH, input_range="5", output_range="6")
    assert save(answer(replace(BALANCED, rate=2.0), launch=ranged), replace(GIVEN, trace="t"), file)
    assert written == [
        (file, LAUNCH, "balanced", SavedTraffic("1024", "256", concurrency="32")),
        # three replicas share the clients
        (file, LAUNCH, "balanced", SavedTraffic("1024", "256", concurrency="3")),
        (file, ranged, "balanced", SavedTraffic("5", "6", rate="0.666667", trace="t")),
    ]
    assert not save(answer(BALANCED, cluster="cluster"), GIVEN, file)
    assert not save(answer(BALANCED, launch=None), GIVEN, file)
    assert not save(answer(BALANCED, plan=None), GIVEN, file)
    nothing: Any = SimpleNamespace(winner=None)
    assert not save(answer(BALANCED, found=nothing), GIVEN, file)
    assert len(written) == 3
