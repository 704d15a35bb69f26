"""--help stays quick: nothing that costs is imported for it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.cli.nearest import corrected_error
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from tests.support.machines import link_tree, use
from tests.support.places import TOP
from tests.support.serve import write_model
from tests.support.speed import times_the_import_of_typer

NO_ENGINE = LaunchError("serve.no_engine", ExitCode.MACHINE, engine="vllm-fork@1.22", python="PATH")

FORBIDDEN = (
    *(
        "huggingface_hub",
        "modelscope",
        "requests",
        "psutil",
        "yaml",
        "numpy",
        "zstandard",
        "torch",
        "vllm",
    ),
    *(
        "habana_frameworks",
        *(f"gaudi_launch.{room}" for room in ("planning", "host", "warmup", "engines", "doctor")),
    ),
)


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_imports_nothing_that_costs(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gaudi_launch", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if "|" in line}
    heavy = {
        name for name in imported for bad in FORBIDDEN if name == bad or name.startswith(f"{bad}.")
    }
    assert heavy == set()


def test_every_command_in_the_table_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    from gaudi_launch.cli.main import run
    from gaudi_launch.cli.table import COMMANDS

    for name in COMMANDS:
        assert run([name, "--help"]) == 0 and "Usage:" in capsys.readouterr().out, name


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "words", [["engines"], ["engines", "--json"], ["--lang", "zh", "engines", "--json"]]
)
def test_a_full_disk_under_the_output_is_said_in_a_sentence(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gaudi_launch", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "No space left on device" in done.stderr


def test_a_path_that_is_not_for_us_is_said_in_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_LANG", "en")
    name = "x" * 300
    assert run(["bench", "http://127.0.0.1:1", "--save", name]) == 1
    err = capsys.readouterr().err
    assert f"{name} cannot be used" in err and "bug" not in err
    assert run(["plan", "-w", f"/{name}", "--machine", "simulated:hls2"]) == 5
    err = capsys.readouterr().err
    assert f"The model folder /{name} cannot be read (File name too long)" in err


def test_a_closed_output_is_no_bug() -> None:
    words = f"{sys.executable} -m gaudi_launch engines --json"
    done = subprocess.run(
        ["sh", "-c", f"{words} >&-"], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def bench() -> ModuleType:
    path = TOP / "scripts" / "bench_help.py"
    spec = importlib.util.spec_from_file_location("bench_help", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_help_is_within_one_and_a_half_times_a_bare_typer_program() -> None:
    ours, bare = bench().ratios(5)
    # CPU seconds, the least of each: a busy machine makes the others longer
    assert min(ours) / min(bare) < 1.5


@pytest.mark.usefixtures("plain_english")
def test_serve_without_an_engine_offers_setup_and_a_container(
    current_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    link_tree("hls2", tmp_path / "machine")
    use(monkeypatch, tmp_path / "machine")
    write_model(tmp_path / "my model")
    monkeypatch.setenv("PATH", str(tmp_path / "machine" / "bin"))
    assert run(["serve", "my model", "-n", "1", "--engine", "vllm-fork@1.22", "--no-doctor"]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert "serve in a container" in lines[-2]
    assert lines[-1] == "  $ gaudi-launch setup vllm-fork@1.22"
    assert not (tmp_path / "state" / "gaudi-launch" / "services").exists()


def test_programs_get_the_commands_as_a_list() -> None:
    error = corrected_error(NO_ENGINE, [])
    assert (error["id"], error["exit_code"], error["commands"]) == (
        "serve.no_engine",
        3,
        ["gaudi-launch setup vllm-fork@1.22"],
    )


@pytest.mark.parametrize(
    ("words", "most"),
    [
        ("plan Llama-3.1-8B-Instruct -n 1 --machine simulated:hls2", 28),
        ("inspect Llama-3.1-8B-Instruct", 45),
    ],
)
def test_the_cost_of_an_answer_in_units_of_the_import_of_typer(words: str, most: int) -> None:
    # measured: 20 and 36, with the interpreter that plan queries for an engine
    assert times_the_import_of_typer(["-m", "gaudi_launch", *words.split()]) < most
