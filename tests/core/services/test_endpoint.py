"""Addresses of servers: what users type, and what services have recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.services.endpoint import Target, target
from gaudi_launch.core.services.state import store
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("own_folders")


@pytest.mark.parametrize(
    "typed",
    ["ftp://a", "http://", "http://me@a", "http://a?x=1", "http://a#x", "a:port", "http://[a"],
)
def test_what_is_no_address_is_refused(typed: str) -> None:
    with refused("measure.bad_url", ExitCode.USAGE, found=typed):
        target(typed)


def service(phase: str, plan: dict[str, object]) -> Path:
    folder = store.make_dir("chat")
    url = "http://0.0.0.0:9000"
    store.write(
        folder, "state.json", {"name": "chat", "url": url, "phase": phase, "outcome": phase}
    )
    store.write(folder, "plan.json", plan)
    return folder


def test_a_service_that_does_not_run_is_refused() -> None:
    service("stopped", {})
    with refused("measure.not_ready", ExitCode.FAILED, name="chat", phase="stopped"):
        target("chat")
    found = target("chat", running=False)
    assert (found.model, found.tokenizer, found.python) == (None, None, None)


def test_a_server_without_a_name_is_named_by_its_address() -> None:
    urls = ("http://me:secret@a:80", "http://a", "nothing")
    assert [Target(url).label for url in urls] == ["a-80", "a", "server"]
