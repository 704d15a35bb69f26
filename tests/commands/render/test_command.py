"""``render`` as a user runs it: every target's text, files on disk, wrong input, both languages."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.planning.exported import SECRETS, engine_variables
from gaudi_launch.core.render.deliver import places
from gaudi_launch.core.render.rendered import Rendered
from tests.support.cli import golden, output
from tests.support.machines import link_tree
from tests.support.places import DATA
from tests.support.processes import write_engine_python

TARGETS = ("script", "docker", "compose", "quadlet", "systemd")
GUIDE = (
    *("-w", "/models/Qwen2-72B-Instruct", "-n", "4", "-b", "128", "-i", "800,1024"),
    *("-o", "400,512", "-l", "8192"),
    *("-t", "8192", "-c", "/data/warmup", "--machine", "simulated:hls2"),
    *("--engine", "vllm-fork@1.21"),
    *("--python", "/opt/vllm/bin/python3", "--name", "qwen"),
)
NOT_HERE = (
    "/models/Qwen2-72B-Instruct is not a local folder, and no profile lists it as a hub ID. Its "
    "sizes are those of Qwen/Qwen2-72B-Instruct in the profile qwen2-72b.\n"
)
ENDED = message("plan.engine_ended", engine="vllm-fork@1.21", date="2025-10-28").render("en") + "\n"


@pytest.fixture(autouse=True)
def _empty(current_folder: Path, monkeypatch: pytest.MonkeyPatch, plain_english: None) -> None:
    """An empty folder, and no variable of an engine."""
    for name in (*engine_variables(os.environ), *SECRETS):
        monkeypatch.delenv(name, raising=False)


def more(target: str) -> tuple[str, ...]:
    return ("--run-as", "gaudi") if target == "systemd" else ()


@pytest.mark.parametrize("target", TARGETS)
def test_the_guides_case(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = output(capsys, "render", target, *GUIDE, *more(target), "--json")
    assert (code, err) == (0, NOT_HERE + ENDED)
    document = json.loads(out)
    assert (document["schema"], document["target"], document["name"]) == (1, target, "qwen")
    for file in document["files"]:
        golden(f"render/{target}-{file['name']}", file["text"])
    goldens = sorted(path.name for path in (DATA / "golden/render").glob(f"{target}-*"))
    assert goldens == sorted(f"{target}-{file['name']}" for file in document["files"])


def test_the_tuning_unit(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(capsys, "render", "systemd", *GUIDE, "--with-tuning", "--json")
    assert code == 0
    text = json.loads(out)["files"][1]["text"]
    golden("render/tuning.service", re.sub(r"ExecStart=\S+", "ExecStart=LAUNCHER", text))


def test_one_file_goes_to_stdout_and_several_need_a_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = output(capsys, "render", "script", *GUIDE)
    assert (code, err) == (0, NOT_HERE + ENDED)
    assert out == (DATA / "golden/render/script-serve.sh").read_text()
    code, out, err = output(capsys, "render", "quadlet", *GUIDE)
    assert (code, out) == (2, "") and "--to DIR" in err
    code, out, _ = output(capsys, "render", "quadlet", *GUIDE, "--to", "there/here")
    assert (code, out) == (0, "there/here/qwen.container\nthere/here/Containerfile\n")
    assert sorted(path.name for path in (tmp_path / "there/here").iterdir()) == [
        "Containerfile",
        "qwen.container",
    ]


def test_a_file_by_its_own_name_can_be_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = output(capsys, "render", "script", *GUIDE, "--to", "start.sh")
    assert (code, out) == (0, "start.sh\n")
    assert (tmp_path / "start.sh").stat().st_mode & 0o777 == 0o755


def test_nothing_is_written_over(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "qwen.container").write_text("mine")
    code, out, err = output(capsys, "render", "quadlet", *GUIDE, "--to", ".")
    assert (code, out) == (2, "") and "qwen.container" in err
    assert [path.name for path in tmp_path.iterdir()] == ["qwen.container"]
    assert (tmp_path / "qwen.container").read_text() == "mine"
    code, _, _ = output(capsys, "render", "quadlet", *GUIDE, "--to", ".", "--force")
    assert code == 0 and (tmp_path / "qwen.container").read_text() != "mine"


def test_a_place_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    code, _, err = output(capsys, "render", "script", *GUIDE, "--to", "file/below")
    assert code == 1 and "file/below" in err
    # nor even looked at
    code, _, err = output(capsys, "render", "script", *GUIDE, "--to", "x" * 300)
    assert code == 1 and "cannot be written" in err and "bug" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_secrets_are_named_and_never_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    for target in TARGETS:
        code, out, err = output(
            capsys, "render", target, *GUIDE, *more(target), "--json", "--", "--api-key", "s3cret"
        )
        assert code == 0
        assert "s3cret" not in out + err and "hf_secret" not in out + err
        assert "VLLM_API_KEY" in out, target


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("script",), 2, "-w"),
        (("script", *GUIDE, "--name", "a/b"), 2, "a/b"),
        (("script", *GUIDE, "--", "--ssl-keyfile-password", "hf_x"), 2, "--ssl-keyfile-password"),
        (("script", *GUIDE, "-o", "start.sh"), 2, "--to start.sh"),
        (("compose", *GUIDE, "-o", "./out/"), 2, "--to ./out/"),
        (("script", *GUIDE, "-o", "9,1"), 2, "9,1"),
        (("nowhere", *GUIDE), 2, "nowhere"),
        (("docker", "-w", "/m", "--machine", "none.json"), 2, "none.json"),
    ],
)
def test_wrong_input(
    words: tuple[str, ...], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    got, out, err = output(capsys, "render", *words)
    assert (got, out) == (code, "")
    assert says in err and "hf_x" not in err


SETUP = "data/gaudi-launch/engines/vllm-fork-1.21.current/venv/bin/python"


@pytest.mark.parametrize(
    ("target", "words", "code", "program", "says"),
    [
        # on a machine without the engine
        ("systemd", "", 0, SETUP, "gaudi-launch setup vllm-fork@1.21"),
        ("script", "--machine simulated:hls2", 0, SETUP, "gaudi-launch setup vllm-fork@1.21"),
        ("script", "--python /opt/later/python3", 0, "/opt/later/python3", ""),
        ("systemd", "--python engine", 0, "engine-python", ""),
        ("script", "on PATH", 0, "path/python3", ""),
        ("script", "--python later", 2, "", "The interpreter later was not found."),
        ("script", "--python bare", 3, "", "No engine was found in BARE; vllm-fork@1.21 is"),
    ],
)
def test_the_interpreter_has_the_engine_or_is_that_of_setup(
    target: str,
    words: str,
    code: int,
    program: str,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    link_tree("hls2", tmp_path / "root")
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    engine = write_engine_python(tmp_path / "engine-python", "false")
    if words == "on PATH":
        words, folder = "", tmp_path / "path"
        folder.mkdir()
        write_engine_python(folder / "python3", "false")
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    named = {"bare": sys.executable, "engine": str(engine)}
    given = [named.get(word, word) for word in words.split()]
    model = ("Qwen/Qwen2-72B-Instruct", "-n", "4", "--engine", "vllm-fork@1.21")
    got, out, err = output(capsys, "render", target, *model, *given)
    start = re.search(r"^(?:ExecStart=|engine=\(\n *)(\S+)", out, re.MULTILINE)
    found = start[1].replace(f"{tmp_path}/", "") if start is not None else ""
    assert (got, found) == (code, program)
    assert says in err.replace(sys.executable, "BARE")


def test_paths_mean_the_same_in_any_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "my model").mkdir()
    (tmp_path / "my model/config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2,'
        ' "num_attention_heads": 4, "hidden_size": 64}'
    )
    words = (
        *("-w", "my model", "--machine", "simulated:hls2", "--engine", "vllm-fork@1.21"),
        *("-c", "warm"),
    )
    code, out, _ = output(capsys, "render", "compose", *words, "--json")
    assert code == 0
    text = json.loads(out)["files"][0]["text"]
    assert f'source: "{tmp_path / "my model"}"\n' in text
    assert re.search(f"source: {re.escape(str(tmp_path))}/warm/[0-9a-f]+\n", text)


def test_what_the_user_exported_for_the_engine_goes_along(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = {"VLLM_LOGGING_LEVEL": "DEBUG", "HF_ENDPOINT": "https://hf-mirror.com"}
    for name, value in {**exported, "SHELLS_OWN": "x"}.items():
        monkeypatch.setenv(name, value)
    for target in TARGETS:
        code, out, _ = output(capsys, "render", target, *GUIDE, *more(target), "--json")
        text = "".join(file["text"] for file in json.loads(out)["files"])
        assert code == 0 and "VLLM_LOGGING_LEVEL" in text and "hf-mirror.com" in text, target
        assert "SHELLS_OWN" not in text


def test_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = output(capsys, "render", "docker", *GUIDE, "--lang", "zh")
    assert code == 0 and "由 gaudi-launch 生成" in out and "说明" in err


def test_the_embedded_engines_image_must_be_built_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = output(capsys, "render", "docker", "-w", "demo", "--engine", "cpu")
    assert code == 0
    assert "Build it first: gaudi-launch setup cpu --in docker" in err
    words = {line.strip() for line in out.splitlines()}
    assert words >= {"--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--shm-size=2g"}
    assert "--runtime" not in out and "--ulimit" not in out


def test_the_image_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(capsys, "render", "docker", *GUIDE, "--image", "registry.local/mine:1")
    assert code == 0
    assert "registry.local/mine:1" in out and "docker build" not in out


@pytest.mark.parametrize(
    ("target", "to", "written"),
    [
        ("systemd", "small", "small.service"),
        ("systemd", "small.v2", "small.v2.service"),
        ("systemd", "small.service", "small.service"),
        ("script", "small", "small"),
    ],
)
def test_a_unit_has_the_ending_that_systemd_needs(
    current_folder: Path,
    target: str,
    to: str,
    written: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    code, out, _ = output(capsys, "render", target, *GUIDE, *more(target), "--to", to)
    assert (code, out.splitlines()[0]) == (0, written)
    assert [path.name for path in tmp_path.iterdir()] == [written]


def test_a_quadlet_has_its_ending_too(tmp_path: Path) -> None:
    wanted = places(Rendered({"qwen.container": ""}), str(tmp_path / "small"))
    assert wanted == {tmp_path / "small.container": "qwen.container"}
