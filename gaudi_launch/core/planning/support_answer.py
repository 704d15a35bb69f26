"""An engine version's answer about one model. Pure.

It runs, it runs with a limit, it does not run, or it is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.models.cached_layers import CacheKind
from gaudi_launch.core.models.sizing import CacheRules, StateBlocks


class SupportStatus(Enum):
    """The four answers, in the terms of ``--json``."""

    RUNS = "runs"
    LIMITED = "limited"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Validated:
    """The configurations that the engine's makers have tested, with their source.

    They are numbers of cards, data types and accelerators.
    """

    cards: tuple[int, ...]
    dtypes: tuple[str, ...]
    accelerators: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class LayerCache:
    """The cache that an engine allocates for the layers of one kind.

    ``layers`` is their number (None: unknown), ``allocates`` one of full, latent, state, model,
    none, refused and unknown; ``meaning`` states what that is for memory.
    """

    kind: CacheKind
    layers: int | None
    allocates: str
    meaning: Message
    source: str = ""


@dataclass(frozen=True)
class ModelSupport:
    """One engine version's answer about one model.

    ``engine`` is its exact name, ``evidence`` the file at a commit that the answer rests on ("":
    none). ``refused`` is True only where the list of exactly this version lacks the class or the
    quantisation method. ``expanded_to`` is the type of the weights on the card where the engine
    dequantises them when it loads them ("": they stay as they are), ``unless`` the variable that
    prevents that. ``caches`` is what it allocates for the model's layers; empty where unknown.
    ``compact_states``: states of linear attention are in slots next to the cache.
    ``state_blocks``: how they share blocks with keys and values; None where they do not.
    ``own_class``: code that the model brings does not run without the user's permission.
    """

    engine: str
    status: SupportStatus = SupportStatus.UNKNOWN
    reasons: tuple[Message, ...] = ()
    evidence: str = ""
    refused: bool = False
    validated: Validated | None = None
    expanded_to: str = ""
    unless: str = ""
    caches: tuple[LayerCache, ...] = ()
    compact_states: bool = False
    state_blocks: StateBlocks | None = None
    own_class: bool = False

    @property
    def cache_rules(self) -> CacheRules:
        """Return the rules by which this version's cache is counted."""
        allocated = {each.kind: each.allocates for each in self.caches}
        return CacheRules(
            compressed=allocated.get("latent", "latent") == "latent",
            shared=allocated.get("shared", "none") == "none",
            compact_states=self.compact_states,
            state_blocks=self.state_blocks,
        )


def check_support(found: ModelSupport, *, force: bool) -> tuple[Message, ...]:
    """Return the warnings of an answer.

    Raises LaunchError (MODEL) for a refusal without ``force``.
    """
    if not found.refused:
        return found.reasons
    why = " ".join(reason.render() for reason in found.reasons)
    if force:
        return (message("support.forced", why=why),)
    raise LaunchError("support.refused", ExitCode.MODEL, engine=found.engine, why=why)
