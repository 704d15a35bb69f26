"""The check of a Serve config: what Ray takes in silence is found, and nothing ends in a
traceback."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.messages import message
from gaudi_launch.extensions.ray.schema import KEYS, check
from tests.support.cli import golden
from tests.support.whole_plans import shown

GOOD: dict[str, Any] = {
    "http_options": {"host": "0.0.0.0", "port": 8000},
    "applications": [
        {
            "name": "llm",
            "route_prefix": "/",
            "import_path": "a.b:build",
            "deployments": [
                {
                    "name": "Engine",
                    "autoscaling_config": {"min_replicas": 0, "max_replicas": 2},
                    "ray_actor_options": {"num_cpus": 1, "resources": {"HPU": 2}},
                }
            ],
        }
    ],
}


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    document = copy.deepcopy(GOOD)
    place: Any = document
    for word in path[:-1]:
        place = place[word]
    place[path[-1]] = value
    return document


D = ("applications", 0, "deployments", 0)


OLD = "target_num_ongoing_requests_per_replica"
FAULTS: list[tuple[tuple[Any, ...], Any]] = [
    (("http_option",), {}),
    (("http_options",), 3),
    (("http_options", "port"), 99999),
    (("http_options", "port"), 0),
    (("http_options", "port"), "8000"),
    (("http_options", "port"), True),
    (("http_options", "port"), [1] * 99),
    (("http_options", "prot"), 1),
    (("http_options", "xyz"), 1),
    (("applications", 0), 7),
    (("applications", 0, "env"), {}),
    (("applications", 0, "route_prefix"), "v1"),
    (("applications", 0, "import_path"), "build"),
    (("applications", 0, "import_path"), None),
    ((*D, "name"), ""),
    ((*D, "num_replica"), 2),
    ((*D, "num_replicas"), "two"),
    ((*D, "num_replicas"), 2),
    ((*D, "max_ongoing_requests"), 0),
    ((*D, "max_concurrent_queries"), 9),
    # awslabs/data-on-eks writes this name
    ((*D, "autoscaling_config", OLD), 1),
    ((*D, "autoscaling_config", "min_replicas"), 3),
    ((*D, "ray_actor_options", "resources", "HPU"), 0.5),
]


def test_each_fault_is_found_alone_with_what_ray_wants() -> None:
    found = [(path, value, check(changed(path, value))) for path, value in FAULTS]
    assert [path for path, _, faults in found if len(faults) != 1] == []
    lines = [f"{path} {value!r}: {shown(fault)}\n" for path, value, [fault] in found]
    golden("ray-faults.txt", "".join(lines))
    # a number may be an int or a float
    for number in (1, 1.5):
        assert check(changed((*D, "health_check_period_s"), number)) == []


@pytest.mark.parametrize("document", [None, [], 3, "x"])
def test_no_mapping_at_all(document: Any) -> None:
    assert check(document) == [message("ray.not_mapping", path="-")]


def test_nothing_to_deploy() -> None:
    assert [m.id for m in check({"applications": []})] == ["ray.no_applications"]


_words = st.sampled_from(sorted({key for keys in KEYS.values() for key in keys} | {"HPU", "x"}))
_leaf = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_value = st.recursive(
    _leaf,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=4),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(_words, _value, max_size=5))
def test_any_document_is_judged(document: dict[str, Any]) -> None:
    assert all(m.render() for m in check(document))


def test_the_keywords_of_the_engine_are_judged_by_its_newest_release() -> None:
    keywords = {"tensor_paralel_size": 2, "kv_cache_dtype": "fp8_e5m2", "max_num_seqs": 8}
    application = {
        "name": "a",
        "import_path": "ray.serve.llm:build_openai_app",
        "args": {"llm_configs": [{"engine_kwargs": keywords}]},
    }
    found = [each.values["option"] for each in check({"applications": [application]})]
    assert found == ["--tensor-paralel-size", "--kv-cache-dtype"]
