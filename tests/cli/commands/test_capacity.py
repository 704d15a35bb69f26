"""``capacity`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from tests.support.capacity import few_requests
from tests.support.cli import document
from tests.support.speed import within
from tests.support.traces import made_up

# tests/capacity/test_search.py and scripts/acceptance/recommend.py take as many requests as users
pytestmark = pytest.mark.usefixtures("plain_english", "few_requests")

__all__ = ["few_requests"]

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
RANGES = ("-i", "100,2000", "-o", "20,200", "--accelerator", "gaudi2")


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    rows = "".join(f"{when},{tokens},{output}\n" for when, tokens, output in made_up(600))
    path.write_text("t_seconds,input_tokens,output_tokens\n" + rows)
    return str(path)


def test_json_has_the_promised_shape(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = document(
        capsys,
        "capacity",
        LLAMA,
        *RANGES,
        "--rate",
        "100/s",
        "--ttft",
        "1",
        "--tpot",
        "50ms",
        "-n",
        "1,2",
    )
    assert code == 0
    assert (shown["schema"], shown["rate"], shown["cards_per_node"]) == (1, 100.0, 8)
    assert shown["targets"] == {"ttft": 1.0, "tpot": 0.05, "percentile": 95.0, "e2e": None}
    chosen = shown["chosen"]
    latencies = {"ttft", "tpot", "e2e"}
    assert set(chosen) == {
        "cards_per_replica",
        "replicas",
        "cards",
        "nodes",
        "rate_per_replica",
        "band",
        *latencies,
    }
    band = chosen["band"]["cards"]
    assert band["low"] <= band["expected"] == chosen["cards"] <= band["high"]
    assert chosen["cards"] == chosen["replicas"] * chosen["cards_per_replica"]
    assert chosen["replicas"] * chosen["rate_per_replica"] >= 100
    assert chosen["ttft"] <= 1 and chosen["tpot"] <= 0.05
    assert chosen["cards"] == min(choice["fleet"]["cards"] for choice in shown["choices"])
    curve = shown["choices"][0]["curve"]
    assert len(curve) == 19 and set(curve[0]) == {
        "rate",
        "share",
        "output_tokens",
        "inside",
        *latencies,
    }
    assert {"capacity.assume_cost", "capacity.assume_split", "capacity.assume_ranges"} <= {
        said["id"] for said in shown["assumptions"]
    }


def test_clients_and_the_latency_of_complete_answers_are_targets_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = (
        "capacity",
        LLAMA,
        *RANGES,
        "--concurrency",
        "500",
        "--e2e",
        "6s",
        "-n",
        "1",
        "--engine",
        "vllm-gaudi",
    )
    code, shown = document(capsys, *words)
    assert (code, shown["concurrency"], shown["rate"], shown["targets"]["e2e"]) == (
        0,
        500,
        0.0,
        6.0,
    )
    chosen, choice = shown["chosen"], shown["choices"][0]
    assert chosen["replicas"] * chosen["rate_per_replica"] >= 500
    assert chosen["e2e"] <= 6
    assert choice["max_num_seqs"] >= chosen["rate_per_replica"]
    # the loads are numbers of clients
    assert [load["inside"] for load in choice["curve"]][:4] == [1, 2, 3, 4]
    code, both = document(capsys, *words, "--rate", "5")
    assert (code, both["error"]["id"]) == (2, "capacity.one_demand")


@pytest.mark.parametrize("engine", ["vllm-gaudi", "vllm-fork@1.22"])
def test_prompts_per_step_are_those_of_the_plan(
    capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    lengths = ("-i", "30,128", "-o", "4,32", "-l", "256", "-b", "32", "--engine", engine)
    planned = document(capsys, "plan", LLAMA, *lengths, "--machine", "simulated:hls2", "-n", "1")[1]
    names = ("--max-num-prefill-seqs", "VLLM_PROMPT_BS_BUCKET_MAX")
    wanted = [setting for setting in planned["settings"] if setting["name"] in names][-1]
    words = ("capacity", LLAMA, *lengths, "--rate", "100/s", "-n", "1", "--accelerator", "gaudi2")
    found = document(capsys, *words)[1]["choices"][0]
    assert found["prompts_per_step"] == int(wanted["value"]) > 1


def test_prompts_per_step_follow_the_lengths_of_a_trace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "chat.csv"
    rows = [f"{number},{40 + number % 60},{8 + number % 16}" for number in range(300)]
    rows.append("300,1900,100")
    path.write_text("\n".join(["t_seconds,input_tokens,output_tokens", *rows]) + "\n")
    words = (
        "capacity",
        LLAMA,
        "--rate",
        "100/s",
        "-n",
        "1",
        "--accelerator",
        "gaudi2",
        "--engine",
        "vllm-gaudi",
    )
    ranges = ("-i", "40,1900", "-o", "8,100", "-b", "32")
    found = document(capsys, *words, "--trace", str(path), "-b", "32")[1]["choices"][0]
    assert (
        found["prompts_per_step"]
        > 1
        == document(capsys, *words, *ranges)[1]["choices"][0]["prompts_per_step"]
    )


def test_without_b_the_batch_is_searched(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("capacity", LLAMA, *RANGES, "--rate", "100/s", "-n", "1", "--engine", "vllm-gaudi")
    found = document(capsys, *words)[1]["choices"][0]
    small = document(capsys, *words, "-b", "8")[1]["choices"][0]
    assert small["max_num_seqs"] == 8 < found["max_num_seqs"]
    assert found["fleet"]["cards"] < small["fleet"]["cards"]
    # a plan for vllm-gaudi mixes prompts into steps of its budget
    said = {each["id"] for each in document(capsys, *words, "-b", "8")[1]["assumptions"]}
    assert {"capacity.assume_v1", "capacity.assume_padding"} <= said


def test_ten_thousand_nodes_take_seconds(capsys: pytest.CaptureFixture[str], trace: str) -> None:
    words = (
        "--trace",
        trace,
        "--rate",
        "200000/s",
        "--accelerator",
        "gaudi2",
        "-n",
        "1",
        "--nodes",
        "1,10000",
    )
    with within(20):
        code, shown = document(capsys, "capacity", LLAMA, *words)
    assert code == 0
    assert shown["chosen"]["nodes"] > 1000
    one, all_ = shown["carried"]
    assert (all_["nodes"], all_["replicas"]) == (10_000, 10_000 * one["replicas"])
    assert all_["rate"] == pytest.approx(10_000 * one["rate"], rel=1e-3)


def test_the_rate_is_the_traces_own(capsys: pytest.CaptureFixture[str], trace: str) -> None:
    code, shown = document(
        capsys, "capacity", LLAMA, "--trace", trace, "-n", "1", "--accelerator", "gaudi2"
    )
    assert code == 0
    # made up at four a second
    assert shown["rate"] == pytest.approx(4, rel=0.1)
    assert {"capacity.rate_of_trace", "capacity.busiest", "capacity.of_trace"} <= {
        said["id"] for said in shown["assumptions"]
    }
    # long enough for every request of the trace
    assert shown["choices"][0]["refused"] == 0
    code, burst = document(
        capsys,
        "capacity",
        LLAMA,
        "--trace",
        trace,
        "-n",
        "1",
        "--accelerator",
        "gaudi2",
        "--arrivals",
        "trace",
    )
    assert "capacity.of_trace_own" in {said["id"] for said in burst["assumptions"]}


def test_a_trace_without_times_has_no_rate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "lengths.jsonl"
    path.write_text('{"prompt_tokens": 100, "completion_tokens": 20}\n' * 50)
    words = (LLAMA, "--trace", str(path), "-n", "1", "--accelerator", "gaudi2")
    for more, id in (
        ((), "capacity.no_rate"),
        (("--rate", "5", "--arrivals", "trace"), "capacity.arrivals"),
    ):
        code, shown = document(capsys, "capacity", *words, *more)
        assert (code, shown["error"]["id"]) == (2, id)
    assert document(capsys, "capacity", *words, "--rate", "5")[0] == 0


def test_longer_requests_are_refused_and_said(
    capsys: pytest.CaptureFixture[str], trace: str
) -> None:
    code, shown = document(
        capsys,
        "capacity",
        LLAMA,
        "--trace",
        trace,
        "-n",
        "1",
        "--accelerator",
        "gaudi2",
        "-l",
        "1024",
        "--rate",
        "5",
    )
    assert code == 0
    assert 0.1 < shown["choices"][0]["refused"] < 0.9
    assert "capacity.refused" in {said["id"] for said in shown["assumptions"]}


def test_no_fleet_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("Qwen/Qwen2-72B-Instruct", *RANGES, "--rate", "10", "--tpot", "1ms", "-n", "1,4")
    code, shown = document(capsys, "capacity", *words)
    assert (code, shown["chosen"], shown["carried"]) == (1, None, [])
    assert ["GiB" in shown["choices"][0]["why_not"], "idle" in shown["choices"][1]["why_not"]] == [
        True,
        True,
    ]
    assert run(["capacity", *words]) == 1
    assert "No number of replicas meets the targets" in capsys.readouterr().out
    # three cards cannot share the heads: no target has anything to do with that
    assert run(["capacity", LLAMA, *RANGES, "--rate", "10", "-n", "3"]) == 1
    assert "targets:" not in capsys.readouterr().out


def test_a_replica_over_two_nodes_says_what_is_not_in_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, shown = document(
        capsys,
        "capacity",
        "deepseek-ai/DeepSeek-R1",
        *RANGES,
        "--rate",
        "5",
        "-n",
        "16",
        "-l",
        "4096",
        "-b",
        "64",
    )
    assert code == 0
    assert shown["chosen"]["nodes"] == 2 * shown["chosen"]["replicas"]
    assert "capacity.assume_links" in {said["id"] for said in shown["assumptions"]}


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("capacity", LLAMA, *RANGES, "--rate", "3000/m", "--ttft", "1", "-n", "1")
    assert run([*words]) == 0
    page = capsys.readouterr().out
    for part in (
        "50 requests/s, 95 % within TTFT 1 s",
        "Needed: ",
        "Assumed: step times",
    ):
        assert part in page
    assert run([*words, "--lang", "zh"]) == 0
    assert "需要：" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "id"),
    [
        ((LLAMA, "--rate", "5"), 2, "capacity.no_traffic"),
        ((LLAMA, *RANGES), 2, "capacity.no_rate"),
        ((LLAMA, *RANGES, "--rate", "many"), 2, "capacity.bad_rate"),
        ((LLAMA, *RANGES, "--rate", "5/week"), 2, "capacity.bad_rate"),
        ((LLAMA, *RANGES, "--rate", "-5"), 2, "capacity.bad_rate"),
        ((LLAMA, *RANGES, "--rate", "1e99"), 2, "capacity.bad_rate"),
        ((LLAMA, *RANGES, "--rate", "5", "--ttft", "soon"), 2, "capacity.bad_time"),
        ((LLAMA, *RANGES, "--rate", "5", "--tpot", "0"), 2, "capacity.bad_time"),
        ((LLAMA, *RANGES, "--rate", "5", "--percentile", "100"), 2, "capacity.bad_percentile"),
        ((LLAMA, *RANGES, "--rate", "5", "--arrivals", "trace"), 2, "capacity.arrivals"),
        ((LLAMA, *RANGES, "--rate", "5", "--constant", "speed=1"), 2, "warmup.bad_constant"),
        ((LLAMA, *RANGES, "--rate", "5", "-n", "0"), 2, "plan.number"),
        ((LLAMA, *RANGES, "--rate", "5", "--nodes", "x"), 2, "plan.number"),
        ((LLAMA, *RANGES, "--rate", "5", "-d", "int3"), 2, "fit.dtype"),
        ((LLAMA, *RANGES, "--rate", "5", "--engine", "sglang"), 2, "fit.engine"),
        ((LLAMA, "--rate", "5", "--trace", "/nowhere.csv"), 2, "warmup.trace_unreadable"),
        (
            (LLAMA, "-i", "1,9", "-o", "1,9", "--rate", "5", "--accelerator", "inf2.48xlarge"),
            2,
            "fit.accelerator",
        ),
        (("nothing", *RANGES, "--rate", "5"), 5, "models.sizes_unknown"),
    ],
)
def test_wrong_input_is_a_sentence(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, id: str
) -> None:
    found, shown = document(capsys, "capacity", *arguments)
    assert (found, shown["error"]["id"], shown["error"]["exit_code"]) == (code, id, code)


@pytest.mark.parametrize("engine", ["", "vllm-fork@1.22", "vllm-gaudi", "tgi@3.2.3"])
def test_lengths_and_blocks_are_those_of_fit(
    capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    words = (LLAMA, *RANGES, "-n", "1", *(("--engine", engine) if engine else ()))
    code, shown = document(capsys, "capacity", *words, "--rate", "1/s")
    assert code == 0
    assert run(["fit", *words, "-d", "bfloat16", "--json"]) == 0
    fitted = json.loads(capsys.readouterr().out)
    names = ("engine", "max_model_len")
    assert {name: shown[name] for name in names} == {name: fitted[name] for name in names}
    assert shown["choices"][0]["kv_blocks"] == fitted["rows"][0]["kv_blocks"]


@pytest.mark.parametrize("engine", ["vllm-gaudi", "tgi"])
def test_an_engine_serves_every_request_of_a_trace(
    capsys: pytest.CaptureFixture[str], trace: str, engine: str
) -> None:
    """Also where a prompt is longer than the engine's own default of a step or of an input."""
    words = ("--trace", trace, "-n", "1", "--accelerator", "gaudi2", "--engine", engine)
    code, shown = document(capsys, "capacity", LLAMA, *words)
    assert (code, shown["choices"][0]["refused"]) == (0, 0)


