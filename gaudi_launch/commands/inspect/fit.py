"""The numbers of cards that fit a model, and what each leaves free."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.paths import cache_dir
from gaudi_launch.core.engines import detect as detection
from gaudi_launch.core.engines import entries
from gaudi_launch.core.engines.detect import Detect
from gaudi_launch.core.engines.generation import refuse_first_gaudi
from gaudi_launch.core.host.accelerators import accelerators, instances, product_of
from gaudi_launch.core.launch.chosen_engine import planned_engine
from gaudi_launch.core.launch.forecast_case import data_types, find_product
from gaudi_launch.core.launch.machine import load
from gaudi_launch.core.models.card_memory import FitTable, ServingDemand, fit_each, fit_weights_only
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import MemoryRules
from gaudi_launch.core.planning import profiles
from gaudi_launch.core.planning.engine import Engine
from gaudi_launch.core.planning.fit import divided, limits_of, ways_out
from gaudi_launch.core.planning.model_name import check_sizes, name_warning
from gaudi_launch.core.planning.parse import MOST_SEQS, if_given, number, tokens
from gaudi_launch.core.planning.parse_ranges import pair
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.support_answer import check_support

_DEFAULT_CARDS = (1, 2, 4, 8)


@dataclass(frozen=True)
class ServedLengths:
    """The lengths and the concurrent requests of a server, as typed.

    Empty where not given.
    """

    length: str = ""
    requests: str = ""
    inputs: str = ""
    outputs: str = ""


@dataclass(frozen=True)
class InspectOptions:
    """The options of ``inspect`` as typed; empty where not given.

    ``complete``: all data types, and the fewest cards of each release.
    """

    model: str
    cards: str = ""
    accelerator: str = ""
    dtype: str = ""
    engine: str = ""
    lengths: ServedLengths = ServedLengths()
    revision: str = ""
    complete: bool = True


@dataclass(frozen=True)
class FitResult:
    """A table with its inputs.

    ``usable_bytes`` of one card and ``engine`` are None, and ``cores`` is set, where the instance
    is not a Gaudi. ``numbers_given``: the user listed the numbers of cards. ``profile``: the
    profile used instead of config.json. ``assumed`` names the facts without a measurement,
    ``would`` the changes that may help where nothing fits. ``unknown`` warns of a model whose
    files were not read.
    """

    model: Model
    accelerator: str
    engine: Engine | None
    max_model_len: int
    table: FitTable
    dtypes: tuple[str, ...]
    numbers_given: bool
    usable_bytes: int | None = None
    cores: int | None = None
    profile: str | None = None
    assumed: tuple[str, ...] = ()
    would: tuple[Message, ...] = ()
    unknown: tuple[Message, ...] = ()


def fit(facts: Model, options: InspectOptions, detect: Detect = detection.detect) -> FitResult:
    """Return the table of one model.

    Raises LaunchError for options or a model that cannot be counted, and (MODEL) for an engine
    that cannot load it.
    """
    numbers = numbers_of(options.cards)
    name = accelerator_of(options.accelerator)
    check_sizes(facts)
    profile = profiles.match(facts)
    on_neuron = name in instances()
    engine = engine_for(options.engine, facts, name, detect, force=on_neuron)
    request = request_for(facts, options.lengths)
    dtypes = data_types(facts, options.dtype, None if on_neuron else engine)
    assumed: list[str] = []
    usable = None
    if on_neuron:
        # an Inferentia instance: weights only
        instance = instances()[name]
        table = fit_weights_only(facts, instance.cores, numbers, dtypes, instance.core_gb)
    else:
        first = dtypes if options.complete else dtypes[:1]
        table, usable, assumed = _on_cards(facts, name, numbers, first, engine, request)
        if table.smallest_n is None and len(dtypes) > len(first):
            table, usable, assumed = _on_cards(facts, name, numbers, dtypes, engine, request)
    profile_name = None
    if facts.source == "profile" and profile is not None:
        profile_name = profile.name
        assumed += [f"{profile.name}.{part}" for part in profile.assumed if part == "architecture"]
    return FitResult(
        model=facts,
        accelerator=name,
        engine=None if on_neuron else engine,
        max_model_len=limits_of(engine, request, facts).max_model_len,
        table=table,
        dtypes=tuple(dtypes),
        numbers_given=numbers is not None,
        usable_bytes=usable,
        cores=instances()[name].cores if on_neuron else None,
        profile=profile_name,
        assumed=tuple(assumed),
        would=_would(table, facts, name),
        unknown=name_warning(options.model, facts),
    )


def _on_cards(
    model: Model,
    name: str,
    numbers: list[int] | None,
    dtypes: list[str],
    engine: Engine,
    request: Request,
) -> tuple[FitTable, int, list[str]]:
    """Return the table of a Gaudi product, a card's usable bytes, and assumptions."""
    product = accelerators()[name]
    usable = product.usable_bytes
    allowed = numbers or [count for count in _DEFAULT_CARDS if count <= product.cards]

    def divide(count: int, dtype: str) -> tuple[ServingDemand, MemoryRules]:
        return divided(engine, request, product, model, count, dtype)

    table = fit_each(model, usable, allowed, dtypes, divide)
    assumed = []
    if engine.memory_rules({}).profile_run:
        assumed.append("activations")
    if "assumed" in product.sources.get("memory", ""):
        assumed.append(f"{name}.memory")
    return table, usable, assumed


