"""Deployments with their workloads and pods, as `kube status` prints them."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.extensions.kubernetes.kube import view as kube
from gaudi_launch.extensions.kubernetes.status import KubeWorkload, Pod, Status
from tests.support.views import views

pytestmark = pytest.mark.usefixtures("plain_english")


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = Pod("chat-1", "m", "pending", seconds=61, why=message("common.interrupted"))
    running = Pod("chat-2", "m", "ready", "node-a", 2, 3600)
    chat = Status("chat", (KubeWorkload("Deployment", "chat", 2, 1),), (waiting, running))
    views(
        capsys, "kube", [lambda: kube.show([chat, Status("empty", (), ())]), lambda: kube.show([])]
    )
