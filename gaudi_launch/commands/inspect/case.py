"""The facts of a model, its cards, and the engine releases that run it."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from gaudi_launch.commands.inspect.fit import FitResult, InspectOptions, accelerator_of, fit
from gaudi_launch.commands.inspect.support import SupportRow, support
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines import detect as detection
from gaudi_launch.core.engines.install.demo import demo_dir
from gaudi_launch.core.engines.known_versions import versions
from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import kv_bytes_per_token
from gaudi_launch.core.planning import profiles
from gaudi_launch.core.planning.known_model import known_model


@dataclass(frozen=True)
class InspectedModel:
    """A model, the options of the question, and what is known of it.

    ``kv_bytes_per_token`` is the KV cache of a token, ``profile`` the name of its profile.
    ``fit`` is None where no number of cards can be computed, for the reason ``unfit``.
    ``releases`` is empty for an instance that is not a Gaudi.
    """

    model: Model
    options: InspectOptions
    accelerator: str
    kv_bytes_per_token: int | None
    profile: str | None
    fit: FitResult | None
    unfit: LaunchError | None
    releases: tuple[SupportRow, ...]


def inspect(options: InspectOptions) -> InspectedModel:
    """Read a model, and compute what is known of it without its weights.

    Raises LaunchError, (MODEL) for a model of which nothing is known.
    """
    name = accelerator_of(options.accelerator)
    model = _model(options.model, options.revision)
    # an interpreter's answer costs as much as an import of typer
    detect = cache(detection.detect)
    found: FitResult | None = None
    reason = None
    try:
        found = fit(model, options, detect)
    except LaunchError as error:
        if error.exit_code is ExitCode.USAGE:
            raise
        reason = error
    product = accelerators().get(name)
    profile = profiles.match(model)
    return InspectedModel(
        model=model,
        options=options,
        accelerator=name,
        kv_bytes_per_token=kv_bytes_per_token(model),
        profile=profile.name if profile is not None else None,
        fit=found,
        unfit=reason,
        releases=support(model, product, options, detect) if product is not None else (),
    )


def _model(name: str, revision: str) -> Model:
    """Return the model of a folder, a profile, a hub ID, or of a class by its name.

    Raises LaunchError (MODEL) with the nearest names for an unknown one.
    """
    classes = set().union(*(each.classes for each in versions()))
    if name in classes:
        return Model(path=name, name=name, architecture=name)
    if "/" not in name and _looks_like_class(name, sorted(classes)) and not Path(name).exists():
        near = ", ".join(_nearest(name, sorted(classes)))
        raise LaunchError("support.unknown_class", ExitCode.MODEL, found=name, near=near)
    if name == "demo" and demo_dir().is_dir():
        name = str(demo_dir())
    must_exist = bool(revision) or profiles.listed_id(name) is None
    return known_model(name, must_exist, revision)


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
