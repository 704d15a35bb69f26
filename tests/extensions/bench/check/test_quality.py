"""The questions and their verdicts, against a scripted model that is right, broken, or drifts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.services.endpoint import Target
from gaudi_launch.extensions.bench.check import quality
from gaudi_launch.extensions.bench.check.quality import Quality, QualityAnswer
from gaudi_launch.extensions.bench.client import Client
from tests.support.refusals import raising
from tests.support.scripted_client import ScriptedClient

PLAN = {
    "buckets": {
        "prompt": [[1, 128, 0], [1, 256, 0], [1, 512, 0]],
        "decode": [[1, 1, 128], [8, 1, 128]],
    }
}
RIGHT = {prompt: right[0] for _, prompt, right in quality.items()}
Given = Callable[[str, int], tuple[str, float]]


def server_of(given: Given) -> ScriptedClient:
    """Return a server whose answer, with its logprob, depends on a prompt and its count."""
    seen: Counter[str] = Counter()

    def answer(path: str, question: Any) -> tuple[int, Any]:
        if question is None or "messages" not in question:
            models = {"data": [{"id": "m", "max_model_len": 4096, "owned_by": "vllm"}]}
            return (200, models) if path == "/v1/models" else (404, {})
        prompt = question["messages"][0]["content"]
        seen[prompt] += 1
        text, logprob = given(prompt, seen[prompt])
        choice = {"message": {"content": text}, "finish_reason": "stop"}
        choice["logprobs"] = {"content": [{"token": text, "logprob": logprob}]}
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": 1}
        return 200, {"choices": [choice], "usage": usage}

    return ScriptedClient(answer)


def asked(client: Client) -> Quality:
    return asyncio.run(quality.ask(client, Target("http://a:1", plan=PLAN), None))


def test_there_are_fifty_questions_in_each_language_and_their_answers_are_right() -> None:
    found = quality.items()
    names = Counter(name.partition("-")[0] for name, _, _ in found)
    assert names == {"en": 50, "zh": 50} and len({prompt for _, prompt, _ in found}) == 100
    assert all(quality.is_right(each, right) for _, _, right in found for each in right)
    # an answer is not in its own question
    assert [name for name, prompt, right in found if quality.is_right(prompt, right)] == []


SOUND = ("", 1.0, 1.0, 0)
CASES: list[tuple[str, Given, tuple[str, float, float, int]]] = [
    ("sound", lambda prompt, count: (RIGHT.get(prompt, "5"), -0.1), SOUND),
    ("!!!!", lambda prompt, count: ("!" * 32, -0.1), ("run", 0.0, 1.0, 104)),
    ("nan", lambda prompt, count: (RIGHT.get(prompt, "5"), float("nan")), ("nan", 1.0, 1.0, 104)),
    ("empty", lambda prompt, count: (" ", -0.1), ("empty", 0.0, 1.0, 104)),
    (
        "wrong in a batch",
        lambda prompt, count: (RIGHT.get(prompt, "5") if count == 1 else "blue", -0.1),
        ("", 1.0, 0.0, 0),
    ),
    (
        "broken above an edge",
        lambda prompt, count: (
            ("" if len(prompt.split()) % 2 else RIGHT.get(prompt, "5"), -0.1)
            if prompt not in RIGHT
            else (RIGHT[prompt], -0.1)
        ),
        ("empty", 1.0, 1.0, 2),
    ),
]


@pytest.mark.parametrize(("name", "given", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_what_is_wrong_with_a_server_is_found(
    name: str, given: Given, wanted: tuple[str, float, float, int]
) -> None:
    found = asked(server_of(given))
    kinds = {each.partition(": ")[2] for each in found.troubles}
    troubles = len(found.troubles)
    assert (found.batch, [tokens for tokens, _ in found.edges]) == (8, [128, 129, 256, 257])
    shares = (found.right, found.equal)
    assert ("".join(kinds), *shares, troubles) == wanted
    assert int(quality.exit_code(found, None)) == (4 if wanted[3] else 0)


def graded(pattern: str) -> Quality:
    answers = [QualityAnswer(str(at), each, each == "+") for at, each in enumerate(pattern)]
    return Quality("m", 8, tuple(answers))


@pytest.mark.parametrize(
    ("before", "after", "chance", "worse"),
    [
        ("+" * 50, "+" * 50, 1.0, False),
        ("+" * 50, "-" * 5 + "+" * 45, 0.0625, False),
        ("+" * 50, "-" * 6 + "+" * 44, 0.03125, True),
        ("-" * 6 + "+" * 44, "+" * 50, 0.03125, False),
        ("++++++++--" * 5, "--++++++++" * 5, 1.0, False),
    ],
)
def test_a_difference_is_compared_with_chance(
    before: str, after: str, chance: float, worse: bool, tmp_path: Path
) -> None:
    quality.write(tmp_path / "base.json", graded(before))
    base = quality.read(tmp_path / "base.json")
    assert base == graded(before)
    change = quality.compare(base, graded(after))
    assert (round(change.chance, 5), change.worse) == (chance, worse)
    lost = [at for at in range(50) if (before[at], after[at]) == ("+", "-")]
    assert [int(name) for name in change.lost] == lost
    assert int(quality.exit_code(base, change)) == 4 * worse


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"kind": "bench"}')
    with raising("measure.quality_read"):
        quality.read(tmp_path / "x.json")
