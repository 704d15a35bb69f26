from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of their own, without keys and with a proxy that answers nothing."""
    for name in ("STATE", "CACHE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
