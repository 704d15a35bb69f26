from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gaudi_launch.services import registry, state


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of their own, without keys and with a proxy that answers nothing."""
    for name in ("STATE", "CACHE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


@contextmanager
def service(name: str, url: str, *, phase: str = "ready", **plan: object) -> Iterator[Path]:
    """What serve writes down of a service, held as its launcher holds it; its folder."""
    with registry.hold(name):
        folder = state.service_dir(name)
        state.write(folder, "state.json", {"name": name, "url": url, "phase": phase, "model": "/models/m"})
        state.write(folder, "plan.json", {"url": url, **plan})
        yield folder
