"""``migrate`` and ``plan --tuning reference`` as a user runs them, over every recorded call of the scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.app import run
from gaudi_launch.messages import set_language
from tests.engines.test_reference import SCRIPTS, asks_too_much, comparable, records
from tests.host.machines import make_recorded, recorded_hosts, use

HLS2 = recorded_hosts()["hls2-idle"]


@pytest.fixture(autouse=True)
def _english(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GAUDI_LAUNCH_LANG", "en")
    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)
    yield
    set_language(None)


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run(list(arguments))
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert shown["schema"] == 1
    return code, shown


def without_time(plan: dict[str, Any]) -> dict[str, Any]:
    env = {
        name: re.sub(r"\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d", "@TIME@", value) if name == "VLLM_PROFILE_FILE" else value
        for name, value in plan["env"].items()
    }
    return {"env": env, "argv": plan["argv"], "modules": plan["modules"], "cpus": plan["cpus"]}


@pytest.mark.parametrize(("name", "record"), records())
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
    code, shown = document(capsys, "migrate", "--json", "--release", release, "--", "bash", script, *record["args"])
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
    code, planned = document(capsys, "plan", "--json", "--tuning", "reference", *shown["command"][at:])
    assert code == 0
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
        (["bash start_gaudi_vllm_server.sh -w /models/Qwen2-72B-Instruct -n 4"], "1.21"),
        (["VLLM_EP_SIZE=2 bash ./scripts/start_gaudi_vllm_server.sh -w m -t 4 -m 0,1,2,3 -a 0.0.0.0:80"], "1.22"),
        (["bash start_gaudi_vllm_server.sh -w m -t 2"], "1.22"),
        (["bash start_gaudi_vllm_server.sh -w m -t 8192"], "1.21"),
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


def test_an_assignment_in_front_is_honoured_and_kept(hls2: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = "VLLM_GRAPH_RESERVED_MEM=0.4 bash start_gaudi_vllm_server.sh -w /models/Qwen3-8B -i 2048"
    _, shown = document(capsys, "migrate", "--json", words)
    assert shown["plan"]["env"]["VLLM_GRAPH_RESERVED_MEM"] == "0.4"
    # the script knows no top for a range of one number, and takes its own
    assert shown["plan"]["env"]["VLLM_PROMPT_SEQ_BUCKET_MAX"] == "1152"
    assert shown["command"] == [
        *("env", "VLLM_GRAPH_RESERVED_MEM=0.4", "gaudi-launch", "serve", "--engine", "vllm-fork@1.21"),
        *("-w", "/models/Qwen3-8B", "-i", "2048"),
    ]


def test_differences_name_both_values_and_why(hls2: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = "bash start_gaudi_vllm_server.sh -w /models/QwQ-32B -n 8 -i 4,38000 -l 40960 -t 40960 -r 8,24000"
    _, shown = document(capsys, "migrate", "--json", words)
    rows = {row["name"]: row for row in shown["differences"]}
    top = rows["VLLM_PROMPT_SEQ_BUCKET_MAX"]
    # theirs ends below 24000, ours covers the whole context, tightly up to the hot length
    assert (top["reference"], top["ours"]) == ("24000", "40960")
    assert "length 24000" in top["reason"]
    assert rows["--trust-remote-code"]["ours"] is None
    assert all(row["reason"] for row in rows.values())


def test_for_people_in_both_languages(hls2: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = "bash start_gaudi_vllm_server.sh -w /models/QwQ-32B -n 8"
    for language, said in (("en", "--tuning reference"), ("zh", "脚本")):
        assert run(["--lang", language, "migrate", words]) == 0
        assert said in capsys.readouterr().out
