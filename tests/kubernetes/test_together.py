"""Several models beside each other: on which node their pods stand."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.cli.main import run
from tests.support.kubernetes_documents import QWEN, WITH, _plain, objects, rendered

__all__ = ["_plain"]
STACK = (*QWEN, *WITH, "--name", "stack", "--webui")
PREFERRED, REQUIRED = (
    f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("preferred", "required")
)


def affinities(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What each Deployment's pods say of other pods."""
    deployments = [each for each in found if each["kind"] == "Deployment"]
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        .get("affinity", {})
        .get("podAffinity")
        for each in deployments
    }


def test_engines_stand_beside_engines(capsys: pytest.CaptureFixture[str]) -> None:
    """The chat page, which may be anywhere, draws none of them."""
    found = affinities(objects(rendered(capsys, *STACK)))
    assert found.pop("stack-webui") is None and len(found) == 3
    labels = {"app.kubernetes.io/instance": "stack", "app.kubernetes.io/component": "engine"}
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    assert all(
        each == {PREFERRED: [{"weight": 100, "podAffinityTerm": term}]} for each in found.values()
    )


def test_claims_of_one_node_keep_them_there(capsys: pytest.CaptureFixture[str]) -> None:
    """A node's own disk is often all that there is, and three pods on it share its claims."""
    found = objects(rendered(capsys, *STACK, "--access-mode", "ReadWriteOnce"))
    claims = [
        each["spec"]["accessModes"] for each in found if each["kind"] == "PersistentVolumeClaim"
    ]
    assert claims == [["ReadWriteOnce"]] * 2
    engines = {name: each for name, each in affinities(found).items() if each}
    assert len(engines) == 3 and all(each.keys() == {REQUIRED} for each in engines.values())


@pytest.mark.parametrize(
    "words",
    [("--replicas", "2", "--access-mode", "ReadWriteOnce"), ("--access-mode", "ReadWriteOncePod")],
)
def test_not_where_pods_would_wait_for_ever(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["render", "kubernetes", *STACK, *words]) == 2
    assert "ReadWriteMany" in capsys.readouterr().err
