"""``plan`` as a user runs it: text, JSON, both languages, wrong input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.messages import catalogue
from tests.support.cli import golden, output, stripped

MACHINE = ("--machine", "simulated:hls2")
ENGINE = ("--engine", "vllm-fork@1.21")


pytestmark = pytest.mark.usefixtures("plain_english")


@pytest.fixture
def model(current_folder: Path, tmp_path: Path) -> str:
    folder = tmp_path / "Qwen3-30B-A3B"
    folder.mkdir()
    facts = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "num_hidden_layers": 48,
        "hidden_size": 2048,
        "num_experts": 128,
        "max_position_embeddings": 40960,
        "vocab_size": 151936,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(facts))
    return folder.name


WISHES = ("-n", "4", "-i", "4,38000", "-l", "40960", "-r", "8,24000", "-c", "/cache")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_for_people(model: str, language: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(
        capsys, "plan", *MACHINE, *ENGINE, "-w", model, *WISHES, "--all", "--lang", language
    )
    assert code == 0
    # the cache's key contains the folder
    same = re.sub("/cache/[0-9a-f]{16}", "/cache/KEY", out.replace(f"{Path.cwd()}/", ""))
    golden(f"plan-{language}.txt", stripped(same))


def test_json_has_what_the_design_names(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = output(capsys, "plan", *MACHINE, *ENGINE, "-w", model, *WISHES, "--json")
    shown = json.loads(out)
    assert (code, err) == (0, "")
    named = (
        "schema engine model modules cpus numa_nodes env argv buckets memory estimate settings "
        "warnings"
    )
    assert set(named.split()) <= set(shown)
    assert shown["modules"] == [0, 1, 2, 3]
    assert shown["buckets"]["graphs"] == len(shown["buckets"]["prompt"]) + len(
        shown["buckets"]["decode"]
    )
    assert shown["estimate"]["warmup_seconds"]["low"] < shown["estimate"]["warmup_seconds"]["high"]
    sent = {
        s["name"]: s["value"]
        for s in shown["settings"]
        if s["kind"] == "env" and s["source"] != "engine"
    }
    assert sent == shown["env"]
    assert all(s["reason"] for s in shown["settings"])


def test_words_behind_the_dashes_go_through_untouched(capsys: pytest.CaptureFixture[str]) -> None:
    extra = ("--enable-prefix-caching", "--port", "9000", "a b", "$(id)")
    _, out, _ = output(
        capsys, "plan", *MACHINE, *ENGINE, "-w", "m", "-n", "1", "--json", "--force", "--", *extra
    )
    shown = json.loads(out)
    assert tuple(shown["argv"][-5:]) == extra
    assert shown["url"] == "http://127.0.0.1:9000"


def test_a_plan_for_an_assumed_engine_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    empty = tmp_path / "python"
    empty.write_text('#!/bin/sh\necho \'gaudi-launch-answer:{"packages": {}, "facts": {}}\'\n')
    empty.chmod(0o755)
    words = ("-w", "m", "-n", "1", "--python", str(empty))
    _, out, _ = output(capsys, "plan", *MACHINE, *words, "--json")
    shown = json.loads(out)
    assert (shown["engine"]["name"], shown["engine"]["version"]) == ("vllm-gaudi", "0.26.0")
    assert shown["warnings"][0]["id"] == "plan.no_engine"


LETTERS = [
    "-n",
    "-m",
    "-p",
    "-d",
    "-i",
    "-o",
    "-t",
    "-l",
    "-b",
    "-e",
    "-r",
    "--padding-limit",
    "--max-capture-len",
]


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(given_=st.dictionaries(st.sampled_from(LETTERS), st.text(max_size=12), max_size=4))
def test_any_text_is_answered_with_a_sentence(
    capsys: pytest.CaptureFixture[str], given_: dict[str, str]
) -> None:
    words = [
        f"{flag}={text}" if flag.startswith("--") else flag + text for flag, text in given_.items()
    ]
    code, out, err = output(capsys, "plan", *MACHINE, *ENGINE, "-w", "m", "--json", *words)
    assert code in (0, 2, 3, 5)
    assert "Traceback" not in out + err


def test_every_sentence_is_there_in_both_languages() -> None:
    english, chinese = catalogue("en"), catalogue("zh")
    for area in ("plan.", "engines.", "migrate."):
        mine = {id for id in english if id.startswith(area)}
        assert mine
        assert mine == {id for id in chinese if id.startswith(area)}


def test_a_plan_that_binds_no_cpus_gives_no_reason_for_some(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["-w", "meta-llama/Llama-3.1-8B-Instruct", "-n", "1", "--machine", "simulated:hls2"]
    assert (
        run(["plan", *words, "--engine", "vllm-fork@1.21", "--tuning", "reference", "--all"]) == 0
    )
    out, _ = capsys.readouterr()
    assert "CPUs       not bound" in out and "the cards' share" not in out


@pytest.mark.parametrize("engine", ["vllm-fork@1.22", "deepseek_r1"])
def test_a_padding_limit_of_a_script_names_its_option(
    engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = (
        "deepseek-ai/DeepSeek-R1" if engine == "deepseek_r1" else "meta-llama/Llama-3.1-8B-Instruct"
    )
    words = [
        *("-w", model, "-n", "8", "--machine", "simulated:hls2", "--engine", engine),
        *("--padding-limit", "0"),
    ]
    assert run(["plan", *words, "--tuning", "reference", "--json"]) == 0
    out, _ = capsys.readouterr()
    settings = {each["name"]: each for each in json.loads(out)["settings"]}
    assert "--padding-limit" in settings["VLLM_PROMPT_SEQ_BUCKET_LIMIT"]["reason"]


def test_a_plan_imports_nothing_that_runs_services() -> None:
    program = (
        "import sys, contextlib, io\nfrom gaudi_launch.cli.main import run\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    code = run('plan -w Qwen/Qwen3-8B -n 1 --machine simulated:hls2 --json'.split())\n"
        "print(code, [name for name in sys.modules if "
        "name.startswith('gaudi_launch.core.services.process')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0 []\n"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An eight-card server as this machine; its interpreters have no engine."""
    root = tmp_path / "server"
    assert run(["devices", "snapshot", "--machine", "simulated:hls2", "--tree", str(root)]) == 0
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(root))
    monkeypatch.setenv("PATH", f"{root / 'bin'}:/usr/bin:/bin")
    return root


