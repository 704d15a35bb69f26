"""DeepSeek-R1 over two nodes: the numbers of the branch's own scripts, and what fp8 needs on
sixteen cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from tests.support.kubernetes_documents import R1, _plain, following, main_of, objects, rendered

__all__ = ["_plain"]
TWO = (*R1, "--kind", "leaderworkerset", "--nodes", "2")


def leader_of(text: str) -> dict[str, Any]:
    group = main_of(text)["spec"]["leaderWorkerTemplate"]
    container: dict[str, Any] = group["leaderTemplate"]["spec"]["containers"][0]
    return container


def notes(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, str]]:
    assert run(["render", "kubernetes", "--json", *words]) == 0
    found: list[dict[str, str]] = json.loads(capsys.readouterr().out)["notes"]
    return found


def test_the_settings_are_those_of_the_scripts_for_two_nodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/set_head_node.sh and README.md, its
    lengths."""
    leader = leader_of(rendered(capsys, *TWO, "-l", "32768", "-b", "512"))
    options = {
        "--tensor-parallel-size": "16", "--max-num-seqs": "512",
        "--max-num-batched-tokens": "32768", "--max-model-len": "32768", "--dtype": "bfloat16",
        "--kv-cache-dtype": "auto", "--block-size": "128", "--num-scheduler-steps": "1",
        "--distributed_executor_backend": "ray", "--gpu_memory_utilization": "0.9",
    }  # fmt: skip
    assert {name: following(leader["args"], name) for name in options} == options
    assert {"--disable-log-requests", "--trust-remote-code"} <= set(leader["args"])
    variables = {
        "VLLM_EP_SIZE": "16", "VLLM_GRAPH_RESERVED_MEM": "0.2", "VLLM_GRAPH_PROMPT_RATIO": "0",
        "VLLM_MOE_N_SLICE": "8", "PT_HPU_LAZY_MODE": "1", "PT_HPU_WEIGHT_SHARING": "0",
        "PT_HPU_ENABLE_LAZY_COLLECTIVES": "true",
        "PT_HPUGRAPH_DISABLE_TENSOR_CACHE": "1", "VLLM_DELAYED_SAMPLING": "true",
        "RAY_IGNORE_UNHANDLED_ERRORS": "1", "VLLM_MLA_PERFORM_MATRIX_ABSORPTION": "0",
        "VLLM_MLA_DISABLE_REQUANTIZATION": "0",
        "VLLM_RAY_DISABLE_LOG_TO_DRIVER": "1", "GLOO_SOCKET_IFNAME": "eth0",
        "HCCL_SOCKET_IFNAME": "eth0",
    }  # fmt: skip
    env = {entry["name"]: entry.get("value") for entry in leader["env"]}
    assert {name: env.get(name) for name in variables} == variables
    # the device plugin says which cards a pod has
    assert not {"HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES"} & env.keys()


def measured(folder: Path, ranks: int) -> Path:
    """A QUANT_CONFIG with the measurements of so many ranks."""
    files = folder / "measured"
    files.mkdir()
    for rank in range(ranks):
        (files / f"inc_output_hooks_maxabs_{rank}_{ranks}.npz").touch()
    config = {
        "mode": "QUANTIZE",
        "observer": "maxabs",
        "dump_stats_path": str(files / "inc_output"),
    }
    path = folder / "quant.json"
    path.write_text(
        json.dumps({**config, "blocklist": {"types": ["VLLMKVCache"]}}), encoding="utf-8"
    )
    return path


