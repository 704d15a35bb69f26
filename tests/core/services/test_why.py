"""An import error of a package that deviates from the engine's constraints file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.core.services.why import why
from tests.support.drifted_engine import drifted_engine

TEXT = """INFO 11-22 10:00:00 [api_server.py:1] vLLM API server version 0.26.0
Traceback (most recent call last):
  File "{place}/vllm/entrypoints/openai/api_server.py", line 1, in <module>
    from x import y
ImportError: cannot import name 'y' from 'fastapi.routing' (fastapi/routing.py)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = drifted_engine(tmp_path, {"fastapi": "99.1"})
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return tmp_path / "site-packages"


def log_of(place: Path) -> str:
    log = place.parent / "engine.log"
    log.write_text(TEXT.format(place=place))
    return str(log)


def test_the_deviating_package_is_named_with_the_file_and_a_command(site: Path) -> None:
    (cause,) = why(log_of(site), 1).found.causes
    assert (cause.id, [number for number, _ in cause.evidence]) == ("package_drift", [5])
    assert "fastapi 99.1" in cause.title.render("en")
    assert cause.commands[0].startswith(f"{site.parent}/bin/python3 -m pip install --constraint ")
    assert cause.commands[0].endswith("/vllm-gaudi-0.26.0.txt fastapi")


ABSENT = """Traceback (most recent call last):
  File "{place}/vllm_gaudi/platform.py", line 12, in <module>
    import {module}.torch as htorch
ModuleNotFoundError: No module named '{module}'
"""


@pytest.mark.parametrize(
    ("module", "package"),
    [("habana_frameworks", "habana-torch-plugin"), ("neural_compressor", "neural-compressor-pt")],
)
def test_an_absent_package_of_gaudi_is_named(site: Path, module: str, package: str) -> None:
    log = site.parent / "engine.log"
    log.write_text(ABSENT.format(place=site, module=module))
    (cause,) = [each for each in why(str(log), 1).found.causes if each.id == "package_absent"]
    assert cause.evidence == ((4, f"ModuleNotFoundError: No module named '{module}'"),)
    assert cause.title.render("en") == (
        f"{site.parent}/bin/python3 has no {package}, a package of Gaudi's software that the "
        "engine imported here."
    )


def test_a_module_of_no_gaudi_package_is_no_absent_package(site: Path) -> None:
    log = site.parent / "engine.log"
    log.write_text(ABSENT.format(place=site, module="somewhere"))
    assert "package_absent" not in {each.id for each in why(str(log), 1).found.causes}
