"""Objects around the engines: the volumes, who may share them, and scaling."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.extensions.kubernetes.objects.extras import access_mode
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from tests.support.refusals import failing
from tests.support.served_models import served

ONE, MANY = "ReadWriteOnce", "ReadWriteMany"


@pytest.mark.parametrize(
    ("more", "models"),
    [
        ({"access_mode": ONE, "replicas": 2}, 1),
        ({"access_mode": "ReadWriteOncePod", "kind": "leaderworkerset"}, 1),
        ({"access_mode": "ReadWriteOncePod"}, 2),
    ],
)
def test_a_volume_for_which_pods_would_wait_is_refused(more: dict[str, Any], models: int) -> None:
    with failing("kubernetes.access_mode", ExitCode.USAGE) as caught:
        access_mode(KubernetesOptions(**more), [served()] * models)
    assert caught.value.text.values == {"found": more["access_mode"]}
