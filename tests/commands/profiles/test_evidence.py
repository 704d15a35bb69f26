"""Recorded evidence of servers against today's plans, and the checks before it is recorded."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.commands.profiles.evidence import add, contradictions, logged_buckets
from gaudi_launch.core.base import paths
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.host.accelerators import accelerators, memory_margin_mib
from gaudi_launch.core.host.hl_smi_text import parse_log, parse_table, parse_topo
from gaudi_launch.core.predict.published import read_figures, shapes
from tests.support.cli import reading
from tests.support.places import DATA

FILES = sorted((DATA / "evidence").glob("*.json"))
# of simulated cards: no evidence about a card, but made by the same code
SIMULATED = DATA / "evidence/simulated-gaudi2-20261129201657.json"
BLOCK = 128
Change = Callable[[dict[str, Any]], object]


def disagreements(document: dict[str, Any], folder: Path, capsys: Any) -> list[str]:
    """Return the facts of a server that today's code states in another way."""
    machine = folder / "machine.json"
    machine.write_text(json.dumps(document["host"]))
    (served,) = (e["details"] for e in document["results"] if e["name"] == "served_small")
    engine = "vllm-gaudi" if served["simulated"] else served["engine"]
    plan = reading(capsys, "plan", "demo", "--machine", str(machine), "--engine", engine)
    host, texts = document["host"]["host"], document["hl_smi"]
    product, cards = accelerators()[document["product"]], host["cards"]
    logged = logged_buckets(document, "served_small")
    tokens = document["figures"]["served_small"]["values"]["kv_tokens"]
    rows = parse_table(texts["table"]).rows
    most_used = product.memory_idle_mib + memory_margin_mib()
    modules = {at: int(row["Module ID"]) for at, row in parse_log(texts["-L"]).items()}
    nodes = {row.module: row.numa_node for row in parse_topo(texts["topo -c -N"])}
    agree = {
        "modules": modules == {card["index"]: card["module"] for card in cards},
        "topology": nodes == {card["module"]: card["numa_node"] for card in cards}
        and host["groups"] == [list(group) for group in product.groups(nodes)],
        "memory": {row.memory_total_mib for row in rows} == {product.memory_total_mib}
        and all((row.memory_used_mib or 0) <= most_used for row in rows),
        "KV cache": abs(tokens / BLOCK - plan["num_blocks"]) <= 1,
        "buckets": logged == {phase: plan["buckets"][phase] for phase in ("prompt", "decode")},
    }
    return [name for name, good in agree.items() if not good]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recorded_evidence_agrees_with_todays_code(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(file.read_text())
    assert disagreements(document, tmp_path, capsys) == []
    assert contradictions(document) == []
    assert document["simulated"] is file.name.startswith("simulated-")


def text(name: str, old: str, new: str) -> Change:
    def change(document: dict[str, Any]) -> None:
        assert old in document["hl_smi"][name]
        document["hl_smi"][name] = document["hl_smi"][name].replace(old, new, 1)

    return change


def card(**facts: Any) -> Change:
    return lambda document: document["host"]["host"]["cards"][0].update(facts)


def figure(step: str, part: str, **values: float) -> Change:
    return lambda document: document["figures"][step][part].update(values)


def log(old: str, new: str) -> Change:
    def change(document: dict[str, Any]) -> None:
        (details,) = (e["details"] for e in document["results"] if e["name"] == "served_small")
        assert any(old in line for line in details["log"])
        details["log"] = [line.replace(old, new, 1) for line in details["log"]]

    return change


# a changed fact, what contradicts itself then, and what today's code disagrees with
CHANGES: list[tuple[Change, list[str], list[str]]] = [
    (text("-L", "Module ID                       : 3", "Module ID : 5"), ["text"], ["modules"]),
    (text("topo -c -N", "0-39, 80-119\t0", "0-39, 80-119\t1"), ["text"], ["topology"]),
    (text("table", "98304MiB", "97280MiB"), ["text"], ["memory"]),
    (text("table", "1.22.1-97ec1a4", "1.23.0-000000"), ["text"], []),
    (card(memory_used_mib=99000), ["memory"], []),
    (card(memory_total_mib=131072), ["text", "memory"], []),
    (card(product="HL-325", device_type="GAUDI3"), ["topology"], []),
    (
        lambda d: d["host"]["host"].update(groups=[[0, 1, 2, 3], [4, 5, 6, 7]]),
        ["topology"],
        ["topology"],
    ),
    (log("(1, 128, 5)", "(1, 128, 6)"), [], ["buckets"]),
    (log("(1, 128, 5), ", ""), ["buckets"], ["buckets"]),
    (figure("served_small", "values", kv_tokens=3_000_000), [], ["KV cache"]),
    (figure("memory_rate", "values", **{"0": 2600}), ["above_peak"], []),
    (figure("matrix_fp8", "shares", **{"0": 1.1}), ["above_peak"], []),
    (figure("all_reduce", "values", **{"0-1-2-3-4-5-6-7": 200}), ["share"], []),
    (figure("memory_rate", "values", **{"8": 2000}), ["no_card"], []),
    (lambda d: d.update(simulated=False), ["mark", "scaled"], []),
    (lambda d: d.update(product="gaudi9"), ["no_product"], []),
]


@pytest.mark.parametrize(("change", "found", "parity"), CHANGES)
def test_a_changed_fact_is_found(
    change: Change,
    found: list[str],
    parity: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = json.loads(SIMULATED.read_text())
    change(document)
    assert [each.id.removeprefix("evidence.") for each in contradictions(document)] == found
    if parity:
        assert disagreements(document, tmp_path, capsys) == parity
    file = tmp_path / "file.json"
    file.write_text(json.dumps(document))
    if found:
        assert run(["profiles", "add-evidence", str(file), "--json"]) == 2
        assert json.loads(capsys.readouterr().out)["error"]["id"] == "evidence.contradicts"


def real() -> dict[str, Any]:
    """Return the evidence as a server with cards would write it, of a model of known sizes."""
    document: dict[str, Any] = json.loads(SIMULATED.read_text())
    document.update(simulated=False, scale=1)
    for each in document["results"]:
        if each["name"].startswith("served"):
            each["details"].update(simulated=False, model="a/Llama-3.1-8B-Instruct", modules=[3])
            each["details"].update(engine="vllm-gaudi@0.26.0", dtype="bfloat16")
    return document


def test_evidence_of_cards_becomes_rows_once(tmp_path: Path) -> None:
    figures = tmp_path / "profiles/performance/figures.csv"
    figures.parent.mkdir(parents=True)
    shutil.copy(paths.profiles_dir() / "performance/figures.csv", figures)
    before = len(figures.read_text().splitlines())
    file = tmp_path / "file.json"
    file.write_text(json.dumps({**real(), "figures": {"heat": {"values": {"0": "x"}}}}))
    with pytest.raises(LaunchError) as malformed:
        add(str(file), tmp_path)
    file.write_text(json.dumps(real()))
    with pytest.raises(LaunchError) as outside:
        add(str(file), tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "tests/data/evidence").mkdir(parents=True)
    made = add(str(file), tmp_path)
    with pytest.raises(LaunchError) as again:
        add(str(file), tmp_path)
    ids = [each.value.text.id for each in (malformed, outside, again)]
    assert ids == ["accept.unreadable", "evidence.no_clone", "evidence.known"]
    assert (json.loads(made.path.read_text()), made.simulated) == (real(), False)
    with figures.open(newline="") as stream:
        rows = list(csv.DictReader(stream))[before - 1 :]
    shown = [(row["kind"], row["dtype"], row["cards"], row["value"], row["unit"]) for row in rows]
    served = real()["figures"]["served_model"]["values"]
    assert shown[:6] == [
        ("bandwidth", "", "1", "2254", "GB/s"),
        ("bandwidth", "", "1", "26", "GB/s"),
        ("gemm", "bf16", "1", "410.4", "TFLOPS"),
        ("gemm", "fp8", "1", "821.75", "TFLOPS"),
        ("gemm", "bf16", "1", "410.4", "TFLOPS"),
        ("collective", "float32", "8", "257.25", "GB/s"),
    ]
    assert {row["source"] for row in rows} == {made.path.relative_to(tmp_path).as_posix()}
    read = [each for each in read_figures(figures, shapes()) if each.source == rows[0]["source"]]
    expected = [served["output_tokens_per_second"], served["ttft_ms"], served["tpot_ms"]]
    assert [(each.model, each.batch, each.not_scored) for each in read] == [
        ("Llama-3.1-8B", 4.0, "")
    ] * 3
    assert [float(row["value"]) for row in rows[6:9]] == pytest.approx(expected, rel=1e-4)
