"""A chat page for the first model: Deployment, Service and its program. Pure."""

from __future__ import annotations

from typing import Any

from gaudi_launch.extensions.kubernetes.chart_values import Checksum, Knob, Name, TemplateText
from gaudi_launch.extensions.kubernetes.objects.extras import config_map, server
from gaudi_launch.extensions.kubernetes.objects.pod import from_secret, script
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from gaudi_launch.extensions.kubernetes.target import PORT

# the one public image that is only gradio and requests:
# awslabs/ai-on-eks@41a979e:blueprints/inference/ llama2-13b-chat-rayserve-inf2/gradio-ui.yaml
IMAGE = "public.ecr.aws/data-on-eks/gradio-web-app-base:latest"
PAGE_PORT = 7860
_NAME = "webui"


def webui(
    cluster: KubernetesOptions,
    release: Name,
    api: Name | TemplateText,
    title: str,
    style: str = "chat",
) -> list[dict[str, Any]]:
    """Return the objects of the page, which uses the Service ``api``.

    The resources of its container are those of the same example.
    """
    program = {"chat_page.py": script("chat_page.py")}
    hidden = [from_secret(cluster, name) for name in cluster.secret_names if name == "VLLM_API_KEY"]
    reached = []
    if cluster.ingress_host:
        # the page refuses other names than its Service's
        reached = [{"name": "CHAT_HOSTS", "value": Knob(("ingress", "host"), cluster.ingress_host)}]
    small, most = {"cpu": "512m", "memory": "2Gi"}, {"cpu": "1", "memory": "4Gi"}
    parts = api.parts if isinstance(api, TemplateText) else (api,)
    url = TemplateText(("http://", *parts, f":{PORT}"))
    container = {
        "name": _NAME,
        "image": Knob((_NAME, "image"), cluster.webui_image or IMAGE),
        "command": ["python3", "/opt/gaudi-launch/chat_page.py"],
        "env": [
            {"name": "CHAT_URL", "value": url},
            {"name": "CHAT_STYLE", "value": style},
            {"name": "CHAT_TITLE", "value": title},
            *reached,
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
        *server(release, _NAME, {"page": Checksum("page", program)}, pod, PAGE_PORT),
    ]