def test_what_is_left_to_do_has_its_commands_and_is_no_warning(
    server: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    options = ("Qwen/Qwen3-8B", "-n", "1", "-d", "fp8")
    code, out, _ = output(capsys, "plan", *options, "--json")
    found = json.loads(out)
    target = str(tmp_path / "data/gaudi-launch/models/Qwen/Qwen3-8B")
    assert (code, found["verdict"]) == (0, "to do")
    # a small disk of this machine has a line and a warning of its own
    assert [each["command"] for each in found["todo"] if each["id"] != "prepare.room"] == [
        ["gaudi-launch", "setup", "vllm-gaudi"],
        ["gaudi-launch", "pull", "Qwen/Qwen3-8B", "--to", target],
        ["gaudi-launch", "fp8", "calibrate", "Qwen/Qwen3-8B", "-n", "1"],
    ]
    ids = {each["id"] for each in found["warnings"]} - {"cache.limit_small"}
    assert ids == {"engines.known_problem"}
    code, out, _ = output(capsys, "plan", *options)
    assert code == 0
    assert out.splitlines()[1] == "next: gaudi-launch setup vllm-gaudi"
    # the same machine, by the doctor and by serve
    code, out, _ = output(capsys, "doctor")
    assert code == 3 and "FAIL    Engine: " in out
    assert run(["serve", *options]) == 3


def test_a_failed_check_that_nothing_mends_is_named_first(
    server: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    arguments = server / "proc/cmdline"
    arguments.write_text(arguments.read_text().replace("iommu=pt", "iommu=strict"))
    options = ("Qwen/Qwen3-8B", "-n", "1")
    code, out, _ = output(capsys, "plan", *options)
    lines = out.splitlines()
    assert (code, lines[0].partition(":")[0]) == (3, "serve would stop on this machine")
    assert "next: gaudi-launch doctor --only kernel.iommu" in lines
    cause = lines[0].partition(": ")[2][:30]
    assert cause and cause not in "\n".join(lines[1:])
    code, out, _ = output(capsys, "plan", *options, "--json")
    assert (code, json.loads(out)["verdict"]) == (3, "refused")
    # another machine's checks do not decide on this one
    code, out, _ = output(capsys, "plan", *options, *MACHINE, "--json")
    assert (code, json.loads(out)["verdict"]) == (0, "to do")


def test_measurements_that_docker_would_mount_as_empty_folders_are_to_do(
    current_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path("quantization_config/maxabs_quant.json")
    options = ("/m/Llama-3.1-8B", "-n", "1", "--engine", "tgi@3.2.3", "--quant-config", str(file))

    def left() -> list[str]:
        _, out, _ = output(capsys, "plan", *MACHINE, *options, "--json")
        return [each["what"] for each in json.loads(out)["todo"]]

    first = f"For fp8 these are missing: {tmp_path / file}, {tmp_path / 'hqt_output'}."
    assert [each.startswith(first) for each in left()] == [True]
    file.parent.mkdir()
    file.write_text("{}")
    assert [each.startswith(first.replace(f"{tmp_path / file}, ", "")) for each in left()] == [True]
    Path("hqt_output").mkdir()
    assert left() == []
    _, _, err = output(capsys, "render", "docker", *MACHINE, *options, "--name", "x")
    assert "hqt_output" not in err
