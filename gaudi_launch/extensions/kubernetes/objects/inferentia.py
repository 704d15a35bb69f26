"""The Inferentia example (Llama-2-13B, Ray Serve, EKS), on instances.

Pure. awslabs/ai-on-eks@41a979e:blueprints/inference/llama2-13b-chat-rayserve-inf2/ is the pattern:
its image and Serve application are used as they are. Left out because it does not work: a
scheduler's name outside the pod's spec (the API refuses it), more replicas than workers,
autoscaling keys that Ray ignores, thresholds that KubeRay ignores, $LD_LIBRARY_PATH, which
Kubernetes does not replace, and cores that KubeRay's scaling cannot see (ray issue 44361).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.host.accelerators import Instance
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import units
from gaudi_launch.core.planning.container import Container, Mount
from gaudi_launch.extensions.kubernetes.chart_values import Name
from gaudi_launch.extensions.kubernetes.objects.needs import PodResources
from gaudi_launch.extensions.kubernetes.served import LONGEST_RAY
from gaudi_launch.extensions.kubernetes.target import ServedModel

RESOURCE = "aws.amazon.com/neuron"  # one device is a chip with two cores
IMAGE = "public.ecr.aws/data-on-eks/ray2.22.0-py310-llama2-13b-neuron:latest"
_DEPLOYMENT = "Llama-2-13b-chat-hf"  # the name in the image's application; the model is MODEL_ID
# the example requests 180 of 192 CPUs and 700 GB of 768 GiB
_CPU_SHARE, _MEMORY_SHARE = 180 / 192, 0.85
# a worker may take up to 10 minutes by the public guide, with image and weights; six times that
# (assumed)
_START_SECONDS = 3600
_SHM_MIB = 16 << 10
_LIBRARIES = {"LD_LIBRARY_PATH": "/home/ray/anaconda3/lib"}


def neuron_served(
    model: Model,
    instance: Instance,
    release: str,
    cores: int | None,
    image: str,
    replicas: tuple[int, int],
) -> ServedModel:
    """Return one replica per instance, on ``cores`` NeuronCores.

    None: all of them, as in the example; fewer are slower. Raises LaunchError: the weights do not
    fit (MACHINE), more cores than exist (MACHINE), or a model that the example's application cannot
    load (MODEL).
    """
    if not image and model.architecture not in (None, "LlamaForCausalLM"):
        raise LaunchError(
            "kubernetes.neuron_model", ExitCode.MODEL, model=model.path, found=model.architecture
        )
    used = cores or instance.cores
    least = 1
    if model.parameters:
        least = units(model.parameters / 1e9, 2, instance.core_gb)
    if not least <= used <= instance.cores:
        raise LaunchError(
            "kubernetes.neuron_cores",
            ExitCode.MACHINE,
            used=used,
            least=least,
            there=instance.cores,
            name=instance.id,
        )
    cpus = max(1, int(instance.cpus * _CPU_SHARE))
    # a folder has the same path in the pods as in every other kind of object
    folder: tuple[Mount, ...] = ()
    if model.path.startswith("/"):
        folder = (Mount(model.path, model.path, read_only=True),)
    weights = model.weight_bytes or 2 * (model.parameters or 0)
    memory = int(instance.memory_gib * _MEMORY_SHARE)
    short = message(
        "kubernetes.neuron_memory", memory=memory, weights=math.ceil(weights / (1 << 30))
    )
    needs = PodResources(
        cards=instance.chips,
        cpus=cpus,
        memory_mib=memory * 1024,
        hugepages_mib=0,
        shm_mib=min(_SHM_MIB, instance.memory_gib * 1024 // 8),
        start_seconds=_START_SECONDS,
        disk_gib=math.ceil(2.4 * weights / (1 << 30) / 10) * 10 + 20,
        resource=RESOURCE,
        notes=(short,) if weights > memory << 30 else (),
    )
    return ServedModel(
        key="model",
        name=Name(release, "", LONGEST_RAY),
        model=model.path,
        container=Container(
            image or IMAGE, (), dict(_LIBRARIES), mounts=folder, ports=((8000, 8000),)
        ),
        needs=needs,
        requests=1,
        serve=_application(model.path, used, cpus, replicas),
        example_image=not image,
        ray_resource="neuron_cores",
        ray_amount=instance.cores,
        head_env=_LIBRARIES,
        head_selector={"kubernetes.io/arch": "amd64"},
        # docs: Karpenter, Well-Known Annotations: a node is not removed while a model is compiled
        # on it
        annotations={"karpenter.sh/do-not-disrupt": "true"},
        selector={"node.kubernetes.io/instance-type": instance.id},
    )


def _application(model: str, cores: int, cpus: int, replicas: tuple[int, int]) -> Mapping[str, Any]:
    least, most = replicas
    scaling: dict[str, Any] = {"num_replicas": most}
    if most > least:
        scaling = {
            "autoscaling_config": {
                "min_replicas": least,
                "max_replicas": most,
                # the application answers one request after the other
                "target_ongoing_requests": 1,
                "upscale_delay_s": 30,
                "downscale_delay_s": 600,
            }
        }
    return {
        "applications": [
            {
                "name": "llama2",
                "route_prefix": "/",
                "import_path": "ray_serve_llama2:entrypoint",
                "runtime_env": {
                    "env_vars": {
                        "MODEL_ID": model,
                        "NEURON_CORES": str(cores),
                        "NEURON_CC_FLAGS": "-O1",
                        **_LIBRARIES,
                    }
                },
                "deployments": [
                    {
                        "name": _DEPLOYMENT,
                        **scaling,
                        "graceful_shutdown_timeout_s": 5,
                        "ray_actor_options": {
                            "num_cpus": cpus,
                            "resources": {"neuron_cores": cores},
                        },
                    }
                ],
            }
        ]
    }
