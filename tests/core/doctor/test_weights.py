"""Looking into a model folder: headers and names only."""

from __future__ import annotations

import json
from pathlib import Path

from gaudi_launch.core.doctor.weights import read_weights


def shard(path: Path, size: int = 16) -> None:
    header = json.dumps(
        {"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}
    ).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * size)


def test_a_whole_folder_and_its_faults(tmp_path: Path) -> None:
    names = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    index = {"weight_map": {f"w{n}": name for n, name in enumerate(names)}}
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in names:
        shard(tmp_path / name)
    assert read_weights(str(tmp_path)).missing == ("tokenizer.json",)
    (tmp_path / "tekken.json").write_text("{}")
    whole = read_weights(str(tmp_path))
    assert (whole.problem, whole.has_config, whole.files, whole.missing, whole.damaged) == (
        None,
        True,
        3,
        (),
        (),
    )
    assert whole.bytes == sum((tmp_path / name).stat().st_size for name in names)

    (tmp_path / names[0]).write_bytes((tmp_path / names[0]).read_bytes()[:-1])
    (tmp_path / names[1]).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    (tmp_path / names[2]).unlink()
    broken = read_weights(str(tmp_path))
    assert (broken.missing, broken.damaged) == ((names[2],), (names[0], names[1]))

    (tmp_path / "model.safetensors.index.json").write_text("[1]")
    assert read_weights(str(tmp_path)).damaged[0] == "model.safetensors.index.json"


def test_no_folder_is_a_problem_in_words(tmp_path: Path) -> None:
    assert read_weights(str(tmp_path / "none")).problem == "No such file or directory"
