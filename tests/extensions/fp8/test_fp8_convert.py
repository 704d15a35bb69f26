"""The command as a user runs it: values, resumption after kill -9, refusals."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.models.folder_lock import hold
from gaudi_launch.core.models.fp8 import convert
from gaudi_launch.core.models.fp8.arithmetic import conversion_table
from gaudi_launch.core.models.fp8.convert_check import checksum, first_wrong
from tests.support.shards import read_shard
from tests.support.waiting import GENEROUS

NAME = "model.layers.0.mlp.up_proj.weight"
COMMAND = [sys.executable, "-m", "gaudi_launch", "fp8", "convert"]


def write_shard(path: Path, repeat: int = 1) -> None:
    tensors = [
        (NAME, "F8_E4M3", [256 * repeat], bytes(range(256)) * repeat),
        (NAME + "_scale_inv", "BF16", [1], b"\x80\x3f"),
        ("model.norm.weight", "BF16", [1], b"\x12\x34"),
        ("model.layers.1.mlp.up_proj.weight", "BF16", [1], b"\x56\x78"),
    ]
    header: dict[str, Any] = {}
    at = 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(tensor[3] for tensor in tensors)
    )


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words), "--json"], capture_output=True, text=True, timeout=GENEROUS
    )


def frozen_in_the_middle(process: subprocess.Popen[Any], out: Path) -> list[psutil.Process]:
    """The workers of a conversion that is stopped since its first shard is there: nobody gets
    further meanwhile."""
    deadline = time.monotonic() + GENEROUS
    while not list(out.glob("?.safetensors")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGSTOP)
    workers = psutil.Process(process.pid).children(recursive=True)
    for worker in workers:
        worker.suspend()
    return workers


def test_values_record_and_refusal_of_the_result(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    write_shard(source / "a.safetensors")
    (source / "config.json").write_text("{}")
    done = run(source, out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["copied_projections"] == ["model.layers.1.mlp.up_proj.weight"]
    assert read_shard(out / "a.safetensors") == {
        NAME: ("F8_E4M3", conversion_table().tobytes()),
        NAME + "_scale_inv": ("F32", (np.float32(448) / np.float32(240)).tobytes()),
        "model.norm.weight": ("BF16", b"\x12\x34"),
        "model.layers.1.mlp.up_proj.weight": ("BF16", b"\x56\x78"),
    }
    assert (out / "config.json").read_text() == "{}"
    again = run(source, out)
    assert json.loads(again.stdout)["kept"] == ["a.safetensors"]
    refused = run(out, tmp_path / "twice")
    assert (refused.returncode, json.loads(refused.stdout)["error"]["id"]) == (
        5,
        "fp8.nothing_to_convert",
    )
    (tmp_path / "nothing").mkdir()
    empty = run(tmp_path / "nothing", tmp_path / "twice")
    assert (empty.returncode, json.loads(empty.stdout)["error"]["id"]) == (5, "fp8.no_weights")
    assert not (tmp_path / "twice").exists()


def test_killed_and_run_again(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for number in range(6):
        write_shard(source / f"{number}.safetensors", repeat=40_000)
    process = subprocess.Popen([*COMMAND, str(source), str(out)], stderr=subprocess.DEVNULL)
    for worker in frozen_in_the_middle(process, out):
        worker.kill()
    process.kill()
    process.wait()
    assert json.loads((out / ".gaudi-launch.json").read_text())["complete"] is False
    done = run(source, out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((out / ".gaudi-launch.json").read_text())["complete"] is True
    for number in range(6):
        assert (
            read_shard(out / f"{number}.safetensors")[NAME][1]
            == conversion_table().tobytes() * 40_000
        )
    assert not list(out.glob("*.part"))


def test_killed_with_several_workers_none_lives_on(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for number in range(8):
        write_shard(source / f"{number}.safetensors", repeat=60_000)
    process = subprocess.Popen(
        [*COMMAND, str(source), str(out), "--processes", "2"], stderr=subprocess.DEVNULL
    )
    workers = frozen_in_the_middle(process, out)
    process.kill()
    process.wait()
    assert len(workers) >= 2
    for worker in workers:
        worker.resume()
    _, left = psutil.wait_procs(workers, timeout=GENEROUS)
    for orphan in left:
        orphan.kill()
    assert left == []
    finished = {path.name for path in out.glob("?.safetensors")}
    assert len(finished) < 8
    done = run(source, out, "--processes", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(done.stdout)
    assert sorted(shown["kept"] + shown["written"]) == [
        f"{number}.safetensors" for number in range(8)
    ]
    assert set(shown["kept"]) <= finished
    for number in range(8):
        assert (
            read_shard(out / f"{number}.safetensors")[NAME][1]
            == conversion_table().tobytes() * 60_000
        )
    assert not list(out.glob("*.part"))


def test_ctrl_c_ends_the_workers_without_their_words(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for number in range(8):
        write_shard(source / f"{number}.safetensors", repeat=60_000)
    argv = [*COMMAND, str(source), str(out), "--processes", "2"]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, start_new_session=True)
    workers = frozen_in_the_middle(process, out)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    os.killpg(process.pid, signal.SIGCONT)
    _, err = process.communicate(timeout=GENEROUS)
    assert process.returncode == 130 and "Traceback" not in err
    assert psutil.wait_procs(workers, timeout=GENEROUS)[1] == []


def test_a_finished_shard_that_rotted_is_converted_again(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for name in ("a", "b"):
        write_shard(source / f"{name}.safetensors")
    assert run(source, out).returncode == 0
    whole = (out / "a.safetensors").read_bytes()
    (out / "a.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    shown = json.loads(run(source, out).stdout)
    assert (shown["written"], shown["kept"]) == (["a.safetensors"], ["b.safetensors"])
    assert (out / "a.safetensors").read_bytes() == whole


def test_one_conversion_a_folder(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    write_shard(source / "a.safetensors")
    with hold(out, "fp8 convert"):
        refused = run(source, out)
    error = json.loads(refused.stdout)["error"]
    assert (refused.returncode, error["id"]) == (1, "lock.held")
    assert f"fp8 convert, PID {os.getpid()}" in error["message"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_result_that_is_not_the_sources_is_redone_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    wrong = [np.roll(conversion_table(), 1)] * times
    monkeypatch.setattr(
        convert, "conversion_table", lambda: wrong.pop() if wrong else conversion_table()
    )
    write_shard(tmp_path / "a.safetensors")
    target = tmp_path / "b.safetensors"
    if times == 1:
        assert convert.convert_shard(tmp_path / "a.safetensors", target)["crc32"] == checksum(
            target
        )
        assert read_shard(target)[NAME][1] == conversion_table().tobytes()
        return
    with pytest.raises(LaunchError) as refused:
        convert.convert_shard(tmp_path / "a.safetensors", target)
    assert (refused.value.id, refused.value.text.values["name"]) == ("fp8.mismatch", NAME)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors"]


@pytest.mark.parametrize("spoilt", [NAME, f"{NAME}_scale_inv", "model.norm.weight"])
def test_each_kind_of_tensor_is_looked_at(tmp_path: Path, spoilt: str) -> None:
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    write_shard(source)
    convert.convert_shard(source, target)
    assert first_wrong(source, target) == ""
    data = bytearray(target.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    begin, end = json.loads(data[8 : 8 + length])[spoilt]["data_offsets"]
    data[8 + length + end - 1] ^= 0x40
    target.write_bytes(data)
    # a wrong scale makes its weight wrong, which is looked at first
    assert first_wrong(source, target) == (NAME if spoilt.startswith(NAME) else spoilt)
    assert end > begin


def test_a_cut_shard_changes_nothing(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    write_shard(source / "a.safetensors")
    whole = (source / "a.safetensors").read_bytes()
    (source / "a.safetensors").write_bytes(whole[:-1])
    assert run(source, tmp_path / "out").returncode == 5
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("weight", "scale"), [("F8_E4M3", "F8_E8M0"), ("BF16", "F32")])
def test_a_form_that_is_not_known_is_refused_and_nothing_written(
    tmp_path: Path, weight: str, scale: str
) -> None:
    sizes = {"F8_E4M3": 1, "F8_E8M0": 1, "BF16": 2, "F32": 4}
    header = {
        "a.up_proj.weight": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]},
        "a.down_proj.weight": {
            "dtype": weight,
            "shape": [4],
            "data_offsets": [4, 4 + 4 * sizes[weight]],
        },
    }
    at = 4 + 4 * sizes[weight]
    header["a.down_proj.weight_scale_inv"] = {
        "dtype": scale,
        "shape": [1],
        "data_offsets": [at, at + sizes[scale]],
    }
    text = json.dumps(header).encode()
    source = tmp_path / "source"
    source.mkdir()
    content = b"\x7e" * 4 + bytes(at + sizes[scale] - 4)
    (source / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content)
    with pytest.raises(LaunchError) as refused:
        convert.convert_folder(source, tmp_path / "out")
    assert refused.value.id == "fp8.scale" and not (tmp_path / "out").exists()
