"""``kube`` through a stand-in kubectl that answers as a cluster does, and through the real one
without any."""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.cli.main import run
from gaudi_launch.extensions.kubernetes.status import statuses
from tests.support.kubernetes_documents import pod, thing

NOW = datetime(2026, 11, 21, 9, 0, 0, tzinfo=timezone.utc)
STAND_IN = """#!{python}
import json, sys
from pathlib import Path
here = Path(__file__).parent
with (here / "asked").open("a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
words = [word for word in sys.argv[1:] if not word.startswith("--")]
kind = "-" + words[1].split(".")[0].split(",")[0] if words[0] == "get" else ""
answer = here / (words[0] + kind)
if not answer.exists():
    sys.exit("error: the server doesn't have a resource type \\"" + words[1] + "\\"")
text = answer.read_text()
if text.startswith("error"):
    sys.exit(text)
print(text)
"""


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch, plain_english: None, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stand-in: files are its answers, ``asked`` what it was asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "kubectl").write_text(STAND_IN.replace("{python}", sys.executable))
    (folder / "kubectl").chmod(0o755)
    (tmp_path / "config").write_text("{}")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def asked(cluster: Path) -> list[list[str]]:
    return [json.loads(line) for line in (cluster / "asked").read_text().splitlines()]


DEPLOYMENT = thing(
    "Deployment", "chat", apiVersion="apps/v1", spec={"replicas": 2}, status={"readyReplicas": 1}
)
READY = pod(conditions=[{"type": "Ready", "status": "True"}])
FEW = "0/3 nodes are available: 3 Insufficient hugepages-2Mi."
PENDING = pod("chat-b", conditions=[{"type": "PodScheduled", "status": "False", "message": FEW}])
OTHERS = [
    thing("Service", "chat"),
    thing("ConfigMap", "chat-scripts"),
    thing("PersistentVolumeClaim", "chat-weights"),
    thing("PodDisruptionBudget", "chat", apiVersion="policy/v1"),
]


def answer(cluster: Path, *items: dict[str, Any], kinds: str = "deployments") -> None:
    (cluster / f"get-{kinds}").write_text(json.dumps({"kind": "List", "items": list(items)}))


