"""The images of TGI in the lists of ``inspect``."""

from __future__ import annotations

import pytest

from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.models.model import Model
from gaudi_launch.extensions.tgi.options import VERSIONS
from gaudi_launch.extensions.tgi.versions import image_versions


def test_every_image_has_a_row() -> None:
    assert [each.label for each in image_versions()] == [f"tgi@{version}" for version in VERSIONS]


@pytest.mark.parametrize(
    ("version", "status"), [("3.3.3", "no"), ("3.3.4", "runs"), ("3.3.7", "runs")]
)
def test_an_image_without_the_model_type_does_not_run_it(version: str, status: str) -> None:
    model = Model("m", "m", model_type="gemma3", architecture="Gemma3ForConditionalGeneration")
    assert find(f"tgi@{version}").support(model).status.value == status
