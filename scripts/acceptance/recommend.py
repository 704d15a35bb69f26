"""Check that `gaudi-launch recommend` is right, by other means than its search.

`recommend.py [--cases N] [--only exhaustive|cards|seeds|refusals]`

exhaustive: small spaces are simulated completely; the answer's objective is within 1 % of the best.
cards: for N / 8 drawn traces with bursts no given -n needs fewer cards than the answer.
seeds: the answers of N drawn cases (40) meet their targets with requests in another order, in all
but one of twenty. refusals: `inspect` accepts each answer, which has a plan. The exit
status is 0 when all checks pass.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gaudi_launch.commands.inspect.fit import InspectOptions, ServedLengths, fit
from gaudi_launch.commands.inspect.support import support
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.support_answer import SupportStatus
from gaudi_launch.core.predict.simulate import simulate
from gaudi_launch.extensions.recommend import case as cases
from gaudi_launch.extensions.recommend.analytic import fitting
from gaudi_launch.extensions.recommend.case import RecommendCase, Recommended, RecommendOptions
from gaudi_launch.extensions.recommend.finder import best
from gaudi_launch.extensions.recommend.trial import Simulation

WITHIN, HELD = 0.99, 38 / 40
OTHER_SEED = 20_261
MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-32B",
    "meta-llama/Llama-3.1-70B-Instruct",
    "mistralai/Mixtral-8x7B-Instruct-v0.1",
)
# options that make a space small enough for all of it to be simulated
SMALL: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
    ({"dtype": "bf16", "max_prefill_seqs": "1", "cards": "1"}, {"goal": "balanced"}),
    (
        {"dtype": "bf16", "max_prefill_seqs": "4", "max_num_batched_tokens": "4096"},
        {"goal": "throughput"},
    ),
    ({"dtype": "fp8", "max_num_batched_tokens": "8192", "cards": "2"}, {"goal": "cost"}),
    ({"dtype": "bf16", "max_num_seqs": "64", "cards": "1"}, {"goal": "latency", "rate": "5/s"}),
    ({"dtype": "bf16", "max_prefill_seqs": "1"}, {"rate": "30/s", "ttft": "1s", "tpot": "60ms"}),
    ({"dtype": "bf16", "max_num_batched_tokens": "2048"}, {"goal": "latency"}),
)


Asked = tuple[str, dict[str, str], dict[str, str]]


def case_of(model: str, launch: dict[str, str], given: dict[str, Any]) -> RecommendCase:
    """Return a case for Gaudi2 servers."""
    lengths = {} if "trace" in given else {"input_range": "100,1000", "output_range": "20,200"}
    options = {**lengths, **launch}
    launched = LaunchOptions(model=model, machine="gaudi2", **options)  # type: ignore[arg-type]
    return cases.read(launched, RecommendOptions(**given))


def drawn(count: int, seed: int = 1) -> Iterator[tuple[str, dict[str, str], dict[str, str]]]:
    """Yield models, launch options and targets."""
    chance = random.Random(seed)
    for _ in range(count):
        low, high = chance.choice([50, 100, 500]), chance.choice([1000, 2000, 4000])
        few, many = chance.choice([10, 50]), chance.choice([100, 300, 600])
        launch = {"input_range": f"{low},{high}", "output_range": f"{few},{many}"}
        if chance.random() < 0.5:
            launch["dtype"] = chance.choice(["bf16", "fp8"])
        given = {
            "rate": f"{chance.choice([2, 5, 10, 20, 50])}/s",
            "ttft": f"{chance.choice([0.8, 1.0, 1.5, 2.0, 3.0])}s",
            "tpot": f"{chance.choice([40, 50, 60, 80, 100])}ms",
        }
        if chance.random() < 0.2:
            given["e2e"] = f"{chance.choice([20, 30, 60])}s"
        yield chance.choice(MODELS), launch, given


def exhaustive(model: str, launch: dict[str, str], given: dict[str, str]) -> float:
    """Return the answer's objective as a share of the best of the complete space."""
    case = case_of(model, launch, given)
    found = cases.solve(case).found
    simulation = Simulation(case.search, case.goal, cases.CasePlanner(case))
    everything = []
    for candidate in fitting(case.search).candidates:
        if case.search.keeps_type(candidate):
            everything.append(simulation.settled(simulation.exact(candidate)))
    top = best(case.search, everything)
    if top is None or found.winner is None:
        return 1.0 if top is None and found.winner is None else 0.0
    return found.winner.score / max(each.score for each in everything if each.meets)


def bursts(seed: int, folder: Path) -> Asked:
    """Write a trace that comes at two rates in turn; return its case."""
    chance = random.Random(seed)
    high, period, share = chance.uniform(4, 40), chance.choice([20, 60, 300]), chance.random()
    low = high / chance.uniform(1, 8)
    now, file = 0.0, folder / f"{seed}.csv"
    rows = ["timestamp,input_tokens,output_tokens"]
    for _ in range(chance.choice([2500, 5000])):
        now += chance.expovariate(high if now % period < share * period else low)
        tokens = min(16_000, int(chance.lognormvariate(6.5, 1.0)) + 1)
        output = min(2_000, int(chance.lognormvariate(5.0, 0.8)) + 1)
        rows.append(f"{now:.3f},{tokens},{output}")
    file.write_text("\n".join(rows))
    targets = {"ttft": chance.choice(["1s", "2s", "5s"]), "tpot": chance.choice(["80ms", "120ms"])}
    return chance.choice(MODELS[:3]), {"dtype": "bf16"}, {"trace": str(file), **targets}


