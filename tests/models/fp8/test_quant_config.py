from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.models.fp8.quant_config import (
    Origin,
    QuantFile,
    kv_cache_dtype,
    measured_folder,
    read_quant_file,
)


@pytest.mark.parametrize(
    ("config", "want"),
    [
        ({}, "fp8_inc"),
        ({"blocklist": {"types": [], "names": []}}, "fp8_inc"),
        ({"blocklist": {"types": ["VLLMKVCache"]}}, "auto"),
        ({"blocklist": {"names": ["k_cache"]}}, "auto"),
        ({"blocklist": {"types": ["Softmax"], "names": ["lm_head"]}}, "fp8_inc"),
    ],
)
def test_kv_cache_dtype(config: dict[str, Any], want: str) -> None:
    assert kv_cache_dtype(config) == want


def refusal(path: Path, origin: Origin) -> tuple[str, ExitCode, object]:
    with pytest.raises(LaunchError) as refused:
        read_quant_file(path, 1, origin)
    return refused.value.id, refused.value.exit_code, refused.value.text.values


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    usage, model = ExitCode.USAGE, ExitCode.MODEL
    for text, id, values in (
        (None, "quant.unreadable", {"why": "No such file or directory"}),
        ("[", "quant.unreadable", {"why": "JSON: Expecting value: line 1 column 2 (char 1)"}),
        ("[]", "quant.unreadable", {"why": "no JSON object"}),
        ('{"mode": "MEASURE"}', "quant.mode", {"mode": "MEASURE"}),
        (" " * ((1 << 20) + 1), "quant.unreadable", {"why": "JSON: it is larger than 1024 KiB"}),
    ):
        if text is not None:
            path.write_text(text)
        expected = {"path": str(path), **values}
        assert refusal(path, "flag") == (id, usage, expected)
        assert refusal(path, "environment") == (id, usage, expected)
        assert refusal(path, "profile") == (id, model, expected)


def test_measurements_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(
        '{"dump_stats_path": "m/inc", "observer": "o", "blocklist": {"names": ["cache"]}}'
    )
    folder = tmp_path / "m"
    wanted = tuple(str(folder / f"inc_hooks_o_{rank}_2.npz") for rank in (0, 1))
    found = read_quant_file(path, 2, "flag", str(tmp_path))
    assert found == QuantFile(str(path), "flag", "auto", wanted)
    folder.mkdir()
    (folder / "inc_hooks_o_0_2.json").touch()
    (folder / "inc_hooks_o_1_2.txt").touch()
    assert read_quant_file(path, 2, "flag", str(tmp_path)).missing == wanted[1:]
    # a single card's file may lack its two numbers
    assert read_quant_file(path, 1, "flag", str(tmp_path)).missing != ()
    (folder / "inc_hooks_o.npz").touch()
    assert read_quant_file(path, 1, "flag", str(tmp_path)).missing == ()
    assert measured_folder(path, str(tmp_path)) == folder
    path.write_text('{"dump_stats_path": "m/inc", "scale_method": "unit_scale"}')
    assert read_quant_file(path, 2, "flag", "").missing == ()
    path.write_text("{}")
    assert (read_quant_file(path, 2, "flag").missing, measured_folder(path)) == ((), None)
    path.unlink()
    assert measured_folder(path) is None
