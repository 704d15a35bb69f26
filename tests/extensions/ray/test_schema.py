"""The check of a Serve config: what Ray takes in silence is found, and nothing ends in a
traceback."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.extensions.ray.schema import KEYS, check

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


def test_a_good_one_has_nothing_wrong() -> None:
    assert check(GOOD) == []


@pytest.mark.parametrize(
    ("document", "id", "path"),
    [
        (changed(("http_option",), {}), "ray.unknown_key", "http_option"),
        (changed(("http_options", "port"), 99999), "ray.out_of_range", "http_options.port"),
        (changed(("http_options", "port"), 0), "ray.out_of_range", "http_options.port"),
        (
            changed((*D, "max_ongoing_requests"), 0),
            "ray.out_of_range",
            "applications[0].deployments[0].max_ongoing_requests",
        ),
        (changed(("http_options", "prot"), 1), "ray.unknown_key", "http_options.prot"),
        (changed(("applications", 0, "env"), {}), "ray.unknown_key", "applications[0].env"),
        (
            changed((*D, "num_replica"), 2),
            "ray.unknown_key",
            "applications[0].deployments[0].num_replica",
        ),
        (
            # awslabs/data-on-eks writes this name
            changed((*D, "autoscaling_config", "target_num_ongoing_requests_per_replica"), 1),
            "ray.renamed_key",
            "applications[0].deployments[0].autoscaling_config.target_num_ongoing_requests_per_replica",
        ),
        (changed(("http_options", "port"), "8000"), "ray.wrong_type", "http_options.port"),
        (changed(("http_options", "port"), True), "ray.wrong_type", "http_options.port"),
        (
            changed((*D, "num_replicas"), "two"),
            "ray.wrong_type",
            "applications[0].deployments[0].num_replicas",
        ),
        (changed((*D, "num_replicas"), 2), "ray.both_replicas", "applications[0].deployments[0]"),
        (changed((*D, "name"), ""), "ray.no_name", "applications[0].deployments[0]"),
        (
            changed((*D, "autoscaling_config", "min_replicas"), 3),
            "ray.replica_order",
            "applications[0].deployments[0].autoscaling_config",
        ),
        (
            changed((*D, "ray_actor_options", "resources", "HPU"), 0.5),
            "ray.part_of_a_card",
            "applications[0].deployments[0].ray_actor_options.resources.HPU",
        ),
        (
            changed(("applications", 0, "route_prefix"), "v1"),
            "ray.route_prefix",
            "applications[0].route_prefix",
        ),
        (
            changed(("applications", 0, "import_path"), "build"),
            "ray.import_path",
            "applications[0].import_path",
        ),
        (changed(("applications", 0), 7), "ray.not_mapping", "applications[0]"),
    ],
)
def test_each_fault_is_found_alone(document: dict[str, Any], id: str, path: str) -> None:
    assert [(m.id, m.values.get("path")) for m in check(document)] == [(id, path)]
    assert all(m.render("en") and m.render("zh") for m in check(document))


@pytest.mark.parametrize("document", [None, [], 3, "x"])
def test_no_mapping_at_all(document: Any) -> None:
    assert [m.id for m in check(document)] == ["ray.not_mapping"]


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


def test_a_fault_names_what_was_found_and_what_ray_wants() -> None:
    def found(path: tuple[Any, ...], value: Any) -> list[Message]:
        return check(changed(path, value))

    deployment = "applications[0].deployments[0]"
    port = "http_options.port"
    assert found(("http_options", "port"), 99999) == [
        message("ray.out_of_range", path=port, found=99999, least=1, most=65535)
    ]
    assert found(("http_options", "port"), [1] * 99) == [
        message("ray.wrong_type", path=port, found=repr([1] * 99)[:60], wanted="int")
    ]
    assert found(("http_options", "prot"), 1) == [
        message("ray.unknown_key", path="http_options.prot", near="port")
    ]
    far = ", ".join(KEYS["http_options"])
    assert found(("http_options", "xyz"), 1) == [
        message("ray.unknown_key", path="http_options.xyz", near=far)
    ]
    assert found(("applications", 0, "route_prefix"), "v1") == [
        message("ray.route_prefix", path="applications[0].route_prefix", found="v1")
    ]
    assert found(("applications", 0, "import_path"), None) == [
        message("ray.import_path", path="applications[0].import_path", found="None")
    ]
    assert found((*D, "max_concurrent_queries"), 9) == [
        message(
            "ray.renamed_key",
            path=f"{deployment}.max_concurrent_queries",
            key="max_ongoing_requests",
        )
    ]
    scaling = "target_num_ongoing_requests_per_replica"
    assert found((*D, "autoscaling_config", scaling), 9) == [
        message(
            "ray.renamed_key",
            path=f"{deployment}.autoscaling_config.{scaling}",
            key="target_ongoing_requests",
        )
    ]
    assert found(("http_options",), 3) == [
        message("ray.wrong_type", path="http_options", found="3", wanted="dict")
    ]
    assert check([]) == [message("ray.not_mapping", path="-")]
    # a number may be an int or a float
    assert found((*D, "health_check_period_s"), 1) == found((*D, "health_check_period_s"), 1.5)
    assert found((*D, "health_check_period_s"), 1) == []


def test_the_keywords_of_the_engine_are_judged_by_its_newest_release() -> None:
    keywords = {"tensor_paralel_size": 2, "kv_cache_dtype": "fp8_e5m2", "max_num_seqs": 8}
    application = {
        "name": "a",
        "import_path": "ray.serve.llm:build_openai_app",
        "args": {"llm_configs": [{"engine_kwargs": keywords}]},
    }
    found = [each.values["option"] for each in check({"applications": [application]})]
    assert found == ["--tensor-paralel-size", "--kv-cache-dtype"]
