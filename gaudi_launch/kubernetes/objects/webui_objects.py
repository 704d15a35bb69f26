"""A chat page for the first model: Deployment, Service and its program. Pure."""

from __future__ import annotations

from typing import Any

from gaudi_launch.kubernetes.chart_values import Checksum, Knob, Name, TemplateText
from gaudi_launch.kubernetes.objects.extras import config_map, shared_labels
from gaudi_launch.kubernetes.objects.pod import pod_metadata, script
from gaudi_launch.kubernetes.target import PORT, KubernetesTarget

# the one public image that is only gradio and requests:
# awslabs/ai-on-eks@41a979e:blueprints/inference/ llama2-13b-chat-rayserve-inf2/gradio-ui.yaml
IMAGE = "public.ecr.aws/data-on-eks/gradio-web-app-base:latest"
PAGE_PORT = 7860
_NAME = "webui"


def webui(
    cluster: KubernetesTarget,
    release: Name,
    api: Name | TemplateText,
    title: str,
    style: str = "openai",
) -> list[dict[str, Any]]:
    """Return the objects of the page, which uses the Service ``api``.

    The resources of its container are those of the same example.
    """
    name = Name(release.release, _NAME)
    program = {"chat_page.py": script("chat_page.py")}
    labels = {**shared_labels(release, _NAME), "app.kubernetes.io/name": name}
    selector = {"app.kubernetes.io/name": name, "app.kubernetes.io/component": _NAME}
    hidden = [
        {
            "name": variable,
            "valueFrom": {
                "secretKeyRef": {"name": Knob(("secret",), cluster.secret), "key": variable}
            },
        }
        for variable in cluster.secret_names
        if variable == "VLLM_API_KEY"
    ]
    small, most = {"cpu": "512m", "memory": "2Gi"}, {"cpu": "1", "memory": "4Gi"}
    container = {
        "name": _NAME,
        "image": Knob((_NAME, "image"), cluster.webui_image or IMAGE),
        "command": ["python3", "/opt/gaudi-launch/chat_page.py"],
        "env": [
            {
                "name": "CHAT_URL",
                "value": TemplateText(
                    (
                        "http://",
                        *(api.parts if isinstance(api, TemplateText) else (api,)),
                        f":{PORT}",
                    )
                ),
            },
            {"name": "CHAT_STYLE", "value": style},
            {"name": "CHAT_TITLE", "value": title},
            {"name": "GRADIO_ANALYTICS_ENABLED", "value": "False"},
            *hidden,
        ],
        "ports": [{"name": "http", "containerPort": PAGE_PORT}],
        "resources": {"requests": small, "limits": most},
        "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 10},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "page", "mountPath": "/opt/gaudi-launch", "readOnly": True}],
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [{"name": "page", "configMap": {"name": Name(release.release, "page")}}],
    }
    return [
        config_map(release, "page", program),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": selector},
                "template": {
                    "metadata": pod_metadata(labels, {"page": Checksum("page", program)}),
                    "spec": pod,
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "selector": selector,
                "ports": [{"name": "http", "port": PAGE_PORT, "targetPort": "http"}],
            },
        },
    ]
