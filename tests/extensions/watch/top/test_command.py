"""``gaudi-launch top`` without a terminal: lines and JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.cli import output, reading
from tests.support.waiting import GENEROUS

pytestmark = pytest.mark.usefixtures("own_folders")

HLS2 = ("--machine", "simulated:hls2+busy=1")


def test_once_answers_in_its_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = output(capsys, "top", *HLS2, "--once")
    assert (code, err) == (0, "")
    assert out.startswith("8 cards, 7 free, the warmest at ")


def test_once_as_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    document = reading(capsys, "top", *HLS2, "--once")
    (host,) = document["hosts"]
    assert (host["host"], host["answers"], len(host["cards"])) == ("gaudi2-server", True, 8)
    # two readings were made, so that rates are known
    assert host["nodes"][0]["cpu_percent"] is not None


def test_a_machine_without_cards(capsys: pytest.CaptureFixture[str]) -> None:
    (host,) = reading(capsys, "top", "--machine", "simulated:hls2+no-driver", "--once")["hosts"]
    assert host["cards"] == []


@pytest.mark.parametrize(
    "words", [("--hosts", "a", "--inventory", "b"), ("--interval", "0"), ("--hosts", "-x")]
)
def test_bad_options_are_usage_errors(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    code, out, err = output(capsys, "top", *words)
    assert (code, out) == (2, "") and "Traceback" not in err


@pytest.mark.parametrize("as_json", [True, False])
def test_a_pipe_gets_samples_until_its_reader_goes(as_json: bool) -> None:
    words = [*HLS2, "--interval", "0.5", *(["--json"] if as_json else [])]
    process = subprocess.Popen(
        [sys.executable, "-m", "gaudi_launch", "top", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    found = [process.stdout.readline() for _ in range(2 if as_json else 30)]
    if as_json:
        assert [len(json.loads(line)["hosts"][0]["cards"]) for line in found] == [8, 8]
    else:
        assert sum(line.startswith("8 cards, 7 free") for line in found) >= 2
    process.stdout.close()
    assert process.wait(GENEROUS) == 0
    assert process.stderr.read() == ""
    process.stderr.close()
