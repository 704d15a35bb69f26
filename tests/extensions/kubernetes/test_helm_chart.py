"""The chart, read by Helm itself: with its defaults it makes what the plain YAML is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings

from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.render.deliver import write
from gaudi_launch.extensions.kubernetes.chart_values import Name
from gaudi_launch.extensions.kubernetes.helm_chart import chart
from gaudi_launch.extensions.kubernetes.objects.needs import PodResources
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from gaudi_launch.extensions.kubernetes.target import ServedModel
from tests.support.cli import golden
from tests.support.kubernetes_documents import CASES, HOSTILE, _plain, objects, rendered, steady

__all__ = ["_plain"]
helm = pytest.importorskip("helm_python", reason="pip install '.[dev]'")


def templated(
    folder: Path, release: str, values: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    with helm.Chart.load(str(folder)) as loaded:
        files = loaded.render(values or {}, name=release, namespace="default")
    return [found for text in files.values() for found in objects(text)]


CHECKSUM = "checksum/"


def templates_of(found: Any) -> list[dict[str, Any]]:
    """Every pod template in an object."""
    if not isinstance(found, dict):
        return (
            [each for part in found for each in templates_of(part)]
            if isinstance(found, list)
            else []
        )
    own = [found] if {"metadata", "spec"} == found.keys() else []
    return own + [each for part in found.values() for each in templates_of(part)]


def sums(objects_of: list[dict[str, Any]]) -> dict[str, str]:
    """What stands in the pods for the ConfigMaps they read, by object and volume."""
    return {
        f"{each['metadata']['name']} {at} {name.removeprefix(CHECKSUM)}": value
        for each in objects_of
        for at, template in enumerate(templates_of(each.get("spec", {})))
        for name, value in template["metadata"].get("annotations", {}).items()
        if name.startswith(CHECKSUM)
    }


def by_name(found: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    for each in found:
        each["metadata"].pop("annotations", None)
        each["metadata"].pop("namespace", None)
        for template in templates_of(each.get("spec", {})):
            annotations = template["metadata"].get("annotations", {})
            # Helm sums the whole template, the plain form what is in it
            annotations |= {name: "sum" for name in annotations if name.startswith(CHECKSUM)}
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.mark.parametrize("case", CASES)
def test_defaults_are_the_plain_objects(
    case: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plain = objects(rendered(capsys, *CASES[case]))
    release = plain[-1]["metadata"]["labels"]["app.kubernetes.io/instance"]
    rendered(capsys, *CASES[case], "--helm", str(tmp_path / "chart"))
    found = helm.lint(str(tmp_path / "chart"))
    assert found["errors"] == []
    assert by_name(templated(tmp_path / "chart", release)) == by_name(plain)


def test_golden_chart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rendered(capsys, *CASES["three-models-gaudi2"], "--webui", "--helm", str(tmp_path / "chart"))
    for name in ("values.yaml", "templates/deployment-bge-m3.yaml", "Chart.yaml"):
        golden(
            f"kubernetes/chart/{name}",
            steady((tmp_path / "chart" / name).read_text(encoding="utf-8")),
        )


@pytest.mark.parametrize("case", CASES)
def test_pods_are_made_anew_when_what_they_read_changes(
    case: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Every ConfigMap that a pod mounts has its sum there, in the plain form and in the chart;
    changed alone, it changes that sum and no other."""
    plain = objects(rendered(capsys, *CASES[case]))
    mounted = {
        f"{each['metadata']['name']} {at} {volume['name']}": volume["configMap"]["name"]
        for each in plain
        for at, template in enumerate(templates_of(each.get("spec", {})))
        for volume in template["spec"].get("volumes", ())
        if "configMap" in volume
    }
    assert sums(plain).keys() == mounted.keys()
    folder = tmp_path / "chart"
    rendered(capsys, *CASES[case], "--helm", str(folder))
    release = plain[-1]["metadata"]["labels"]["app.kubernetes.io/instance"]
    before = sums(templated(folder, release))
    assert before.keys() == mounted.keys() and all(len(value) == 64 for value in before.values())
    for file in sorted((folder / "templates").glob("configmap-*.yaml")):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("data:\n", "data:\n  more: text\n", 1), encoding="utf-8")
        after = sums(templated(folder, release))
        name = f"{release}-{file.stem.removeprefix('configmap-')}"
        assert {where for where in after if after[where] != before[where]} == {
            where for where, map_name in mounted.items() if map_name == name
        }
        file.write_text(text, encoding="utf-8")


