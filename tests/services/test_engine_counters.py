"""What two pages of an engine's metrics say about the time between."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from gaudi_launch.services import probe
from gaudi_launch.services.engine_counters import (
    EngineCounters,
    EngineRates,
    counters_of,
    rates,
    read_counters,
)
from gaudi_launch.services.metrics import EngineLoad, loads, read_load, requests_of
from gaudi_launch.services.probe import ProbeResult

PAGE = """# HELP vllm:num_requests_running Running
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
vllm:generation_tokens_total{engine="0",model_name="m"} 1000.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 5.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 12.5
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 10.0
"""


def test_a_page_of_several_engines_is_added_up_and_the_fullest_cache_counts() -> None:
    assert read_counters(PAGE) == EngineCounters(
        running=5,
        waiting=7,
        kv_use=0.75,
        preemptions=4,
        generated=1000,
        ttft_sum=12.5,
        ttft_count=10,
    )


def test_the_other_family_of_names_is_read() -> None:
    page = (
        "tgi_batch_current_size 2\ntgi_queue_size 1\ntgi_request_generated_tokens_sum 50\n"
        "tgi_request_mean_time_per_token_duration_sum 1.5\n"
        "tgi_request_mean_time_per_token_duration_count 3\n"
    )
    assert read_counters(page) == EngineCounters(
        running=2, waiting=1, generated=50, tpot_sum=1.5, tpot_count=3
    )


def test_a_page_without_our_names_is_none() -> None:
    assert read_counters("") is None
    assert read_counters("<html>busy</html>") is None
    assert read_counters("vllm:other 3\nprocess_cpu_seconds_total 4\n") is None


def test_rates_are_of_what_was_added() -> None:
    before = EngineCounters(
        generated=100, prompted=10, ttft_sum=1, ttft_count=2, tpot_sum=5, tpot_count=50
    )
    after = EngineCounters(
        generated=600, prompted=20, ttft_sum=4, ttft_count=8, tpot_sum=8, tpot_count=150
    )
    assert rates(before, after, 10) == EngineRates(50, 1, 0.5, 0.03)


def test_nothing_is_said_of_what_is_not_known() -> None:
    full = EngineCounters(generated=600, ttft_sum=4, ttft_count=8)
    assert rates(EngineCounters(), full, 10) == EngineRates()
    # the engine restarted: its counters began again
    assert rates(full, EngineCounters(generated=5, ttft_sum=1, ttft_count=1), 10) == EngineRates()
    # no request came: the rate is a measured 0, a mean of no request is unknown
    assert rates(full, full, 10) == EngineRates(tokens_per_second=0.0)
    assert rates(full, full, 0) == EngineRates()


def test_a_server_is_read_and_a_closed_port_is_none() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        assert counters_of(url) == read_counters(PAGE)
    assert counters_of(url, 0.5) is None


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("vllm:num_requests_running", "running"),
        ("vllm:num_requests_waiting", "waiting"),
        ("vllm:kv_cache_usage_perc", "kv_use"),
        ("vllm:gpu_cache_usage_perc", "kv_use"),
        ("vllm:num_preemptions_total", "preemptions"),
        ("vllm:generation_tokens_total", "generated"),
        ("vllm:prompt_tokens_total", "prompted"),
        ("vllm:time_to_first_token_seconds_sum", "ttft_sum"),
        ("vllm:time_to_first_token_seconds_count", "ttft_count"),
        ("vllm:inter_token_latency_seconds_sum", "tpot_sum"),
        ("vllm:inter_token_latency_seconds_count", "tpot_count"),
        ("vllm:time_per_output_token_seconds_sum", "tpot_sum"),
        ("vllm:time_per_output_token_seconds_count", "tpot_count"),
        ("tgi_batch_current_size", "running"),
        ("tgi_queue_size", "waiting"),
        ("tgi_request_generated_tokens_sum", "generated"),
        ("tgi_request_input_length_sum", "prompted"),
        ("tgi_request_mean_time_per_token_duration_sum", "tpot_sum"),
        ("tgi_request_mean_time_per_token_duration_count", "tpot_count"),
    ],
)
def test_each_name_of_an_engine_is_one_counter(name: str, field: str) -> None:
    assert read_counters(f"{name} 3\n") == EngineCounters(**{field: 3.0})


LOAD_PAGE = """# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_running{engine="1"} 1.0
vllm:num_requests_waiting{engine="0"} 4.0
"""


@pytest.mark.parametrize(
    ("page", "load"),
    [
        (LOAD_PAGE, EngineLoad(3, 4)),
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
        return ProbeResult(404 if "missing" in url else 200, LOAD_PAGE.encode())

    monkeypatch.setattr(probe, "ask", ask)
    urls = {"a": "http://a", "b": "http://silent", "c": "http://missing"}
    assert loads(urls, 3.0) == {"a": EngineLoad(3, 4)}
    assert sorted(asked) == [(f"{url}/metrics", 3.0) for url in sorted(urls.values())]
    requests_of("http://a")
    assert asked[-1] == ("http://a/metrics", 2.0)
