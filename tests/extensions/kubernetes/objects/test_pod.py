"""The pod of one engine: variables, mounts, places, tolerations."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.planning.container import Container, Mount
from gaudi_launch.extensions.kubernetes.objects.pod import places_of
from tests.support.refusals import failing
from tests.support.served_models import served


@pytest.mark.parametrize("path", ["/a:b", "/a/../b", "/a/", "/", "/a/$HOME"])
def test_a_path_that_kubernetes_cannot_mount_is_refused(path: str) -> None:
    with failing("kubernetes.path", ExitCode.USAGE) as caught:
        places_of([served(container=Container("i", (), mounts=(Mount(path, "/m"),)))])
    assert caught.value.text.values == {"path": path}