def unsized(folder: Path, method: str) -> str:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
        "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192, "vocab_size": 128256,
        "quantization_config": {"quant_method": method},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize("method", ["compressed-tensors", "modelopt"])
def test_weights_of_unknown_size_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, method: str
) -> None:
    folder = unsized(tmp_path, method)
    common = ("--accelerator", "gaudi2", "--engine", "vllm-gaudi@0.26.0", "-n", "1")
    demand = (*RANGES, "--rate", "1/s", "-b", "4")
    code, shown = document(capsys, "capacity", folder, *demand, *common)
    assert (code, shown["error"]["id"]) == (5, "fit.no_type_size")
    code, shown = document(capsys, "estimate", folder, *common)
    assert (code, shown["error"]["id"]) == (5, "estimate.no_type")
    code, shown = document(capsys, "fit", folder, *common)
    assert (code, shown["smallest_n"]) == (0, None)
    assert run(["fit", folder, *common]) == 0
    assert "It is unknown whether a combination fits" in " ".join(capsys.readouterr().out.split())
    assert document(capsys, "capacity", folder, *demand, *common, "-d", "bf16")[0] == 0


def test_an_embedding_model_is_refused_in_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """No published figure says how quick one is, and the simulator generates."""
    folder = tmp_path / "Qwen3-Embedding-8B"
    folder.mkdir()
    config = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096,
        "intermediate_size": 12288, "num_attention_heads": 32, "num_hidden_layers": 36,
        "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
        "vocab_size": 151665,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    code = run(["capacity", str(folder), *RANGES, "--rate", "1/s", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert (code, said["error"]["id"]) == (5, "capacity.pooling")
