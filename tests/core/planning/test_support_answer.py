"""An engine's answer about a model decides the rules of its cache, and refuses or warns."""

from __future__ import annotations

from typing import Any

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.models.sizing import CacheRules
from gaudi_launch.core.planning.support_answer import (
    LayerCache,
    ModelSupport,
    SupportStatus,
    check_support,
)
from tests.support.refusals import refused

MEANING = message("plan.dense")


def rules(*caches: tuple[Any, str], compact: bool = False) -> CacheRules:
    layers = tuple(LayerCache(kind, 4, allocates, MEANING) for kind, allocates in caches)
    return ModelSupport("e@1", caches=layers, compact_states=compact).cache_rules


def test_a_refusal_has_all_its_reasons_and_is_a_warning_when_it_is_forced() -> None:
    reasons = (message("plan.dense"), message("plan.agreed"))
    why = " ".join(each.render() for each in reasons)
    answer = ModelSupport("e@1", SupportStatus.NO, reasons, refused=True)
    with refused("support.refused", ExitCode.MODEL, engine="e@1", why=why):
        check_support(answer, force=False)
    assert check_support(answer, force=True) == (message("support.forced", why=why),)
    for force in (False, True):
        limited = ModelSupport("e@1", SupportStatus.LIMITED, reasons)
        assert check_support(limited, force=force) == reasons
        assert check_support(ModelSupport("e@1"), force=force) == ()
