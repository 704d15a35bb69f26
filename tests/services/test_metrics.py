"""The load of engines: running and waiting requests of vLLM and TGI."""

from __future__ import annotations

import pytest

from gaudi_launch.services import metrics
from gaudi_launch.services.metrics import EngineLoad, loads, read_load, requests_of
from gaudi_launch.services.probe import ProbeResult

PAGE = """# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_running{engine="1"} 1.0
vllm:num_requests_waiting{engine="0"} 4.0
"""


@pytest.mark.parametrize(
    ("page", "load"),
    [
        (PAGE, EngineLoad(3, 4)),
        ("tgi_queue_size 5\n", EngineLoad(0, 5)),
        ("tgi_batch_current_size 6\n", EngineLoad(6, 0)),
        ("tgi_batch_current_size -1\ntgi_queue_size 1e12\n", EngineLoad(0, 0)),
        ("other 1\n", None),
    ],
)
def test_a_page_names_the_requests_of_all_engines(page: str, load: EngineLoad | None) -> None:
    assert read_load(page) == load


def test_only_servers_that_answer_have_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ask(url: str, seconds: float) -> ProbeResult:
        asked.append((url, seconds))
        if "silent" in url:
            return ProbeResult(0, b"", "timeout")
        return ProbeResult(404 if "missing" in url else 200, PAGE.encode())

    monkeypatch.setattr(metrics, "ask", ask)
    urls = {"a": "http://a", "b": "http://silent", "c": "http://missing"}
    assert loads(urls, 3.0) == {"a": EngineLoad(3, 4)}
    assert sorted(asked) == [(f"{url}/metrics", 3.0) for url in sorted(urls.values())]
    requests_of("http://a")
    assert asked[-1] == ("http://a/metrics", 2.0)
