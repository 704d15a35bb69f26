from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def bare(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of their own, without keys and with a proxy that answers nothing."""
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