def _would(table: FitTable, model: Model, name: str) -> tuple[Message, ...]:
    """Return the changes that may help where no row fits."""
    product = accelerators().get(name)
    if product is None:
        return (message("fit.would_nothing"),)
    return ways_out(table, model, product)


def numbers_of(text: str) -> list[int] | None:
    """Return the numbers of cards that were given. Raises LaunchError (USAGE)."""
    if not text:
        return None
    return [number("-n", word, 1, 64) for word in text.split(",")]


def accelerator_of(text: str) -> str:
    """Return the product or instance of a name, a snapshot or a simulation.

    Names are gaudi2 and the like, hl-smi's (HL-225), or ``inf2`` for the largest instance. Raises
    LaunchError (USAGE).
    """
    if text.startswith("simulated:") or Path(text).is_file():
        text = product_of(load(text)) or ""
    product = find_product(text)
    if product is not None:
        return product.id
    name = text.lower()
    if name in instances():
        return name
    family = [instance for instance in instances().values() if instance.id.startswith(f"{name}.")]
    if not family:
        known = ", ".join([*accelerators(), *instances()])
        raise LaunchError("fit.accelerator", ExitCode.USAGE, found=text, known=known)
    return max(family, key=lambda instance: instance.cores).id


def engine_for(
    name: str,
    model: Model,
    accelerator: str,
    detect: Detect = detection.detect,
    *,
    force: bool = False,
) -> Engine:
    """Return the engine whose arithmetic counts: the named one, else a plan's.

    The plan is for these cards. Raises LaunchError (USAGE) for an unknown name, and (MODEL) for a
    named engine that cannot load the model unless ``force``.
    """
    if name and not entries.takes_cards(name):
        known = ", ".join(entries.names_with_cards())
        raise LaunchError("fit.engine", ExitCode.USAGE, found=name, known=known)
    request = Request(model.path, engine=name or "auto")
    engine, _ = planned_engine(
        request, lambda: model, lambda: accelerator, here=False, detect=detect
    )
    # what each release runs is another answer of the page
    sized = force or not name
    check_support(engine.support(model, variables=os.environ), force=sized)
    if not force and not engine.takes_first_gaudi:
        refuse_first_gaudi(accelerator)
    return engine


def request_for(model: Model, given: ServedLengths) -> Request:
    """Return the Request of these lengths.

    Without a total, the engine chooses one as in a plan. Raises LaunchError (USAGE) for
    another text than numbers.
    """
    return Request(
        model.path,
        max_model_len=if_given(tokens, "-l", given.length, most=10**9),
        max_num_seqs=if_given(number, "-b", given.requests, 1, MOST_SEQS),
        trust_remote_code=True,  # consent is needed to launch the model, not to size it
        environment=dict(os.environ),
        files_dir=str(cache_dir() / "buckets"),
        input_range=if_given(pair, "-i", given.inputs),
        output_range=if_given(pair, "-o", given.outputs),
    )
