"""A model as it is rendered to Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gaudi_launch.core.planning.container import Container
from gaudi_launch.extensions.kubernetes.chart_values import Name
from gaudi_launch.extensions.kubernetes.objects.needs import PodResources

PORT = 8000  # of every Service; it forwards to the engine's port


@dataclass(frozen=True)
class ServedModel:
    """One model: ``key`` is its name among the values of a chart.

    ``name`` is that of its objects, ``requests`` the number of concurrent requests, ``metrics`` the
    names of its running and waiting requests. ``env_from`` are variables that only the pod knows:
    the path of the field that has them.
    """

    key: str
    name: Name
    model: str
    container: Container
    needs: PodResources
    requests: int
    recipe_mib: int = 0
    recipe_key: str = ""
    metrics: tuple[str, str] = ("", "")
    options: str = ""  # the engine's option table
    env_from: Mapping[str, str] = field(default_factory=dict)
    selector: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)  # of its pods
    files: Mapping[str, str] = field(default_factory=dict)  # of the plan itself, by name
    # of a RayService: Serve's config, the files of its application (none: it is in the image),
    # Ray's resource of the cards and their number per pod, and what only the head's pod has
    serve: Mapping[str, Any] = field(default_factory=dict)
    application: Mapping[str, str] = field(default_factory=dict)
    ray_resource: str = "HPU"
    ray_amount: int = 0
    head_env: Mapping[str, str] = field(default_factory=dict)
    example_image: bool = False
    head_selector: Mapping[str, str] = field(default_factory=dict)
