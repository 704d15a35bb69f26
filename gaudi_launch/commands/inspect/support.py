"""The engine versions that run a model: answers, fewest cards, validation."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from gaudi_launch.commands.inspect.fit import InspectOptions, ServedLengths, request_for
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines import detect as detection
from gaudi_launch.core.engines import registry
from gaudi_launch.core.engines.conditions import Condition, features_of
from gaudi_launch.core.engines.detect import Detect, Installed
from gaudi_launch.core.engines.engine_version import Version
from gaudi_launch.core.engines.entries import detect_engine
from gaudi_launch.core.engines.known_versions import matching, unknown_version, versions
from gaudi_launch.core.engines.launched import Launched, concerning
from gaudi_launch.core.engines.needed_release import image_versions
from gaudi_launch.core.host.accelerators import Accelerator
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import kv_bytes_per_token, weight_bytes
from gaudi_launch.core.planning.engine import Engine
from gaudi_launch.core.planning.fit import fewest_cards, host_of
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.support_answer import ModelSupport, SupportStatus

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SupportRow:
    """One engine version's answer.

    ``facts`` is None for an installed version without shipped facts. ``kv_bytes_per_token``: of one
    card that has the complete model, 2 bytes an element; None where unknown.
    """

    label: str
    support: ModelSupport
    facts: Version | None
    fewest_cards: int | None
    is_installed: bool = False
    features: tuple[Condition, ...] = ()
    kv_bytes_per_token: int | None = None


def support(
    model: Model, product: Accelerator, options: InspectOptions, detect: Detect = detection.detect
) -> tuple[SupportRow, ...]:
    """Return the answer of every engine version, each engine's newest first.

    Raises LaunchError (USAGE) for an unknown engine.
    """
    installed = detect_engine(None, detect=detect)
    cards = _FewestCards(model, product) if options.complete else None
    return tuple(
        _row(facts, model, product, installed, cards) for facts in selected(options.engine)
    )


def selected(engine: str) -> tuple[Version, ...]:
    """Return the versions of ``--engine``.

    All, those of one engine, or the newest that ``NAME@0.26`` names. Raises LaunchError (USAGE) for
    a name without facts.
    """
    images = image_versions()
    newest_first = (*reversed(versions()), *reversed(images))
    if not engine:
        return newest_first
    name, _, version = engine.partition("@")
    if version:
        # releases are tagged with a v
        number = version.removeprefix("v")
        found = matching(name, number, (*versions(), *images))
        if found is None:
            raise unknown_version(engine)
        return (found,)
    same = tuple(each for each in newest_first if each.engine == name)
    if not same:
        raise unknown_version(engine)
    return same


def _row(
    facts: Version,
    model: Model,
    product: Accelerator,
    installed: Installed | None,
    cards: _FewestCards | None,
) -> SupportRow:
    engine = registry.find(facts.label)
    is_installed = False
    if installed is not None and installed.engine:
        own = registry.find("auto", installed)
        if (own.identity.name, own.identity.version) == (
            engine.identity.name,
            engine.identity.version,
        ):
            engine, is_installed = own, True
    answer = _on(product, engine, model)
    fewest = None
    if answer.status is not SupportStatus.NO:
        fewest = cards.of(engine, answer) if cards is not None else None
        known = concerning(facts.label, Launched(model, product.id))
        answer = replace(answer, reasons=(*answer.reasons, *(each.sentence for each in known)))
    answered = features_of(facts.label)
    token = None
    if answer.caches:
        token = kv_bytes_per_token(model, rules=answer.cache_rules)
    return SupportRow(facts.label, answer, facts, fewest, is_installed, answered, token)


def _on(product: Accelerator, engine: Engine, model: Model) -> ModelSupport:
    """Return the engine's answer for a full server of this product.

    Some engines serve one generation only, or need all of its cards.
    """
    answer = engine.support(model)
    if answer.status is SupportStatus.NO:
        return answer
    host = host_of(product, product.cards)
    try:
        engine.refuse(Request(model.path, trust_remote_code=True), host, model)
    except LaunchError as error:
        # a release that was never executed is not known to fail
        status = SupportStatus.NO
        if error.id in ("support.not_executed", "support.no_facts"):
            status = SupportStatus.UNKNOWN
        return replace(answer, status=status, reasons=(*answer.reasons, error.text))
    # such fp8 weights need conversion for Gaudi2
    on_gaudi2 = product.id.startswith("gaudi2")
    if (
        on_gaudi2
        and engine.needs_gaudi2_range
        and model.quantization == "fp8"
        and not model.converted
    ):
        if answer.status is SupportStatus.RUNS:
            status = SupportStatus.LIMITED
        else:
            status = answer.status
        return replace(
            answer, status=status, reasons=(*answer.reasons, message("support.converted"))
        )
    return answer


class _FewestCards:
    """The fewest cards of a product for a model.

    Versions that divide a card alike share one computation.
    """

    def __init__(self, model: Model, product: Accelerator) -> None:
        self._model = model
        self._product = product
        self._found: dict[tuple[object, ...], int | None] = {}

    def of(self, engine: Engine, answer: ModelSupport) -> int | None:
        """Return the number; None where the sizes are unknown or no number fits."""
        # versions with the same label have the same memory rules; images do not
        if engine.needs_interpreter:
            name = engine.identity.label
        else:
            name = engine.identity.exact
        key = (name, answer.expanded_to, answer.cache_rules)
        if key not in self._found:
            self._found[key] = self._count(engine, answer)
        return self._found[key]

    def _count(self, engine: Engine, answer: ModelSupport) -> int | None:
        model, product = self._model, self._product
        if kv_bytes_per_token(model) is None or weight_bytes(model) is None:
            return None
        dtype = answer.expanded_to or model.quantization or "bfloat16"
        try:
            request = request_for(model, ServedLengths())
            return fewest_cards(engine, request, product, model, (1, 2, 4, 8), dtype)
        except LaunchError as error:
            _log.debug("the fewest cards are not known: %s", error)
            # an engine that rejects these lengths or types has no number
            return None
