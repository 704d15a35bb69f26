"""One run with the built-in client, and the facts that its record has."""

from __future__ import annotations

import os
import resource

import pytest

from gaudi_launch.extensions.bench import measurement
from gaudi_launch.extensions.bench.measurement import child_environment


@pytest.mark.parametrize("error", [OSError("no"), ValueError("no")])
def test_a_limit_that_cannot_be_raised_ends_no_run(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    measurement._allow_connections()


def test_another_tool_reaches_the_server_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "internal")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    found = child_environment("http://10.0.0.1:8000", "s3cret")
    added = {"no_proxy": "internal,10.0.0.1", "NO_PROXY": "10.0.0.1", "OPENAI_API_KEY": "s3cret"}
    assert found == {**os.environ, **added}
    assert "OPENAI_API_KEY" not in child_environment("http://10.0.0.1:8000", None)
