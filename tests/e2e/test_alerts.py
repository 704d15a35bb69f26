"""Every alert fires in a real Prometheus: the short form of scripts/acceptance/alerts.py."""

from __future__ import annotations

import pytest

from gaudi_launch.core.render.monitoring import rule_groups
from tests.support.every_case import ONE_MORE_ENGINE
from tests.support.scripts import short_form

pytestmark = pytest.mark.e2e(engine=False)


@ONE_MORE_ENGINE
def test_each_alert_fires_for_its_fault_and_each_query_of_the_dashboard_has_data() -> None:
    shown = short_form("alerts")
    assert {alert["alert"] for alert in rule_groups()["groups"][0]["rules"]} == {
        word for word in shown.split() if word.startswith("GaudiLaunch")
    }
