"""NAME of a command: a service, its model, a beginning or nothing; exact where it stops one."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from gaudi_launch.cli.table import COMMANDS, load_command
from tests.support import service_record
from tests.support.cli import output
from tests.support.users import own_folders, plain_english

__all__ = ["own_folders", "plain_english"]

ENDING = ("stop", "restart")
READING = [
    name
    for name, (module, _) in COMMANDS.items()
    if name not in ENDING
    and any((param.metavar or "").find("NAME]") > 0 for param in load_command(name, module).params)
]


@pytest.fixture(autouse=True)
def services(plain_english: None) -> Iterator[None]:
    """Two stopped services around a running one, at an address where nothing answers."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        for name in ("small-1", "small-3"):
            with service_record.service(name, url, phase="stopped"):
                pass
        model = {"name": "owner/Small-7B", "path": "/models/m"}
        with service_record.service("small-2", url, model=model) as folder:
            (folder / "engine.log").write_text("INFO: line\n")
            yield


@pytest.mark.parametrize("command", READING)
def test_a_command_that_reads_finds_its_service(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def answers(*name: str) -> str:
        # `check` prints seconds
        return re.sub(r"\d+\.\d+ ", "", str(output(capsys, command, *name)))

    exact = answers("small-2")
    assert "There is no service" not in exact
    for name in ((), ("owner/Small-7B",), ("m",), ("owner/S",), ("small",)):
        if command != "why" or name:
            assert answers(*name) == exact
    code, _, err = output(capsys, command, "large")
    assert code == 2 and "There is no service 'large'. Known: small-2, small-1, small-3." in err


@pytest.mark.parametrize("command", ENDING)
def test_a_command_that_stops_takes_names_only(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = output(capsys, command)
    assert (code, out, "  small-2  ready\n" in err) == (2, "", True)
    for name in ("owner/Small-7B", "small"):
        code, out, err = output(capsys, command, name)
        assert (code, out, f"There is no service '{name}'" in err) == (2, "", True)
    lines = f"  gaudi-launch {command} small-3\n  gaudi-launch {command} small-2\n"
    assert err.endswith(f"Did you mean small-3, small-2?\n{lines}")


def test_of_several_running_services_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with service_record.service("small-4", "http://127.0.0.1:9"):
        listed = "  small-2  ready\n  small-4  ready\n"
        sentence = "gaudi-launch: Give the name of one of these services:\n"
        assert output(capsys, "logs") == (2, "", sentence + listed)
        sentence = "gaudi-launch: 'sm' fits several services. Give the name of one of these:\n"
        assert output(capsys, "logs", "sm") == (2, "", sentence + listed)
