"""``engines`` and a plan for vllm-gaudi as a user runs them: text, JSON, both languages, wrong
input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.core.base.messages import catalogue
from gaudi_launch.core.engines import entries
from tests.support.cli import output
from tests.support.engines import interpreter

PLAN = (
    *("plan", "--engine", "vllm-gaudi", "-w", "/models/Qwen2-72B-Instruct", "-n", "4"),
    *("-l", "8192"),
)
MACHINE = ("--machine", "simulated:hls2")


pytestmark = pytest.mark.usefixtures("plain_english")


def test_every_engine_says_what_it_serves_and_what_means_nothing_to_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    python = interpreter(tmp_path, {"vllm": "0.26.0", "vllm-gaudi": "0.26.0"}, {})
    code, out, _ = output(capsys, "engines", "--python", python, "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(out)["engines"]}
    assert list(rows) == list(entries.ENGINES)
    plugin = rows["vllm-gaudi"]
    assert (plugin["installed"], plugin["packages"]) == (
        python,
        {"vllm": "0.26.0", "vllm-gaudi": "0.26.0"},
    )
    assert {"chat", "embed", "rerank", "vision", "fp8"} <= set(plugin["can"])
    assert "-e" in plugin["lacks"]
    assert [n for n, row in rows.items() if "--tuning reference" in row["lacks"]] == [
        "vllm-gaudi",
        "cpu",
        "simulated",
        "ray-serve",
    ]
    words = {f"engines.can_{word}" for row in rows.values() for word in row["can"]}
    for language in ("en", "zh"):
        assert words <= catalogue(language).keys()
    code, out, _ = output(capsys, "--lang", "zh", "engines", "--all", "--python", python)
    assert code == 0 and "上游 vLLM 加 Gaudi 硬件插件" in out and "重排" in out


def test_where_it_is_installed_it_is_planned_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    python = interpreter(tmp_path, {"vllm": "0.26.0", "vllm-gaudi": "0.26.0"}, {})
    code, out, _ = output(
        capsys,
        "plan",
        "-w",
        "/models/Qwen2-72B-Instruct",
        "-n",
        "4",
        "--python",
        python,
        *MACHINE,
        "--all",
    )
    assert code == 0
    assert f"\nengine     vllm-gaudi@0.26.0, facts of 2026-08, {python}\n" in out


def test_the_plan_holds_the_bucket_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = output(capsys, *PLAN, *MACHINE, "--json")
    document = json.loads(out)
    path = document["env"]["VLLM_BUCKETING_FROM_FILE"]
    assert code == 0 and path.startswith(f"{tmp_path / 'cache'}/gaudi-launch/buckets/buckets-")
    lines = [line for line in document["files"][path].splitlines() if not line.startswith("#")]
    assert len(lines) == document["buckets"]["graphs"]
    # a plan changes nothing on disk
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("-e", "8"), 2, "asynchronous scheduling"),
        (("-q",), 2, "--quant-config"),
        (("--tuning", "reference"), 2, "has none"),
        (("-t", "100", "-b", "128"), 2, "less than the 128 concurrent requests"),
        (("-n", "3"), 5, "64 attention heads"),
    ],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_cannot_be_is_one_sentence(
    words: tuple[str, ...], code: int, says: str, language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = output(capsys, "--lang", language, *PLAN, *MACHINE, *words)
    assert (found, out) == (code, "")
    assert len(err.strip().splitlines()) == 1 and "Traceback" not in err and "{" not in err
    assert says in err or language == "zh"


def test_a_bucket_file_of_the_users(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.txt"
    monkeypatch.setenv("VLLM_BUCKETING_FROM_FILE", str(file))
    code, _, err = output(capsys, *PLAN, *MACHINE)
    assert code == 2 and str(file) in err and "cannot be read" in err
    file.write_text("(1, 128, 0)\nnonsense\n(4, 1, 256)\n")
    code, _, err = output(capsys, *PLAN, *MACHINE)
    assert code == 2 and "would stop at startup" in err
    file.write_text("(1, [128, 2048], 0)\n(128, 1, 8192)\n")
    code, out, _ = output(capsys, *PLAN, *MACHINE, "--json")
    document = json.loads(out)
    assert code == 0 and document["buckets"]["graphs"] == 3 and "files" not in document
    ids = [w["id"] for w in document["warnings"]]
    assert ids == ["plan.name_listed", "plan.own_buckets", "plan.uncovered"]
    # another engine does not read it
    monkeypatch.setenv("VLLM_BUCKETING_FROM_FILE", str(tmp_path / "none.txt"))
    code, _, _ = output(
        capsys,
        "plan",
        "--engine",
        "vllm-fork@1.21",
        "-w",
        "/models/Qwen2-72B-Instruct",
        *MACHINE,
        "-n",
        "4",
    )
    assert code == 0


def test_the_gateway_is_listed_when_it_is_installed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gaudi_launch.core.engines.install.marker import mark
    from gaudi_launch.extensions.stack.gateway import program

    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(tmp_path))
    _, out, _ = output(capsys, "engines")
    assert "gaudi-launch setup gateway" in out
    assert json.loads(output(capsys, "engines", "--json")[1])["gateway"] is None
    path = tmp_path / "gateway" / "bin" / "haproxy"
    path.parent.mkdir(parents=True)
    path.write_text("", encoding="utf-8")
    mark(tmp_path / "gateway", {"haproxy": program.HAPROXY})
    _, out, _ = output(capsys, "engines")
    assert "HAProxy 2.8.25" in out
    assert json.loads(output(capsys, "engines", "--json")[1])["gateway"] == {
        "program": str(path),
        "version": "2.8.25",
    }
