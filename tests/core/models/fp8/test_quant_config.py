from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.models.fp8.quant_config import Origin, read_quant_file


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