@pytest.mark.parametrize(
    ("blocklist", "kept"), [({"types": ["VLLMKVCache"]}, "auto"), ({}, "fp8_inc")]
)
def test_the_cache_is_as_the_file_says(
    blocklist: dict[str, list[str]], kept: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """README.md of the scripts: bf16kv goes with auto, fp8kv with fp8_inc; what a file is called
    tells nothing."""
    config = measured(tmp_path, 16)
    config.write_text(
        json.dumps({**json.loads(config.read_text()), "blocklist": blocklist}), encoding="utf-8"
    )
    leader = leader_of(rendered(capsys, *TWO, "-q", "--quant-config", str(config)))
    assert following(leader["args"], "--kv-cache-dtype") == kept


@pytest.mark.parametrize(("ranks", "said"), [(16, []), (8, ["16"])])
def test_measurements_are_those_of_all_nodes(
    ranks: int, said: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """They hold for one number of cards: sixteen, of which a pod has eight."""
    config = measured(tmp_path, ranks)
    found = notes(capsys, *TWO, "-q", "--quant-config", str(config))
    lacking = [note["message"] for note in found if note["id"] == "quant.measurements_missing"]
    assert [next(word for word in text.split() if word.isdigit()) for text in lacking] == said
    held = [note["message"] for note in found if note["id"] == "kubernetes.weights"]
    assert [str(config) in text for text in held].count(True) == 1
    assert [str(tmp_path / "measured") in text for text in held].count(True) == 1
    leader = leader_of(rendered(capsys, *TWO, "-q", "--quant-config", str(config)))
    env = {entry["name"]: entry.get("value") for entry in leader["env"]}
    assert (env["QUANT_CONFIG"], env["VLLM_MOE_N_SLICE"]) == (str(config), "1")


def test_measurements_for_one_node_are_not_taken_for_two(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The profile knows published ones for eight cards; for sixteen there are none."""
    assert "QUANT_CONFIG" in {entry["name"] for entry in engine_env(rendered(capsys, *R1, "-q"))}
    assert "QUANT_CONFIG" not in {
        entry["name"] for entry in leader_of(rendered(capsys, *TWO, "-q"))["env"]
    }
    assert [note["id"] for note in notes(capsys, *TWO, "-q")].count("quant.none") == 1


def engine_env(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = main_of(text)["spec"]["template"]["spec"]["containers"][0]["env"]
    return found


def test_published_measurements_come_as_a_folder_also_before_they_are_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file mounted alone would name measurements that are in no pod."""
    engine = main_of(rendered(capsys, *R1, "-q"))["spec"]["template"]["spec"]["containers"][0]
    config = Path(
        next(entry["value"] for entry in engine["env"] if entry["name"] == "QUANT_CONFIG")
    )
    folder = str(config.parent)
    assert {"name": "weights", "mountPath": folder, "subPath": config.parent.name} in engine[
        "volumeMounts"
    ]
    held = [
        note["message"] for note in notes(capsys, *R1, "-q") if note["id"] == "kubernetes.weights"
    ]
    assert [folder in text for text in held].count(True) == 1


def test_an_evicted_worker_counts_as_much_as_a_leader(capsys: pytest.CaptureFixture[str]) -> None:
    """Either takes its group down, and a budget for leaders alone would let every worker be
    evicted at once."""
    found = objects(rendered(capsys, *TWO, "--replicas", "3"))
    budget = next(each for each in found if each["kind"] == "PodDisruptionBudget")["spec"]
    group = next(each for each in found if each["kind"] == "LeaderWorkerSet")["spec"][
        "leaderWorkerTemplate"
    ]
    for template in ("leaderTemplate", "workerTemplate"):
        assert (
            budget["selector"]["matchLabels"].items()
            <= group[template]["metadata"]["labels"].items()
        )
    assert budget["maxUnavailable"] == 1


def test_a_made_up_node_is_called_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its pool of huge pages is the one that the guide and the doctor ask for; a snapshot's node
    is real."""
    assert "kubernetes.assumed_node" in [note["id"] for note in notes(capsys, *R1)]
    resources = main_of(rendered(capsys, *R1))["spec"]["template"]["spec"]["containers"][0][
        "resources"
    ]
    assert resources["limits"]["hugepages-2Mi"] == f"{15000 * 2}Mi"
    assert run(["snapshot", "--machine", "simulated:hls2", str(tmp_path / "node.json")]) == 0
    capsys.readouterr()
    of_mine = [
        *(word for word in R1 if word not in ("--accelerator", "gaudi2")),
        "--machine",
        "node.json",
    ]
    assert "kubernetes.assumed_node" not in [note["id"] for note in notes(capsys, *of_mine)]


def test_weights_of_unknown_size_are_counted_as_what_the_cards_hold(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A model of 800 GB would outgrow a small guess: its claim, its memory, and above all its
    start-up budget."""
    words = (
        "-w",
        "someone/Unheard-405B",
        "-n",
        "8",
        "--engine",
        "vllm-fork@1.22",
        "--accelerator",
        "gaudi2",
    )
    found = objects(rendered(capsys, *words))
    claim = next(each for each in found if each["metadata"]["name"].endswith("-weights"))
    assert (
        claim["spec"]["resources"]["requests"]["storage"] == "950Gi"
    )  # 1.2 x 8 x 96 GiB, and what is beside it
    engine = main_of(rendered(capsys, *words))["spec"]["template"]["spec"]["containers"][0]
    # no more than a whole node's share, or no node would ever take it
    assert engine["resources"]["limits"]["memory"] == f"{int(1024 * 1024 * 0.9)}Mi"
    probe = engine["startupProbe"]
    # 800 GB at 100 MB/s from the hub, and 250 MB/s from the claim
    assert probe["failureThreshold"] * probe["periodSeconds"] > 800e9 / 0.1e9 + 800e9 / 0.25e9
    assert "kubernetes.no_weights" in [note["id"] for note in notes(capsys, *words)]
    assert "kubernetes.memory" not in [note["id"] for note in notes(capsys, *words)]
