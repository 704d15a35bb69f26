"""Objects around the engines: the volumes, who may share them, and scaling."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.errors import ExitCode
from gaudi_launch.kubernetes.chart_values import Name, plain
from gaudi_launch.kubernetes.objects.extras import (
    access_mode,
    adapter_values,
    monitoring_objects,
    storage,
)
from gaudi_launch.kubernetes.target import KubernetesTarget
from gaudi_launch.planning.container import Container
from gaudi_launch.watch.monitoring import dashboard, rule_groups
from tests.support.refusals import failing
from tests.support.served_models import plain_served, served

ONE, MANY = "ReadWriteOnce", "ReadWriteMany"


@pytest.mark.parametrize(
    ("more", "models", "mode"),
    [
        ({}, 1, ONE),
        ({}, 2, MANY),
        ({"replicas": 2}, 1, MANY),
        ({"max_replicas": 2}, 1, MANY),
        ({"nodes": 2}, 1, MANY),
        ({"access_mode": ONE}, 2, ONE),
        ({"access_mode": "ReadWriteOncePod"}, 1, "ReadWriteOncePod"),
        ({"access_mode": "ReadOnlyMany", "replicas": 2}, 1, "ReadOnlyMany"),
    ],
)
def test_pods_on_several_nodes_share_a_volume(more: dict[str, Any], models: int, mode: str) -> None:
    assert access_mode(KubernetesTarget("chat", **more), [served()] * models) == mode


@pytest.mark.parametrize(
    ("more", "models"),
    [
        ({"access_mode": ONE, "replicas": 2}, 1),
        ({"access_mode": "ReadWriteOncePod", "nodes": 2}, 1),
        ({"access_mode": "ReadWriteOncePod"}, 2),
    ],
)
def test_a_volume_for_which_pods_would_wait_is_refused(more: dict[str, Any], models: int) -> None:
    with failing("kubernetes.access_mode", ExitCode.USAGE) as caught:
        access_mode(KubernetesTarget("chat", **more), [served()] * models)
    assert caught.value.text.values == {"found": more["access_mode"]}


def sizes(target: KubernetesTarget, *models: Any) -> dict[str, str]:
    made = [plain(each) for each in storage(target, models, Name("chat"))]
    return {
        each["metadata"]["name"]: each["spec"]["resources"]["requests"]["storage"]
        for each in made
        if each["kind"] == "PersistentVolumeClaim"
    }


def test_volumes_have_room_for_all_models_and_two_sets_of_graphs() -> None:
    target = KubernetesTarget("chat")
    assert sizes(target, served(), served(recipe_mib=100)) == {
        "chat-weights": "280Gi",
        "chat-recipes": "8Gi",
    }
    # less than a GiB is one
    assert sizes(target, served(recipe_mib=100))["chat-recipes"] == "1Gi"
    assert sizes(replace(target, weights_claim="mine"), served()) == {"chat-recipes": "8Gi"}
    inside = plain_served(model="/inside", container=Container("image", ()))
    assert sizes(target, inside) == {}


def test_files_of_a_plan_are_a_config_map_for_each_model() -> None:
    models = [served(recipe_key=""), plain_served()]
    made = [plain(each) for each in storage(KubernetesTarget("chat"), models, Name("chat"))]
    assert [(each["metadata"]["name"], each.get("data")) for each in made] == [
        ("chat-weights", None),
        ("chat-plan-qwen", {"buckets.json": "[[1, 128, 0]]\n"}),
    ]


def test_the_adapter_adds_running_and_waiting_requests_of_every_engine() -> None:
    def rule(running: str, waiting: str) -> dict[str, Any]:
        return {
            "seriesQuery": f'{waiting}{{namespace!="",pod!=""}}',
            "resources": {
                "overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}
            },
            "name": {"as": "gaudi_launch_requests"},
            "metricsQuery": f"sum({running}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)"
            f" + sum({waiting}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)",
        }

    assert adapter_values([served(), plain_served(), served()]) == {
        "rules": {
            "custom": [
                rule("tgi_batch_current_size", "tgi_queue_size"),
                rule("vllm:num_requests_running", "vllm:num_requests_waiting"),
            ]
        }
    }


def test_the_rules_and_a_dashboard_that_grafana_finds() -> None:
    rules, made = (plain(each) for each in monitoring_objects(Name("chat")))
    shared = {
        "app.kubernetes.io/name": "chat",
        "app.kubernetes.io/instance": "chat",
        "app.kubernetes.io/managed-by": "gaudi-launch",
    }
    assert rules == {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "chat-alerts",
            "labels": {**shared, "app.kubernetes.io/component": "alerts"},
        },
        "spec": rule_groups(),
    }
    text = made["data"].pop("gaudi-launch.json")
    assert made == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "chat-dashboard",
            "labels": {
                **shared,
                "app.kubernetes.io/component": "dashboard",
                "grafana_dashboard": "1",
            },
        },
        "data": {},
    }
    assert json.loads(text) == dashboard()
