"""The quick part of the tests of documents and charts: complete files from records."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from gaudi_launch.core.host.accelerators import Instance
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.extensions.kubernetes.case import in_ray
from gaudi_launch.extensions.kubernetes.chart_values import Name
from gaudi_launch.extensions.kubernetes.documents import render
from gaudi_launch.extensions.kubernetes.helm_chart import chart
from gaudi_launch.extensions.kubernetes.objects.inferentia import neuron_served
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from gaudi_launch.extensions.kubernetes.target import ServedModel
from gaudi_launch.extensions.ray.schema import check
from tests.support.cli import golden
from tests.support.kubernetes_documents import objects, steady
from tests.support.served_models import GATEWAY, plain_served, served

INSTANCE = Instance("inf2.48xlarge", 12, 24, 16, 192, 768)
LLAMA = Model("/models/llama", "llama", parameters=13_000_000_000, weight_bytes=26 << 30)

DEPLOYMENT = KubernetesOptions(
    release="chat",
    namespace="llm",
    replicas=25,
    max_replicas=30,
    autoscale="hpa",
    storage_class="nfs",
    runtime_class="habana",
    secret="hub",
    secret_names=("HF_TOKEN", "VLLM_API_KEY"),
    ingress_host="chat.example.com",
    ingress_class="nginx",
    webui=True,
    node_selector=("zone=a",),
    tolerate=("example.com/ai",),
    gateway=GATEWAY,
)
GROUPS = KubernetesOptions(
    release="chat",
    kind="leaderworkerset",
    replicas=1,
    max_replicas=3,
    autoscale="hpa",
    requests=48,
    nodes="2",
    interface="net1",
    secret="hub",
    secret_names=("RAY_AUTH_TOKEN",),
)
RAY = KubernetesOptions(
    release="chat",
    kind="rayservice",
    replicas=1,
    max_replicas=4,
    ray_version="2.60.0",
    runtime_class="habana",
    ingress_host="chat.example.com",
    webui=True,
    webui_image="registry/page:1",
)
SHAPES: dict[str, tuple[Sequence[ServedModel], KubernetesOptions]] = {
    "deployment": ([served()], DEPLOYMENT),
    "plain-deployment": ([plain_served()], KubernetesOptions(release="chat", replicas=2)),
    "two-models": (
        [served(name=Name("chat", "qwen")), plain_served()],
        KubernetesOptions(release="chat", access_mode="ReadWriteOnce", weights_claim="mine"),
    ),
    "groups": ([served(env_from={"VLLM_HOST_IP": "status.podIP"})], GROUPS),
    "fixed-groups": (
        [plain_served()],
        KubernetesOptions(release="chat", kind="leaderworkerset", replicas=2, interface="eth0"),
    ),
    "ray": ([in_ray(served(files={}), RAY)], RAY),
}


@pytest.fixture(autouse=True)
def _english(plain_english: None) -> None:
    """Headers and golden notes are in English."""


def shown(made: Rendered) -> str:
    """Return all files and the notes as one text."""
    parts = [f"=== {name}\n{text}" for name, text in made.files.items()]
    notes = [f"{note.id} {json.dumps(dict(note.values))}\n" for note in made.notes]
    return steady("".join(parts)) + "=== notes\n" + "".join(notes)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_files_of_each_shape(shape: str) -> None:
    models, cluster = SHAPES[shape]
    made = render(models, cluster)
    golden(f"kubernetes/shapes/{shape}.txt", shown(made))


def test_the_files_of_the_inferentia_example() -> None:
    cluster = KubernetesOptions(
        release="llama",
        kind="rayservice",
        replicas=1,
        max_replicas=3,
        ray_version="2.22.0",
        webui=True,
        ingress_host="chat.example.com",
    )
    made = render([neuron_served(LLAMA, INSTANCE, "llama", None, "", (1, 3))], cluster)
    golden("kubernetes/shapes/neuron.txt", shown(made))


@pytest.mark.parametrize("shape", ["deployment", "two-models", "fixed-groups", "ray"])
def test_the_chart_of_each_shape(shape: str) -> None:
    models, cluster = SHAPES[shape]
    golden(f"kubernetes/shapes/{shape}-chart.txt", shown(chart(models, cluster)))


def test_what_a_template_could_read_as_its_own_stays_text() -> None:
    container = Container("i", (), {}, entrypoint="{{ KNOB0x1x }} KNOB1x")
    files = chart([plain_served(container=container)], KubernetesOptions(release="chat")).files
    lines = files["templates/deployment-bge-m3.yaml"].splitlines()
    command = lines[lines.index("        command:") + 1]
    assert command == """        - "{{ "{{" }} KNOB0x1x {{ "}}" }} KNOB1x\""""
    # the knobs next to it are knobs
    image = '{{ (index .Values "models" "bge-m3" "image") | quote }}'
    assert f"        image: {image}" in lines


def test_ray_ignores_no_key_of_the_inferentia_example() -> None:
    assert check(dict(neuron_served(LLAMA, INSTANCE, "llama", None, "", (1, 3)).serve)) == []


def test_what_a_monitored_model_needs_is_noted() -> None:
    made = render([served(), plain_served()], KubernetesOptions(release="chat", monitor=True))
    notes = {note.id: note.values for note in made.notes}
    assert notes["kubernetes.monitor"] == {"names": "chat chat-bge-m3"}
    assert "monitoring.in_cluster" in notes
    monitors = [
        each for each in objects(made.files["chat.yaml"]) if each["kind"] == "ServiceMonitor"
    ]
    assert [each["spec"] for each in monitors] == [
        {
            "selector": {
                "matchLabels": {
                    "app.kubernetes.io/name": name,
                    "app.kubernetes.io/component": "engine",
                }
            },
            "endpoints": [{"port": "http", "path": "/metrics", "interval": "15s"}],
        }
        for name in ("chat", "chat-bge-m3")
    ]
