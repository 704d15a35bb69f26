"""What is refused before an object is written."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.extensions.kubernetes.schema_check import check, pods_of, problems
from tests.support.refusals import failing


def deployment(**container: Any) -> dict[str, Any]:
    labels = {"app": "a"}
    pod = {"containers": [{"name": "engine", "image": "i", **container}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "labels": dict(labels)},
        "spec": {
            "selector": {"matchLabels": dict(labels)},
            "template": {"metadata": {"labels": dict(labels)}, "spec": pod},
        },
    }


def config_map(name: str = "a") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {}}


ENGINE = ".spec.template.spec.engine"


@pytest.mark.parametrize(
    ("container", "fault"),
    [
        ({}, None),
        (
            {"volumeMounts": [{"name": "x", "mountPath": "/x"}]},
            "mounts 'x', which is not a volume of the pod",
        ),
        (
            {"livenessProbe": {"httpGet": {"path": "/", "port": 1}}},
            "a livenessProbe without a startupProbe kills a long warm-up",
        ),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
            "two values for the variable A",
        ),
        ({"resources": {"limits": {"memory": "5 GB"}}}, "memory: '5 GB' is not a quantity"),
        (
            {
                "resources": {
                    "requests": {"hugepages-2Mi": "3Mi"},
                    "limits": {"hugepages-2Mi": "3Mi"},
                }
            },
            "hugepages-2Mi: '3Mi' is not a multiple of the page size",
        ),
        (
            {
                "resources": {
                    "limits": {"hugepages-2Mi": "4Gi"},
                    "requests": {"hugepages-2Mi": "4Gi"},
                }
            },
            "hugepages-2Mi: '4Gi' is not a multiple of the page size",
        ),
        (
            {"resources": {"limits": {"habana.ai/gaudi": "1"}}},
            "habana.ai/gaudi differs in requests and limits",
        ),
        (
            {
                "resources": {
                    "limits": {"hugepages-2Mi": "4Mi"},
                    "requests": {"hugepages-2Mi": "2Mi"},
                }
            },
            "hugepages-2Mi differs in requests and limits",
        ),
        ({"resources": {"limits": {"memory": "5Gi"}, "requests": {"memory": "1.5Gi"}}}, None),
    ],
)
def test_the_faults_of_a_container(container: dict[str, Any], fault: str | None) -> None:
    expected = [] if fault is None else [(ENGINE, fault)]
    assert list(problems(deployment(**container))) == expected


def test_names_labels_and_selectors() -> None:
    wrong = deployment()
    wrong["metadata"] = {"name": "A_b", "labels": {"app": "x" * 64, "b": "-"}}
    wrong["spec"]["selector"]["matchLabels"]["app"] = "other"
    assert list(problems(wrong)) == [
        ("metadata.name", "'A_b' is not a DNS label"),
        ("metadata.labels.app", f"'{'x' * 64}' is not a label value"),
        ("metadata.labels.b", "'-' is not a label value"),
        ("spec.selector", "does not select the pods of its template"),
    ]
    for name, accepted in (("a" * 63, True), ("a" * 64, False), ("a-", False), ("", False)):
        assert (list(problems(config_map(name))) == []) is accepted
    good = deployment()
    good["metadata"]["labels"]["empty"] = ""
    assert list(problems(good)) == []


def test_two_containers_of_one_name_and_keys_that_the_api_lacks() -> None:
    twice = deployment()
    pod = twice["spec"]["template"]["spec"]
    pod["initContainers"] = [{"name": "engine", "image": "i"}]
    assert list(problems(twice)) == [(ENGINE, "two containers of one name")]
    wrong = deployment(imagePullPolice="Always")
    assert list(problems(wrong)) == [
        (".spec.template.spec.containers[0].imagePullPolice", "unknown key")
    ]
    lacking = deployment()
    del lacking["spec"]["template"]["spec"]["containers"][0]["name"]
    first = next(iter(problems(lacking)))
    assert first == (".spec.template.spec.containers[0].name", "missing")
    assert list(problems({"apiVersion": "v2", "kind": "X"})) == [("kind", "unknown: v2 X")]


def test_every_pod_of_an_object_is_found() -> None:
    one: dict[str, Any] = {"containers": []}
    two: dict[str, Any] = {"containers": []}
    assert list(pods_of({"a": [{"b": one}, {"c": (two,)}]})) == [
        (".a[0].b", one),
        (".a[1].c[0]", two),
    ]


def test_the_first_problem_is_an_error_and_so_are_two_of_one_name() -> None:
    check([config_map("a"), config_map("b"), deployment()])
    with failing("kubernetes.not_valid", ExitCode.FAILED) as caught:
        check([config_map("a"), config_map("B")])
    assert caught.value.text.values == {
        "object": "ConfigMap B",
        "where": "metadata.name",
        "what": "'B' is not a DNS label",
    }
    with failing("kubernetes.twice", ExitCode.USAGE) as caught:
        check([config_map("a"), config_map("a")])
    assert caught.value.text.values == {"object": "ConfigMap a"}
