"""The Inferentia example on an instance of round numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.errors import ExitCode
from gaudi_launch.host.accelerators import Instance
from gaudi_launch.kubernetes.chart_values import Name
from gaudi_launch.kubernetes.objects.inferentia import neuron_served
from gaudi_launch.kubernetes.objects.needs import PodResources
from gaudi_launch.kubernetes.target import ServedModel
from gaudi_launch.messages import message
from gaudi_launch.models.model import Model
from gaudi_launch.planning.container import Container, Mount
from tests.support.refusals import failing

INSTANCE = Instance("inf2.test", 2, 4, 16, 32, 100)
LLAMA = Model("org/llama", "llama", parameters=20_000_000_000, weight_bytes=40 << 30)


def made(
    model: Model = LLAMA, cores: int | None = None, image: str = "", **more: Any
) -> ServedModel:
    instance = replace(INSTANCE, **more)
    return neuron_served(model, instance, "llama", cores, image, (1, 1))


def test_a_pod_has_all_chips_and_most_of_the_instance() -> None:
    assert made().needs == PodResources(
        cards=2,
        cpus=30,
        memory_mib=85 << 10,
        hugepages_mib=0,
        # an eighth of the memory, at most 16 GiB
        shm_mib=12800,
        start_seconds=3600,
        # 2.4 of the weights in tens, and 20 more
        disk_gib=120,
        resource="aws.amazon.com/neuron",
    )
    assert made(memory_gib=768, cpus=1).needs.shm_mib == 16 << 10
    assert made(memory_gib=768, cpus=1).needs.cpus == 1


def test_the_example_is_as_its_authors_made_it() -> None:
    found = made()
    libraries = {"LD_LIBRARY_PATH": "/home/ray/anaconda3/lib"}
    assert found == ServedModel(
        key="model",
        name=Name("llama", "", 40),
        model="org/llama",
        container=Container(
            "public.ecr.aws/data-on-eks/ray2.22.0-py310-llama2-13b-neuron:latest",
            (),
            libraries,
            ports=((8000, 8000),),
        ),
        needs=found.needs,
        requests=1,
        serve=found.serve,
        example_image=True,
        ray_resource="neuron_cores",
        ray_amount=4,
        head_env=libraries,
        head_selector={"kubernetes.io/arch": "amd64"},
        annotations={"karpenter.sh/do-not-disrupt": "true"},
        selector={"node.kubernetes.io/instance-type": "inf2.test"},
    )
    (application,) = found.serve["applications"]
    assert application["runtime_env"] == {
        "env_vars": {
            "MODEL_ID": "org/llama",
            "NEURON_CORES": "4",
            "NEURON_CC_FLAGS": "-O1",
            **libraries,
        }
    }


def test_weights_larger_than_the_memory_are_noted() -> None:
    small = made(memory_gib=46)
    assert small.needs.notes == (message("kubernetes.neuron_memory", memory=39, weights=40),)
    assert made(memory_gib=48).needs.notes == ()
    # where the size on disk is unknown: two bytes for each weight
    unknown = replace(LLAMA, weight_bytes=None)
    noted = made(unknown, memory_gib=40).needs.notes
    assert noted == (message("kubernetes.neuron_memory", memory=34, weights=38),)


@pytest.mark.parametrize(("cores", "least"), [(2, 3), (5, 3), (1, 3)])
def test_cores_are_those_that_exist_and_hold_the_weights(cores: int, least: int) -> None:
    with failing("kubernetes.neuron_cores", ExitCode.MACHINE) as caught:
        made(cores=cores)
    values = {"used": cores, "least": least, "there": 4, "name": "inf2.test"}
    assert caught.value.text.values == values


def test_one_core_is_enough_for_a_model_of_unknown_size() -> None:
    unknown = Model("/models/any", "any")
    found = made(unknown, cores=1)
    assert found.serve["applications"][0]["runtime_env"]["env_vars"]["NEURON_CORES"] == "1"
    assert found.container.mounts == (Mount("/models/any", "/models/any", read_only=True),)
    assert made().container.mounts == ()


def test_only_an_image_of_the_user_serves_another_architecture() -> None:
    other = replace(LLAMA, architecture="Qwen3ForCausalLM")
    with failing("kubernetes.neuron_model", ExitCode.MODEL) as caught:
        made(other)
    assert caught.value.text.values == {"model": "org/llama", "found": "Qwen3ForCausalLM"}
    mine = made(other, image="registry/mine:1")
    assert (mine.container.image, mine.example_image) == ("registry/mine:1", False)
    assert made(replace(LLAMA, architecture="LlamaForCausalLM")).example_image is True


def test_replicas_are_a_number_or_scaled_between_two() -> None:
    def deployment(replicas: tuple[int, int]) -> dict[str, Any]:
        found = neuron_served(LLAMA, INSTANCE, "llama", 3, "", replicas)
        (application,) = found.serve["applications"]
        (only,) = application["deployments"]
        return dict(only)

    common = {
        "name": "Llama-2-13b-chat-hf",
        "graceful_shutdown_timeout_s": 5,
        "ray_actor_options": {"num_cpus": 30, "resources": {"neuron_cores": 3}},
    }
    assert deployment((2, 2)) == {**common, "num_replicas": 2}
    assert deployment((1, 4)) == {
        **common,
        "autoscaling_config": {
            "min_replicas": 1,
            "max_replicas": 4,
            "target_ongoing_requests": 1,
            "upscale_delay_s": 30,
            "downscale_delay_s": 600,
        },
    }