def kube(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(["kube", *words])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def test_status(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(cluster, DEPLOYMENT, READY, PENDING, *OTHERS)
    code, out, err = kube(capsys, "status", "chat", "--namespace", "llm", "--context", "east")
    assert (code, err) == (0, "")
    assert "chat: Deployment chat 1/2" in out
    assert "chat-a" in out and "vm.nr_hugepages" in out
    first = asked(cluster)[0]
    assert first[:3] == ["--context=east", "--namespace=llm", "get"]
    assert (
        "--selector=app.kubernetes.io/managed-by=gaudi-launch,app.kubernetes.io/instance=chat"
        in first
    )


def test_status_as_json(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(cluster, DEPLOYMENT, READY)
    answer(cluster, thing("LeaderWorkerSet", "r1", "r1"), kinds="leaderworkersets")
    code, out, _ = kube(capsys, "status", "--json")
    found = json.loads(out)
    assert (code, found["schema"]) == (0, 1)
    assert [(each["name"], each["ready"]) for each in found["deployments"]] == [
        ("chat", False),
        ("r1", False),
    ]
    assert found["deployments"][1]["workloads"] == [
        {"kind": "LeaderWorkerSet", "name": "r1", "wanted": 1, "ready": 0}
    ]


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = (
    *("kind", "spec", "status", "containerStatuses", "conditions", "state", "running"),
    *("startedAt", "containers"),
)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(KEYS), JSONS | st.dictionaries(st.sampled_from(KEYS), JSONS), max_size=5
    )
)
def test_no_answer_is_a_traceback(item: dict[str, Any]) -> None:
    labels = {"app.kubernetes.io/instance": "x"}
    for kind in ("Pod", "Deployment", "RayService"):
        for found in statuses([{**item, "kind": kind, "metadata": {"labels": labels}}], NOW):
            json.dumps(found.to_json())


def test_logs(cluster: Path, capfd: pytest.CaptureFixture[str]) -> None:
    answer(cluster, DEPLOYMENT, READY, PENDING)
    (cluster / "logs").write_text("[pod/chat-a/engine] Application startup complete.")
    code = run(["kube", "logs", "chat", "--tail", "20", "--previous"])
    out, err = capfd.readouterr()
    assert (code, err) == (0, "")
    assert out == "[pod/chat-a/engine] Application startup complete.\n"
    assert asked(cluster)[-1] == [
        "logs",
        "--selector=app.kubernetes.io/managed-by=gaudi-launch,app.kubernetes.io/instance=chat,"
        "app.kubernetes.io/component=engine",
        "--prefix",
        "--container=engine",
        "--tail=20",
        "--max-log-requests=5",
        "--previous",
    ]


def test_logs_of_one_pod(cluster: Path, capfd: pytest.CaptureFixture[str]) -> None:
    answer(cluster, DEPLOYMENT, READY, PENDING)
    (cluster / "logs").write_text("line")
    assert run(["kube", "logs", "chat", "--pod", "chat-b", "-f"]) == 0
    assert asked(cluster)[-1][:2] == ["logs", "chat-b"]
    assert run(["kube", "logs", "chat", "--pod", "other"]) == 1
    assert "other" in capfd.readouterr().err


def test_delete_keeps_the_claims(cluster: Path, capfd: pytest.CaptureFixture[str]) -> None:
    answer(cluster, DEPLOYMENT, READY, *OTHERS)
    (cluster / "delete").write_text("deleted")
    assert run(["kube", "delete", "chat", "--yes"]) == 0
    gone = [
        "deployment.v1.apps/chat",
        "service/chat",
        "configmap/chat-scripts",
        "poddisruptionbudget.v1.policy/chat",
    ]
    assert asked(cluster)[-1] == ["delete", "--ignore-not-found", *gone]
    assert run(["kube", "delete", "chat", "--yes", "--volumes"]) == 0
    assert "persistentvolumeclaim/chat-weights" in asked(cluster)[-1]
    assert gone[0] in capfd.readouterr().out


def test_nothing_is_deleted_unasked(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(cluster, DEPLOYMENT)
    code, out, err = kube(capsys, "delete", "chat")
    assert (code, out) == (2, "deployment.v1.apps/chat\n")
    assert "--yes" in err
    assert all(words[0] == "get" for words in asked(cluster))


def test_what_helm_installed_is_left_to_helm(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = {"annotations": {"meta.helm.sh/release-name": "chat"}}
    answer(cluster, thing("Deployment", "chat", apiVersion="apps/v1", metadata=notes))
    code, _, err = kube(capsys, "delete", "chat", "--yes")
    assert code == 2 and "helm uninstall chat" in err


def test_a_kind_that_is_closed_to_the_user_is_no_failure(
    cluster: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The role `view` of a cluster sees deployments, and not what controllers have added."""
    answer(cluster, DEPLOYMENT, READY, *OTHERS)
    said = (
        "error from server (Forbidden): servicemonitors.monitoring.coreos.com is forbidden: "
        'User "me" cannot list resource'
    )
    (cluster / "get-servicemonitors").write_text(said)
    assert run(["kube", "status", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["deployments"][0]["name"] == "chat"
    assert "servicemonitors.monitoring.coreos.com" in err
    (cluster / "delete").write_text("deleted")
    assert run(["kube", "delete", "chat", "--yes"]) == 0
    assert "servicemonitors.monitoring.coreos.com" in capfd.readouterr().err


@pytest.mark.parametrize(
    "words", [["logs", "chat"], ["delete", "chat", "--yes"], ["status", "chat", "--json"]]
)
def test_objects_of_others_are_left_alone(
    words: list[str], cluster: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Should a cluster answer with more than was asked for."""
    answer(cluster, DEPLOYMENT, READY, thing("Service", "other", "other"))
    for verb in ("logs", "delete"):
        (cluster / verb).write_text("done")
    assert run(["kube", *words]) == 0
    out, _ = capfd.readouterr()
    assert "other" not in out and "service/other" not in asked(cluster)[-1]


def test_an_empty_namespace_is_no_failure(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(cluster)
    code, out, _ = kube(capsys, "status")
    assert code == 0 and "--namespace" in out
    code, out, _ = kube(capsys, "status", "--json")
    assert (code, json.loads(out)) == (0, {"schema": 1, "deployments": []})


def test_nothing_of_that_name(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(cluster)
    code, _, err = kube(capsys, "status", "other")
    assert code == 1 and "other" in err


@pytest.mark.parametrize(
    "words", [["status", "a,b"], ["logs", "--x=y"], ["delete", "A"], ["status", "-N", "a b"]]
)
def test_names_cannot_become_options(
    words: list[str], cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kube(capsys, *words)[0] == 2
    assert not (cluster / "asked").exists()


def test_no_kubectl(no_programs: None, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = kube(capsys, "status")
    assert code == 3 and "kubernetes.io/docs/tasks/tools" in err


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
def test_the_real_kubectl_without_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = kube(capsys, "status")
    assert code == 3 and "KUBECONFIG" in err
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nusers: []\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "contexts: [{name: c, context: {cluster: c}}]\n"
    )
    code, _, err = kube(capsys, "status", "--kubeconfig", str(config))
    assert code == 1 and "127.0.0.1:9" in err
    code, _, err = kube(capsys, "status", "--kubeconfig", str(config), "--context", "other")
    assert code == 2 and "get-contexts" in err
    config.write_text("junk")
    assert kube(capsys, "status", "--kubeconfig", str(config))[0] == 2
