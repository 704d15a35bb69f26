"""The engine versions that run a model: answers, fewest cards, validation."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from gaudi_launch.commands.inspect.fit.case import ServedLengths, request_for
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.engines import registry
from gaudi_launch.core.engines.conditions import Condition, Launched, concerning, features_of
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.engines.engine_version import Version
from gaudi_launch.core.engines.registry import detect_engine, image_versions
from gaudi_launch.core.engines.support import matching, unknown_version, versions
from gaudi_launch.core.host.accelerators import Accelerator, accelerators, identify
from gaudi_launch.core.host.hardware import Card, Host
from gaudi_launch.core.launch.forecast_case import own_accelerator
from gaudi_launch.core.models.card_memory import MOST_OF_A_CARD, fit_each
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import kv_bytes_per_token, weight_bytes, weight_bytes_per_card
from gaudi_launch.core.planning.engine import Engine
from gaudi_launch.core.planning.fit import divided
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.support_answer import ModelSupport, SupportStatus

_log = logging.getLogger(__name__)
_PATH_BEGINNINGS = ("/", "./", "../", "~")


@dataclass(frozen=True)
class SupportOptions:
    """The options of ``support`` as typed; empty where not given."""

    model: str
    engine: str = ""
    accelerator: str = ""
    python: str = ""


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


@dataclass(frozen=True)
class SupportResult:
    """The answers about one model on one product, each engine's newest version first."""

    model: Model
    accelerator: str
    rows: tuple[SupportRow, ...]


def support(options: SupportOptions) -> SupportResult:
    """Return the answer of every engine version.

    Raises LaunchError for an unknown model, engine or product.
    """
    name = options.accelerator.lower() or own_accelerator()
    product = accelerators().get(name) or identify(name)
    if product is None:
        raise LaunchError(
            "fit.accelerator", ExitCode.USAGE, found=name, known=", ".join(accelerators())
        )
    chosen = selected(options.engine)
    model = _model(options.model)
    installed = detect_engine(options.python or None)
    cards = _FewestCards(model, product)
    rows = [_row(facts, model, product, installed, cards) for facts in chosen]
    return SupportResult(model, product.id, tuple(rows))


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
    cards: _FewestCards,
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
        fewest = cards.of(engine, answer)
        known = concerning(facts.label, Launched(model, product.id))
        answer = replace(answer, reasons=(*answer.reasons, *(each.sentence for each in known)))
    answered = features_of(facts.label)
    token = None
    if answer.caches:
        token = kv_bytes_per_token(model, rules=answer.cache_rules)
    return SupportRow(facts.label, answer, facts, fewest, is_installed, answered, token)


def _on(product: Accelerator, engine: Engine, model: Model) -> ModelSupport:
    """Return the engine's answer for this product.

    Some engines serve one generation only.
    """
    answer = engine.support(model)
    if answer.status is SupportStatus.NO:
        return answer
    host = Host(cards=(Card(0, 0, product.names[0]),), product=product.id, origin="support")
    try:
        engine.refuse(Request(model.path, trust_remote_code=True), host, model)
    except LaunchError as error:
        # a release that was never executed is not known to fail
        status = SupportStatus.NO
        if error.id in ("support.not_executed", "support.no_facts"):
            status = SupportStatus.UNKNOWN
        return replace(answer, status=status, reasons=(*answer.reasons, error.text))
    if _needs_conversion(product, engine, model):
        if answer.status is SupportStatus.RUNS:
            status = SupportStatus.LIMITED
        else:
            status = answer.status
        return replace(
            answer, status=status, reasons=(*answer.reasons, message("support.converted"))
        )
    return answer


def _needs_conversion(product: Accelerator, engine: Engine, model: Model) -> bool:
    """Return True for fp8 weights that need conversion for Gaudi2."""
    on_gaudi2 = product.id.startswith("gaudi2")
    return (
        on_gaudi2
        and engine.needs_gaudi2_range
        and model.quantization == "fp8"
        and not model.converted
    )


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
        usable = product.usable_bytes
        try:
            request = request_for(model, ServedLengths())
            for count in self._large_enough(usable, dtype):
                table = fit_each(
                    model,
                    usable,
                    [count],
                    [dtype],
                    lambda n, kind: divided(engine, request, product, model, n, kind),
                )
                if table.smallest_n is not None:
                    return count
        except LaunchError as error:
            _log.debug("the fewest cards are not known: %s", error)
            # an engine that rejects these lengths or types has no number
            return None
        return None

    def _large_enough(self, usable: int, dtype: str) -> list[int]:
        """Return the numbers of cards that the weights alone leave room on.

        Dividing a card plans its buckets, which takes a tenth of a second and more: not for these.
        """
        found = []
        for count in (1, 2, 4, 8):
            weights = weight_bytes_per_card(self._model, count, dtype)
            if weights is None or weights <= MOST_OF_A_CARD * usable:
                found.append(count)
        return found


def _model(name: str) -> Model:
    """Return the model of a folder, a profile, a hub ID, or of a class by its name.

    Raises LaunchError (MODEL) with the nearest names for an unknown one.
    """
    classes = set().union(*(each.classes for each in versions()))
    if name in classes:
        return Model(path=name, name=name, architecture=name)
    found = known_model(name, must_exist=False)
    # a config.json without a class is an answer: unknown
    if found.source != "name":
        return found
    raise _unknown(name, sorted(classes), found.unread)


def _unknown(name: str, classes: list[str], why: Message | None) -> LaunchError:
    """Return the error of an unknown model, with the hub's reason as its detail."""
    if name.startswith(_PATH_BEGINNINGS) and not Path(name).exists():
        return LaunchError("models.no_folder", ExitCode.MODEL, path=name)
    detail = why.render() if why is not None else None
    if "/" not in name and _looks_like_class(name, classes):
        near = _nearest(name, classes)
        return LaunchError(
            "support.unknown_class", ExitCode.MODEL, found=name, near=", ".join(near), detail=detail
        )
    return LaunchError("support.unknown_model", ExitCode.MODEL, found=name, detail=detail)


def _looks_like_class(name: str, classes: list[str]) -> bool:
    """Return True for a name that is a class's but for case or typing errors."""
    if name[:1].isupper() and "For" in name:
        return True
    return bool(
        get_close_matches(name.lower(), [each.lower() for each in classes], n=1, cutoff=0.9)
    )


def _nearest(name: str, known: list[str]) -> list[str]:
    """Return the three nearest names, with or without owner, in any case."""
    last = {each.rpartition("/")[2].lower(): each for each in known}
    close = get_close_matches(name.rpartition("/")[2].lower(), list(last), n=3, cutoff=0.3)
    return [last[each] for each in close] or known[:1]
