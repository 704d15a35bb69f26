"""Models and clusters as records, to render objects without a plan."""

from __future__ import annotations

from typing import Any

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.planning.container import Container, Mount
from gaudi_launch.core.render.gateway import GatewayFiles, GatewaySecrets
from gaudi_launch.extensions.kubernetes.chart_values import Name
from gaudi_launch.extensions.kubernetes.objects.needs import PodResources
from gaudi_launch.extensions.kubernetes.target import ServedModel

NEEDS = PodResources(
    cards=2,
    cpus=36,
    memory_mib=139 << 10,
    hugepages_mib=19600,
    shm_mib=3 << 10,
    start_seconds=1201,
    disk_gib=140,
    notes=(message("kubernetes.hugepages_pool", pool=30000, each=3750),),
)

CONTAINER = Container(
    "registry/vllm:1",
    ("--model", "/models/Qwen", "--port", "8080", "--served-model-name", "$(HOSTNAME)"),
    {
        "PT_HPU_RECIPE_CACHE_CONFIG": "/cache/recipes,false,4096",
        "VLLM_BUCKETING_FROM_FILE": "/opt/gaudi-launch-plan/buckets.json",
        "PRICE": "$$5",
    },
    entrypoint="python3",
    mounts=(
        Mount("/data/Qwen", "/models/Qwen", read_only=True),
        Mount("/cache/recipes", "/cache/recipes", fill=True),
        Mount("/opt/gaudi-launch-plan/buckets.json", "/opt/gaudi-launch-plan/buckets.json"),
    ),
    ports=((30001, 8080),),
    scale_out=True,
)

GATEWAY = GatewayFiles(
    ("haproxy", "-f", "/etc/gaudi-launch-gateway/haproxy.cfg"),
    {"haproxy.cfg": "frontend all\n  bind :8000\n"},
    image="gaudi-launch/gateway:3",
    folder="/etc/gaudi-launch-gateway",
    run_folder="/run/gaudi-launch-gateway",
    secrets=GatewaySecrets("/keys", "/certificate", "/key"),
)


def served(**changes: Any) -> ServedModel:
    """Return a model in a folder, with a recipe cache and a file of its plan."""
    values: dict[str, Any] = {
        "key": "qwen",
        "name": Name("chat"),
        "model": "/models/Qwen",
        "container": CONTAINER,
        "needs": NEEDS,
        "requests": 64,
        "recipe_mib": 4096,
        "recipe_key": "0123456789abcdef",
        "metrics": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
        "files": {"buckets.json": "[[1, 128, 0]]\n"},
        "ray_amount": 2,
    }
    return ServedModel(**{**values, **changes})


def plain_served(**changes: Any) -> ServedModel:
    """Return a model of a hub, with nothing but its engine and two variables."""
    values: dict[str, Any] = {
        "key": "bge-m3",
        "name": Name("chat", "bge-m3"),
        "model": "BAAI/bge-m3",
        "container": Container("registry/vllm:2", ("--model", "BAAI/bge-m3"), {"A": "1"}),
        "needs": PodResources(1, 10, 20480, 0, 2048, 600, 30),
        "requests": 8,
        "metrics": ("tgi_batch_current_size", "tgi_queue_size"),
    }
    return ServedModel(**{**values, **changes})
