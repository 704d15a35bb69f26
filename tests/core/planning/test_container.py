"""The name of an image, and what a container has when nothing is asked for."""

from __future__ import annotations

import pytest

from gaudi_launch.core.planning.container import IMAGE, Container, Mount

DIGEST = "@sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("name", "is_image"),
    [
        ("vllm", True),
        ("ghcr.io/huggingface/tgi-gaudi:3.3.5", True),
        ("vault.habana.ai/gaudi-docker/1.22.0/ubuntu22.04/x:latest", True),
        ("localhost:5000/a__b/c-d.e" + DIGEST, True),
        ("a:" + "t" * 128, True),
        ("a:" + "t" * 129, False),
        ("a@sha256:00", False),
        ("A", False),
        ("a/B", False),
        ("a/", False),
        ("a b", False),
        ("a..b", False),
        ("a:-t", False),
        ("-a", False),
        ("", False),
    ],
)
def test_the_name_of_an_image_is_what_a_registry_accepts(name: str, is_image: bool) -> None:
    assert (IMAGE.fullmatch(name) is not None) is is_image


def test_a_container_gets_no_more_than_is_asked_for() -> None:
    assert vars(Container("i", ("a",))) == {
        "image": "i",
        "argv": ("a",),
        "env": {},
        "secrets": (),
        "entrypoint": None,
        "mounts": (),
        "ports": (),
        "address": "",
        "modules": (),
        "indices": (),
        "cpus": "",
        "health": "/health",
        "start_seconds": 3600,
        "name": "",
        "url": "",
        "scale_out": False,
        "program": "docker",
        "confined": False,
        "user": "",
    }
    assert vars(Mount("/a", "/b")) == {
        "source": "/a",
        "target": "/b",
        "read_only": False,
        "fill": False,
    }