def test_a_changed_bucket_file_changes_only_its_models_pods(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = (
        *("-w", "Qwen/Qwen3-8B", "-n", "1", "--accelerator", "gaudi2", "--engine", "vllm-gaudi"),
        *("--name", "stack"),
    )
    other = "-w Qwen/Qwen3-14B -n 1 --engine vllm-gaudi"
    one, two = (
        sums(objects(rendered(capsys, *words, "-i", lengths, "-o", "100,500", "--with", other)))
        for lengths in ("100,2000", "100,4000")
    )
    changed = {where for where in one if one[where] != two[where]}
    assert changed == {"stack-qwen3-8b 0 plan"} and len(one) == 4


@pytest.fixture
def three(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Path:
    rendered(capsys, *CASES["three-models-gaudi2"], "--helm", str(tmp_path / "chart"))
    return tmp_path / "chart"


def test_values_reach_the_objects(three: Path) -> None:
    values = {
        "models": {
            "bge-m3": {"enabled": False},
            "qwen2-72b-instruct": {"replicas": 3, "image": "mine:1"},
        },
        "weights": {"size": "2Ti"},
    }
    found = by_name(templated(three, "other", values))
    assert not [name for _, name in found if name.endswith("bge-m3")]
    spec = found["Deployment", "other-qwen2-72b-instruct"]["spec"]
    engine = spec["template"]["spec"]["containers"][0]
    assert (spec["replicas"], engine["image"]) == (3, "mine:1")
    assert (
        found["PersistentVolumeClaim", "other-weights"]["spec"]["resources"]["requests"]["storage"]
        == "2Ti"
    )


def changes_of(values: Any, name: str = "") -> Iterator[Any]:
    """Yield the values again and again, each time with one of them changed."""
    if isinstance(values, dict) and name not in ("nodeSelector", "limits", "requests"):
        for key, value in values.items():
            yield from ({key: changed} for changed in changes_of(value, key))
    elif isinstance(values, dict):
        yield {"added": "x"}
    elif isinstance(values, bool):
        yield not values
    elif isinstance(values, list):
        yield [*values, {"key": "added", "operator": "Exists"}]
    else:
        yield values + type(values)(1)


def engines(found: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    """Return the sizes of each engine: its containers and its groups.

    Images and the names of Secrets are no sizes.
    """
    sizes = {}
    for (kind, name), each in found.items():
        if kind not in ("Deployment", "LeaderWorkerSet", "RayService"):
            continue
        for at, template in enumerate(templates_of(each["spec"])):
            for container in template["spec"]["containers"]:
                if container["name"] in ("engine", "ray-worker"):
                    env = [each for each in container["env"] if "value" in each]
                    sizes[f"{name} {at}"] = {**container, "image": "", "env": env}
        if kind == "LeaderWorkerSet":
            sizes[f"{name} size"] = each["spec"]["leaderWorkerTemplate"]["size"]
        if kind == "RayService":
            group = each["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]
            sizes[f"{name} group"] = {**group, "template": ""}
            sizes[f"{name} application"] = each["spec"]["serveConfigV2"]
    return sizes


@pytest.mark.parametrize("case", CASES)
def test_no_value_changes_a_size_of_an_engine(
    case: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each value changes the objects, and none of what one plan decided together."""
    folder = tmp_path / "chart"
    rendered(capsys, *CASES[case], "--helm", str(folder))
    values = yaml.safe_load((folder / "values.yaml").read_text(encoding="utf-8"))
    before = by_name(templated(folder, "r"))
    planned = engines(before)
    for changed in changes_of(values):
        after = by_name(templated(folder, "r", changed))
        assert after != before, changed
        found = engines(after)
        # a model that is not enabled has no engine
        assert found == {name: planned[name] for name in found}, changed


def test_two_releases_share_no_name(three: Path) -> None:
    """The public chart's labels are the same in every release (vllm-fork,
    vllm-multi-model-chart)."""
    one, two = by_name(templated(three, "one")), by_name(templated(three, "two"))
    assert not one.keys() & two.keys()
    selectors = [
        {
            json.dumps(o["spec"]["selector"])
            for o in found.values()
            if o["kind"] in ("Deployment", "Service")
        }
        for found in (one, two)
    ]
    assert not selectors[0] & selectors[1]


def test_a_long_release_name_still_names_objects(three: Path) -> None:
    found = by_name(templated(three, "a-very-long-release-name-of-53-characters-is-the-most"))
    assert all(len(name) <= 45 for _, name in found)
    assert len({name for kind, name in found if kind == "Deployment"}) == 3


@pytest.mark.parametrize(
    "values", [{"replicaCount": 2}, {"models": {"bge-m3": {"replica": 2}}}, {"models": {"x": {}}}]
)
def test_an_unknown_value_is_refused(three: Path, values: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="additional properties"):
        templated(three, "r", values)


def test_claims_outlive_their_release(three: Path) -> None:
    claims = [found for found in templated(three, "r") if found["kind"] == "PersistentVolumeClaim"]
    assert [found["metadata"]["annotations"] for found in claims] == [
        {"helm.sh/resource-policy": "keep"}
    ] * 2


@settings(max_examples=40, deadline=None)
@given(value=HOSTILE)
@example(value="=")
def test_no_text_is_a_template(value: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Braces of the user are braces, in values and in what stands in a template itself."""
    needs = PodResources(1, 2, 1024, 8, 2048, 600, 20)
    container = Container(
        "image", (value,), {"TEXT": value}, entrypoint=value or "x", ports=((8000, 8000),)
    )
    served = ServedModel("m", Name("r"), "hub/model", container, needs, 8)
    folder = tmp_path_factory.mktemp("chart")
    write(chart([served], KubernetesOptions(release="r")), f"{folder}/", force=False)
    found = next(each for each in templated(folder, "r") if each["kind"] == "Deployment")
    engine = found["spec"]["template"]["spec"]["containers"][0]
    escaped = value.replace("$", "$$") if "$(" in value or "$$" in value else value
    assert engine["command"] == [value or "x"]
    assert engine["args"] == [escaped]
    assert {e["name"]: e["value"] for e in engine["env"]}["TEXT"] == escaped