def cards_of(asked: Asked, **options: str) -> int | None:
    """Return the cards of the answer with more options; None without one."""
    model, launch, given = asked
    winner = cases.solve(case_of(model, {**launch, **options}, given)).found.winner
    return winner.served.cards if winner is not None and winner.served is not None else None


def meets_targets(answer: Recommended, seed: int = OTHER_SEED) -> bool:
    """Return True if the answer meets its targets with requests of another seed."""
    answered = answer.found
    winner, goal, load = answered.winner, answered.goal, answered.case.load
    assert winner is not None and winner.served is not None and winner.setup is not None
    shuffled = replace(load, requests=tuple(load.sent(len(load.requests), seed).requests))
    asked = shuffled.at_rate(goal.rate / winner.served.replicas)
    outcome, targets = simulate(winner.setup, asked), goal.targets
    assert outcome is not None, "the engine served these lengths"
    found = {"ttft": outcome.ttft, "tpot": outcome.tpot, "e2e": outcome.e2e}
    for name, latency in found.items():
        most: float | None = getattr(targets, name)
        if most is not None and latency.at(targets.percentile) > most:
            return False
    return True


def refused(answer: Recommended) -> str:
    """Return why `inspect` refuses an answer; "" where it accepts it."""
    winner, model = answer.found.winner, answer.found.case.model
    assert winner is not None
    if answer.plan is None:
        return "no plan"
    candidate = winner.candidate
    lengths = ServedLengths(str(candidate.length), str(candidate.batch))
    engine = answer.plan.engine.label
    options = InspectOptions(
        model.path, str(candidate.cards), "gaudi2", candidate.dtype, engine, lengths
    )
    row = fit(model, options).table.rows[0]
    if not row.fits:
        return row.reason.render()
    for each in support(model, accelerators()["gaudi2"], options):
        if each.label == answer.plan.engine.exact and each.support.status is SupportStatus.NO:
            return f"{each.label} does not run it"
    return ""


@cache
def answers(count: int) -> tuple[tuple[Asked, Recommended], ...]:
    """Return drawn cases with their answers, of those that have one."""
    found: list[tuple[Asked, Recommended]] = []
    begun = time.process_time()
    for asked in drawn(10 * count):
        try:
            answer = cases.solve(case_of(*asked))
        except LaunchError:
            continue
        if answer.found.winner is not None:
            found.append((asked, answer))
        if len(found) == count:
            break
    print(f"{len(found)} answers in {time.process_time() - begun:.0f} s of CPU", flush=True)
    return tuple(found)


def check_exhaustive(count: int) -> bool:
    """Return True if every small space is answered within 1 %."""
    good = True
    for launch, given in SMALL:
        share = exhaustive(MODELS[0], launch, given)
        good &= share >= WITHIN
        print(f"{share:.4f} of the best: {MODELS[0]} {launch} {given}", flush=True)
    return good


def check_cards(count: int) -> bool:
    """Return True if the answer for each trace has the fewest cards of any -n."""
    good = True
    with TemporaryDirectory() as folder:
        for seed in range(max(1, count // 8)):
            asked = bursts(seed, Path(folder))
            answer = cards_of(asked)
            given = {number: cards_of(asked, cards=number) for number in ("1", "2", "4", "8")}
            fewest = min((each for each in given.values() if each is not None), default=None)
            good &= answer == fewest
            print(f"{answer} cards, with -n {given}: {asked[0]} {asked[2]}", flush=True)
    return good


def check_seeds(count: int) -> bool:
    """Return True if 38 of 40 meet their targets with another seed."""
    held = total = 0
    for asked, answer in answers(count):
        total += 1
        good = meets_targets(answer)
        held += good
        if not good:
            print("missed with another seed:", *asked, flush=True)
    print(f"{held} of {total} meet their targets with another seed")
    return held >= HELD * total


def check_refusals(count: int) -> bool:
    """Return True if no answer is refused."""
    good = True
    for asked, answer in answers(count):
        why = refused(answer)
        good &= not why
        if why:
            print("refused:", *asked, why, flush=True)
    print(f"{count} answers: inspect {'accepts all' if good else 'refuses some'}")
    return good


def main() -> int:
    """Run the checks and return the exit status."""
    checks: dict[str, Callable[[int], bool]] = {
        "exhaustive": check_exhaustive,
        "cards": check_cards,
        "seeds": check_seeds,
        "refusals": check_refusals,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--only", choices=sorted(checks))
    given = parser.parse_args()
    failed = []
    for name, check in checks.items():
        if given.only in (None, name):
            begun = time.process_time()
            good = check(given.cases)
            print(
                f"{name}: {'passed' if good else 'FAILED'} in "
                f"{time.process_time() - begun:.0f} s of CPU"
            )
            failed += [] if good else [name]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
