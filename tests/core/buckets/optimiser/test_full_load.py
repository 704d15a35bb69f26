"""The padding that a plan prints: of requests that can be served again."""

from __future__ import annotations

import pytest

from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED
from tests.support.every_case import ONE_MORE_ENGINE
from tests.support.scripts import short_form


@ONE_MORE_ENGINE
@pytest.mark.e2e
@pytest.mark.skipif(
    not EMBEDDED.is_ready(), reason="the CPU engine is not installed (gaudi-launch setup cpu)"
)
def test_the_scheduler_of_the_installed_engine_meets_the_printed_padding() -> None:
    assert "0 figures beyond one point" in short_form("padding")
