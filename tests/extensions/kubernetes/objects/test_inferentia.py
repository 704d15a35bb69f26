"""The Inferentia example on an instance of round numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.host.accelerators import Instance
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.container import Container
from gaudi_launch.extensions.kubernetes.chart_values import Name
from gaudi_launch.extensions.kubernetes.objects.inferentia import neuron_served
from gaudi_launch.extensions.kubernetes.target import ServedModel
from tests.support.refusals import failing

INSTANCE = Instance("inf2.test", 2, 4, 16, 32, 100)
LLAMA = Model("org/llama", "llama", parameters=20_000_000_000, weight_bytes=40 << 30)


def made(
    model: Model = LLAMA, cores: int | None = None, image: str = "", **more: Any
) -> ServedModel:
    instance = replace(INSTANCE, **more)
    return neuron_served(model, instance, "llama", cores, image, (1, 1))


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


@pytest.mark.parametrize(("cores", "least"), [(2, 3), (5, 3), (1, 3)])
def test_cores_are_those_that_exist_and_hold_the_weights(cores: int, least: int) -> None:
    with failing("kubernetes.neuron_cores", ExitCode.MACHINE) as caught:
        made(cores=cores)
    values = {"used": cores, "least": least, "there": 4, "name": "inf2.test"}
    assert caught.value.text.values == values


def test_only_an_image_of_the_user_serves_another_architecture() -> None:
    other = replace(LLAMA, architecture="Qwen3ForCausalLM")
    with failing("kubernetes.neuron_model", ExitCode.MODEL) as caught:
        made(other)
    assert caught.value.text.values == {"model": "org/llama", "found": "Qwen3ForCausalLM"}
    mine = made(other, image="registry/mine:1")
    assert (mine.container.image, mine.example_image) == ("registry/mine:1", False)
    assert made(replace(LLAMA, architecture="LlamaForCausalLM")).example_image is True
