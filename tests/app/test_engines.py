"""The list of engines: what is installed, facts, the program of the gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app.engines import GatewayProgram, listing
from gaudi_launch.engines import detect as detection
from gaudi_launch.engines import registry
from gaudi_launch.engines.detect import Installed
from gaudi_launch.engines.releases import constraints_of, release_of, trial_of
from gaudi_launch.engines.support import ended, version_of, versions
from gaudi_launch.gateway import program
from gaudi_launch.services import containers

PLUGIN = Installed("/engine/python", "vllm-gaudi", {"vllm": "1"})


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch, plain_english: None) -> None:
    monkeypatch.setattr(detection, "detect", lambda python=None: PLUGIN if python == "/p" else None)
    monkeypatch.setattr(containers, "image_of", lambda engine: f"image of {engine.identity.name}")
    monkeypatch.setattr(program, "installed", lambda: None)


def test_every_engine_is_listed_with_what_it_is_installed_in() -> None:
    found = listing("/p")
    states = {each.name: each for each in found.engines}
    assert list(states) == list(registry.ENGINES)
    assert found.python == "/engine/python"
    one = states["vllm-gaudi"]
    facts: Any = version_of(one.engine.identity.name, one.engine.identity.version)
    assert (one.installed, dict(one.packages), one.facts_date, one.ended) == (
        "/engine/python",
        {"vllm": "1"},
        facts.date,
        ended(one.engine.identity.label),
    )
    file = constraints_of(release_of("vllm-gaudi"))  # type: ignore[arg-type]
    assert one.constraints is not None and one.constraints == trial_of(str(file))
    assert (states["tgi@3.3.5"].installed, dict(states["tgi@3.3.5"].packages)) == (
        "image of tgi",
        {},
    )
    assert states["vllm-fork@1.21"].installed is None
    assert not states["vllm-fork@1.21"].packages
    assert found.versions == (*versions(), *registry.image_versions())


def test_without_an_interpreter_nothing_is_installed() -> None:
    found = listing(None)
    assert (found.python, found.gateway) == (None, None)
    # an engine in an image is in no interpreter
    assert {each.installed for each in found.engines if each.engine.in_container} == {
        "image of tgi"
    }
    assert all(not each.packages for each in found.engines)


def test_the_gateways_program_is_listed_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "installed", lambda: Path("/gateway/haproxy"))
    monkeypatch.setattr(program, "version", lambda: "3.0")
    assert listing(None).gateway == GatewayProgram("/gateway/haproxy", "3.0")
