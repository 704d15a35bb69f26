"""pip's settings for a container: what is passed, what becomes a mount, what a log may show."""

from __future__ import annotations

import configparser
import sys
from pathlib import Path

import pytest

from gaudi_launch.core.base.mirrors import NONE, Mirrors
from gaudi_launch.core.engines.install import pip_settings
from gaudi_launch.core.engines.install.pip_settings import (
    PipSettings,
    read_settings,
    without_addresses,
)

TARGET = "/run/pip"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home folder with a pip.conf, the only one that is read."""
    monkeypatch.setattr(pip_settings, "_SYSTEM_FILES", ())
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "none"))
    (tmp_path / ".config/pip").mkdir(parents=True)
    return tmp_path


def settings(home: Path, mirrors: Mirrors = NONE, **variables: str) -> PipSettings:
    environment = {"HOME": str(home), "XDG_CONFIG_DIRS": str(home / "none"), **variables}
    return read_settings(environment, TARGET, mirrors)


def write(home: Path, text: str) -> None:
    (home / ".config/pip/pip.conf").write_text(text)


def parsed(config: str) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser()
    parser.read_string(config)
    return {name: dict(parser.items(name)) for name in parser.sections()}


def test_the_users_index_is_passed_and_other_settings_are_not(home: Path) -> None:
    write(
        home,
        "[global]\nindex_url = https://user:secret@pip.example/simple\nlog = /var/log/pip\n"
        "[install]\nuser = yes\ntrusted-host = pip.example\n",
    )
    assert parsed(settings(home).config) == {
        "global": {"index-url": "https://user:secret@pip.example/simple"},
        "install": {"trusted-host": "pip.example"},
    }


def test_a_variable_is_stronger_than_each_section(home: Path) -> None:
    write(home, "[global]\nretries = 1\n[install]\nretries = 2\n")
    assert parsed(settings(home, PIP_RETRIES="7").config) == {"global": {"retries": "7"}}


def test_an_index_of_the_command_line_replaces_the_configured_one(home: Path) -> None:
    write(home, "[install]\nindex-url = https://old.example/simple\n")
    found = parsed(settings(home, Mirrors(pip="https://new.example/simple")).config)
    assert found == {"global": {"index-url": "https://new.example/simple"}}


def test_a_folder_of_wheels_replaces_every_index(home: Path) -> None:
    write(home, "[global]\nindex-url = https://old.example/simple\n")
    found = settings(home, Mirrors(wheels="/packed"), https_proxy="http://proxy.example")
    assert parsed(found.config) == {
        "global": {"no-index": "true", "find-links": f"{TARGET}/wheels"}
    }
    assert (found.mounts, found.variables) == ({f"{TARGET}/wheels": "/packed"}, {})


def test_a_mirror_of_pytorch_is_a_variable(home: Path) -> None:
    found = settings(home, Mirrors(torch="https://torch.example/cpu"))
    assert found.variables == {"GAUDI_LAUNCH_TORCH_INDEX": "https://torch.example/cpu"}


def test_paths_of_this_machine_become_mounts(home: Path) -> None:
    wheels, index, cert = home / "wheels", home / "index" / "simple", home / "ca.pem"
    wheels.mkdir()
    index.mkdir(parents=True)
    cert.touch()
    found = settings(
        home,
        PIP_FIND_LINKS=f"{wheels} {home / 'missing'}",
        PIP_EXTRA_INDEX_URL=f"file://{index} https://more.example/simple",
        PIP_CERT=str(cert),
    )
    assert parsed(found.config) == {
        "global": {
            "extra-index-url": f"file://{TARGET}/0/simple\nhttps://more.example/simple",
            "find-links": f"{TARGET}/1",
            "cert": f"{TARGET}/2",
        }
    }
    assert found.mounts == {
        f"{TARGET}/0": str(home / "index"),
        f"{TARGET}/1": str(wheels),
        f"{TARGET}/2": str(cert),
    }


def test_no_configuration_is_read_where_pip_reads_none(home: Path) -> None:
    write(home, "[global]\nindex-url = https://pip.example/simple\n")
    assert settings(home, PIP_CONFIG_FILE="/dev/null").config == ""


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Looking in indexes: https://u:p@pip.example/simple", "Looking in indexes: [address]"),
        (
            "HTTPSConnectionPool(host='pip.example', port=443)",
            "HTTPSConnectionPool(host='[host]', port=443)",
        ),
        ("No matching distribution found for torch", "No matching distribution found for torch"),
    ],
)
def test_a_log_shows_no_address(line: str, shown: str) -> None:
    config = "[global]\nindex-url = https://u:p@pip.example/simple\n"
    assert without_addresses(line, config) == shown
