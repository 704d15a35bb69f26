"""An engine's answer about a model decides the rules of its cache, and refuses or warns."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.models.sizing import CacheRules
from gaudi_launch.core.planning.support_answer import (
    LayerCache,
    ModelSupport,
    SupportStatus,
    check_support,
)

MEANING = message("plan.dense")


def rules(*caches: tuple[Any, str], compact: bool = False) -> CacheRules:
    layers = tuple(LayerCache(kind, 4, allocates, MEANING) for kind, allocates in caches)
    return ModelSupport("e@1", caches=layers, compact_states=compact).cache_rules


def test_a_refusal_has_all_its_reasons_and_is_a_warning_when_it_is_forced() -> None:
    reasons = (message("plan.dense"), message("plan.agreed"))
    why = " ".join(each.render() for each in reasons)
    refused = ModelSupport("e@1", SupportStatus.NO, reasons, refused=True)
    with pytest.raises(LaunchError) as caught:
        check_support(refused, force=False)
    assert (caught.value.exit_code, caught.value.text) == (
        ExitCode.MODEL,
        message("support.refused", engine="e@1", why=why),
    )
    assert check_support(refused, force=True) == (message("support.forced", why=why),)
    for force in (False, True):
        limited = ModelSupport("e@1", SupportStatus.LIMITED, reasons)
        assert check_support(limited, force=force) == reasons
        assert check_support(ModelSupport("e@1"), force=force) == ()
