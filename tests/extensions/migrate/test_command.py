"""``migrate`` and ``plan --tuning reference`` as a user runs them, over recorded calls of the
scripts that have every option and variable."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from gaudi_launch.cli.main import run
from gaudi_launch.extensions.migrate.start_command import read_start, split_shell
from tests.support.cli import document
from tests.support.every_case import covering
from tests.support.machines import make_recorded, recorded_hosts, use
from tests.support.places import DATA
from tests.support.reference_scripts import (
    SCRIPTS,
    asks_too_much,
    comparable,
    records,
    traits,
)

pytestmark = pytest.mark.usefixtures("plain_english")

STARTS = yaml.safe_load((DATA / "start-commands.yaml").read_text(encoding="utf-8"))
HLS2 = recorded_hosts()["hls2-idle"]


def without_time(plan: dict[str, Any]) -> dict[str, Any]:
    env = {
        name: re.sub(r"\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d", "@TIME@", value)
        if name == "VLLM_PROFILE_FILE"
        else value
        for name, value in plan["env"].items()
    }
    return {"env": env, "argv": plan["argv"], "modules": plan["modules"], "cpus": plan["cpus"]}


# tests/extensions/vllm_fork/test_reference.py plans all of them
@pytest.mark.parametrize(("name", "record"), covering(records(), traits))
def test_migrate_and_plan_give_what_the_scripts_did(
    name: str,
    record: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use(monkeypatch, tmp_path, make_recorded(recorded_hosts()[record["host"]], tmp_path))
    for variable, value in record["env_in"].items():
        monkeypatch.setenv(variable, value)
    release, script = SCRIPTS[name]
    code, shown = document(
        capsys, "migrate", "--json", "--release", release, "--", "bash", script, *record["args"]
    )
    if not record["launched"] or asks_too_much(record):
        assert code in (2, 3)
        assert shown["error"]["message"]
        return
    assert code == 0
    assert shown["release"] == release
    assert shown["plan"]["argv"][1:] == record["argv"]
    ours = {**record["env_in"], **without_time(shown["plan"])["env"]}
    assert comparable(ours, record) == comparable(record["env"], record)
    # our own words mean the same
    at = shown["command"].index("serve") + 1
    code, planned = document(
        capsys, "plan", "--json", "--tuning", "reference", *shown["command"][at:]
    )
    # a check of the recorded machine may fail, which ends plan with 3
    assert code == (3 if planned["verdict"] == "refused" else 0)
    folder = {"QUANT_CONFIG", "INC_MEASUREMENT_DUMP_PATH_PREFIX"}
    left, right = without_time(planned), without_time(shown["plan"])
    for plan in (left, right):
        plan["env"] = {name: value for name, value in plan["env"].items() if name not in folder}
    assert left == right


@pytest.fixture
def hls2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tmp_path, make_recorded(HLS2, tmp_path))


@pytest.mark.parametrize(
    ("words", "release"),
    [
        (
            [
                (
                    "VLLM_EP_SIZE=2 bash ./scripts/start_gaudi_vllm_server.sh -w m -t 4 -m 0,1,2,3 "
                    "-a 0.0.0.0:80"
                )
            ],
            "1.22",
        ),
        (["bash quickstart/start_vllm.sh -q -c /cache"], "deepseek_r1"),
        (["--", "-w", "/data/DeepSeek-R1-0528-G2", "-b", "64"], "deepseek_r1"),
        (["bash start_gaudi_vllm_server.sh \\\n  -w m \\\n  -n 1 -i 4,100"], "1.21"),
        (["nohup bash /x/start_gaudi_vllm_server.sh -w m -n 2 > log 2>&1 &"], "1.21"),
    ],
)
def test_releases_are_told_apart(
    words: list[str], release: str, hls2: None, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = document(capsys, "migrate", "--json", *words)
    assert (code, shown["release"]) == (0, release)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["bash start_gaudi_vllm_server.sh"], "migrate.no_model"),
        (["bash start_gaudi_vllm_server.sh -h"], "migrate.only_help"),
        (["python3 -m vllm"], "migrate.unknown"),
        # a shell in an image, and programs that serve no text
        (["docker run -it vault.habana.ai/gaudi-docker/1.7.1/x:latest"], "migrate.unknown"),
        (["docker run opea/tei-gaudi:latest --model-id BAAI/bge-base-en-v1.5"], "migrate.unknown"),
        (["python run_generation.py --model_name_or_path m"], "migrate.unknown"),
        (["vllm serve --port 8000"], "migrate.model"),
        (["vllm serve $NO_SUCH_MODEL"], "migrate.model"),
        (["vllm serve <model>"], "migrate.model"),
        (["A=vllm"], "migrate.unknown"),
        (["./server.sh"], "migrate.unknown"),
        (["docker run opea/vllm-gaudi ./server.sh"], "migrate.model"),
        (["docker run opea/vllm-gaudi bash -c 'vllm serve \"m'"], "migrate.quoting"),
        (["services: [broken: {"], "migrate.quoting"),
        (
            ["services: {a: {image: vllm, command: {x: 1}, ports: 80, environment: x}}"],
            "migrate.model",
        ),
        (["python -m"], "migrate.unknown"),
        (["docker run -p 99999:80 opea/vllm-gaudi --model m"], "plan.number"),
        (["bash start_gaudi_vllm_server.sh -w 'm"], "migrate.quoting"),
        (["bash start_gaudi_vllm_server.sh -w m -n 2 rest"], "migrate.unknown"),
        (["bash start_gaudi_vllm_server.sh -w m -i 9,3 -n 1"], "plan.range"),
        (["bash start_gaudi_vllm_server.sh -w m -a 1.2.3.4:80 -l .5"], "plan.fraction"),
        (["bash start_gaudi_vllm_server.sh -w m -d int4"], "plan.dtype"),
    ],
)
def test_what_is_no_call_is_refused(
    words: list[str], error: str, hls2: None, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = document(capsys, "migrate", "--json", *words)
    assert (code, shown["error"]["id"]) == (2, error)


@pytest.mark.parametrize(
    ("command", "ours", "left"),
    [
        (
            "bash start_gaudi_vllm_server.sh -w Qwen/Qwen2-72B-Instruct -n 4 -l 8192 -e 8",
            "-w Qwen/Qwen2-72B-Instruct -n 4 -l 8192",
            "-e",
        ),
        (
            "bash start_vllm.sh -w deepseek-ai/DeepSeek-R1 -b 32",
            "-w deepseek-ai/DeepSeek-R1 -n 8 -b 32 --trust-remote-code",
            None,
        ),
        (
            "python -m vllm.entrypoints.openai.api_server --model Qwen/QwQ-32B -tp 4 --seed 1 "
            "--use-v2-block-manager",
            "-w Qwen/QwQ-32B -p 8000 -n 4 -- --seed 1",
            "--use-v2-block-manager",
        ),
        (
            "text-generation-launcher --model-id Qwen/QwQ-32B --num-shard 4 --max-input-tokens 99",
            "-w Qwen/QwQ-32B -n 4",
            "--max-input-tokens 99",
        ),
    ],
)
def test_an_old_command_is_converted_straight_to_another_engine(
    command: str, ours: str, left: str | None, hls2: None, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = document(capsys, "migrate", "--json", "--engine", "vllm-gaudi", command)
    words = shlex.join(shown["command"])
    assert (code, words) == (0, f"gaudi-launch serve --engine vllm-gaudi {ours}")
    notes = {note["id"]: note["message"] for note in shown["notes"]}
    assert notes.get("migrate.unread", "").rpartition(": ")[2] == (left or "")
    code, planned = document(capsys, "plan", "--json", *shown["command"][2:])
    assert (code, planned["argv"]) == (0, shown["plan"]["argv"])


@pytest.mark.parametrize("case", STARTS, ids=lambda case: case["thread"])
def test_the_start_command_of_a_public_thread_is_ours(
    case: dict[str, Any], hls2: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = document(capsys, "migrate", "--json", case["command"])
    ends = "yaml" if "image:" in case["command"] else "sh"
    (tmp_path / f"start.{ends}").write_text(case["command"])
    assert document(capsys, "migrate", "--json", str(tmp_path / f"start.{ends}")) == (code, shown)
    assert (code, shlex.join(shown["command"])) == (0, case["ours"])
    said = {note["id"]: note["message"] for note in shown["notes"]}
    for id in ("unread", "container"):
        assert said.get(f"migrate.{id}", "").endswith(case.get(id, "")), id
        assert (f"migrate.{id}" in said) is (id in case)
    assert "hf_secret" not in str(shown)


@pytest.mark.parametrize("spaced", [True, False])
@pytest.mark.parametrize("before", ["", "export A=1; ", "export A=1\n", "# it's a line\nA=1 && "])
@pytest.mark.parametrize(
    "after",
    ["", "; sleep 3", " > log 2>&1 &", " 2>/dev/null", " | tee log", "\ncurl -d '{}'\n", " # it's"],
)
def test_what_a_shell_reads_is_no_part_of_the_command(
    before: str, after: str, spaced: bool
) -> None:
    engine = ["vllm", "serve", "M", "--hf-overrides", '{"a;": "b>c&d|e"}']
    command = f"{shlex.join(engine)} --tokenizer $(pwd)/t \\\n  --port 8000"
    text = before + command + (after if spaced or after == " # it's" else after.lstrip(" "))
    # "80002>/dev/null" is a number, in a shell too
    text = text.replace("80002>", "8000 2>")
    found = read_start(split_shell(text), {"PWD": "/here"})
    assert found is not None
    assert found.words == [*engine[2:], "--tokenizer", "/here/t", "--port", "8000"]
    assert found.variables == ({"A": "1"} if before else {}) and found.unread == []


def test_an_engines_command_is_what_the_plan_of_ours_gives(
    hls2: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # plan sets the variables of the command for itself
    monkeypatch.setenv("VLLM_SKIP_WARMUP", "false")
    words = "VLLM_SKIP_WARMUP=true vllm serve Qwen/Qwen3-8B -tp 2 --seed 7"
    _, shown = document(capsys, "migrate", "--json", words)
    code, planned = document(capsys, "plan", "--json", words)
    assert code == 0
    assert planned["env"]["VLLM_SKIP_WARMUP"] == "true"
    assert planned["argv"] == shown["plan"]["argv"]
    rows = {row["name"]: (row["reference"], row["ours"]) for row in shown["differences"]}
    assert "--tensor-parallel-size" not in rows and "--seed" not in rows
    assert rows["--max-num-seqs"] == (None, "128")


def test_an_assignment_in_front_is_honoured_and_kept(
    hls2: None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "VLLM_GRAPH_RESERVED_MEM=0.4 bash start_gaudi_vllm_server.sh -w /models/Qwen3-8B -i 2048"
    )
    _, shown = document(capsys, "migrate", "--json", words)
    assert shown["plan"]["env"]["VLLM_GRAPH_RESERVED_MEM"] == "0.4"
    # the script knows no top for a range of one number, and takes its own
    assert shown["plan"]["env"]["VLLM_PROMPT_SEQ_BUCKET_MAX"] == "1152"
    assert shown["command"] == [
        *("env", "VLLM_GRAPH_RESERVED_MEM=0.4", "gaudi-launch", "serve"),
        *("--engine", "vllm-fork@1.21"),
        *("-w", "/models/Qwen3-8B", "-i", "2048"),
    ]


def test_differences_name_both_values_and_why(
    hls2: None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "bash start_gaudi_vllm_server.sh -w /models/QwQ-32B -n 8 -i 4,38000 -l 40960 -t 40960 -r "
        "8,24000"
    )
    _, shown = document(capsys, "migrate", "--json", words)
    rows = {row["name"]: row for row in shown["differences"]}
    top = rows["VLLM_PROMPT_SEQ_BUCKET_MAX"]
    # theirs ends below 24000, ours covers the whole context, tightly up to the hot length
    assert (top["reference"], top["ours"]) == ("24000", "40960")
    assert "length 24,000" in top["reason"]
    assert rows["--trust-remote-code"]["ours"] is None
    assert all(row["reason"] for row in rows.values())


R1 = (
    "bash start_vllm.sh -w /models/DeepSeek-R1-0528-G2 -q -u 127.0.0.1 -p 8688 -b 128 -l 16384 "
    "-c /models/cache"
)


def test_code_that_the_model_brings_stays_agreed_to(
    hls2: None, capsys: pytest.CaptureFixture[str]
) -> None:
    _, shown = document(capsys, "migrate", "--json", R1)
    assert "--trust-remote-code" in shown["command"]
    assert [row for row in shown["differences"] if row["name"] == "--trust-remote-code"] == []


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("{}", "contains no Python code"),
        ('{"auto_map": {}}', "contains no Python code"),
        (None, "it is unknown"),
    ],
)
def test_code_that_is_not_there_is_left_out_for_that_reason(
    config: str | None, reason: str, hls2: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    if config is not None:
        folder.mkdir()
        (folder / "config.json").write_text(config)
    words = f"bash start_gaudi_vllm_server.sh -w {folder} -n 1"
    _, shown = document(capsys, "migrate", "--json", words)
    rows = {row["name"]: row for row in shown["differences"]}
    assert "--trust-remote-code" not in shown["command"]
    assert reason in rows["--trust-remote-code"]["reason"]


def test_a_machine_without_cards_is_replaced_by_a_simulated_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, tmp_path)
    words = "bash start_gaudi_vllm_server.sh -w /models/QwQ-32B -n 8"
    code, shown = document(capsys, "migrate", "--json", words)
    assert code == 0
    assert shown["machine"] == "simulated:hls2"
    assert [note["id"] for note in shown["notes"]] == ["migrate.no_cards", "plan.name_listed"]
    assert run(["migrate", words]) == 0
    assert "simulated:hls2" in capsys.readouterr().out
    # a machine that was named is not replaced
    assert run(["migrate", "--machine", "simulated:hls2+no-driver", words]) == 3


def _deliberate(shown: dict[str, Any]) -> dict[str, str]:
    return {each["id"]: each["message"] for each in shown["reference_differences"]}


def test_reference_tuning_lists_what_differs_on_purpose(
    hls2: None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "bash start_gaudi_vllm_server.sh -w /models/Qwen2-72B-Instruct -n 4 -m 0,1,2,3"
    _, shown = document(capsys, "migrate", "--json", words)
    found = _deliberate(shown)
    always = ["reference.busy", "reference.exit_code", "reference.shell"]
    assert list(found) == ["reference.cpus", *always]
    # as recorded: numactl -C 0-9,10-19,20-29,30-39
    assert "0-39,80-119" in found["reference.cpus"]
    assert "script binds 0-39," in found["reference.cpus"]
    at = shown["command"].index("serve") + 1
    _, planned = document(capsys, "plan", "--json", "--tuning", "reference", *shown["command"][at:])
    assert planned["reference_differences"] == shown["reference_differences"]
    _, auto = document(capsys, "plan", "--json", *shown["command"][at:])
    assert "reference_differences" not in auto


def test_the_deepseek_script_differs_less(hls2: None, capsys: pytest.CaptureFixture[str]) -> None:
    _, shown = document(capsys, "migrate", "--json", R1)
    assert list(_deliberate(shown)) == ["reference.busy_deepseek"]


def test_differences_are_shown_to_people(hls2: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = "bash start_gaudi_vllm_server.sh -w /models/QwQ-32B -n 8"
    assert run(["migrate", "--all", words]) == 0
    assert "Deliberate differences from the start script" in capsys.readouterr().out
    plan = "plan --tuning reference --engine vllm-fork@1.21 -w QwQ-32B -n 8"
    assert run(plan.split()) == 0
    assert "4 deliberate differences from the start script: add --all." in capsys.readouterr().out
    assert run([*plan.split(), "--all"]) == 0
    assert "Deliberate differences from the start script" in capsys.readouterr().out
