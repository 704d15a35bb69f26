"""Records for rendering to Kubernetes: the models, and the user's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.render.gateway import GatewayFiles
from gaudi_launch.extensions.kubernetes.chart_values import Name
from gaudi_launch.extensions.kubernetes.objects.needs import PodResources

KINDS = ("deployment", "leaderworkerset", "rayservice")
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


@dataclass(frozen=True)
class KubernetesTarget:
    """The user's options for the cluster. Empty texts: not given."""

    release: str
    kind: str = "deployment"
    namespace: str = ""
    replicas: int = 1
    max_replicas: int = 1
    autoscale: str = ""  # "", hpa
    requests: int = 0  # a replica's target before one more starts; 0: its concurrent requests
    weights_claim: str = ""  # an existing PVC
    storage_class: str = ""
    access_mode: str = ""
    recipes: bool = True
    runtime_class: str = ""
    secret: str = ""  # an existing Secret, with the variables in `Container.secrets` as keys
    secret_names: tuple[str, ...] = ()
    monitor: bool = False
    ingress_host: str = ""
    ingress_class: str = ""
    webui: bool = False
    webui_image: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerate: tuple[str, ...] = ()
    nodes: int = 1
    interface: str = "eth0"
    ray_version: str = ""
    gateway: GatewayFiles | None = None

    @property
    def scaled(self) -> bool:
        return bool(self.autoscale)

    @property
    def at_once(self) -> int:
        """Return how many replicas may be unavailable during an update.

        A thousand, one after the other, take weeks (a tenth: assumed).
        """
        return max(1, self.replicas // 10)

    @property
    def many(self) -> bool:
        """Return True if pods on several nodes may use one PVC."""
        return max(self.replicas, self.max_replicas) > 1 or self.nodes > 1
