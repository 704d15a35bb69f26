"""The differences between releases of one bucket algorithm, as values.

vllm-gaudi's code in ``vllm_gaudi/extension/bucketing`` kept its form from 0.11.2 on and changed its
rules in almost every release. A release's facts state a value for each rule here; the defaults are
those of vllm-project/vllm-gaudi@091bbadd (main).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_SEPARATOR = "/"


@dataclass(frozen=True)
class LadderRules:
    """The rules of `algorithms.context_ladder` and `file_format` in one release.

    ``decode_top``: the largest count of decode blocks of ``exp`` without contiguous attention:
    ``cut`` (every sequence at its longest, at most ``cut`` times the cache), ``sequences`` (every
    sequence at its longest), ``share`` (at least ``cut`` times the cache, at most the cache for
    each third sequence), ``cache`` (``cut`` times the cache), ``quarter`` (the cache for each
    fourth sequence), ``once`` (the cache). ``decode_steps``: what the number of steps follows:
    ``dense`` (the top, and more of them above ``cut`` times the cache), ``top`` or ``cache``.

    ``prompt_fits``: a prompt bucket stays where ``each`` of query and context is possible, or
    where their ``sum`` is within the model. ``long_contexts``: how long models get the largest
    context of each query: ``bounded`` by VLLM_PROMPT_CTX_BUCKET_MAX, ``free``, or ``none``.
    ``ladder``: the top of a ladder is ``exact``, ``open`` (rounded up to a step), or ``plain``
    (open, and only a minimum of 0 is kept with the ratios). ``one_token``: a smallest query of 1
    is read. ``linear_cache``: ``lin`` cuts decode blocks to the cache in every mode. ``pad``: the
    release has that strategy, and VLLM_BUCKETING_STRATEGY. ``chunks``: prompts of models with
    states are rounded to the chunk that config.json states (``stated``), to any (``any``, and
    ``checked`` where the token budget must be a multiple), or not (``none``). ``speculation``:
    speculative decoding has buckets. ``added``: the bound of a context that the engine adds:
    ``model``, ``largest`` or ``cache``. ``skips_lines``: an unreadable line of a file is skipped.
    """

    decode_top: str = "cut"
    cut: int = 3
    decode_steps: str = "dense"
    prompt_fits: str = "each"
    long_contexts: str = "bounded"
    ladder: str = "exact"
    one_token: bool = True
    linear_cache: bool = False
    pad: bool = True
    chunks: str = "stated"
    speculation: bool = True
    added: str = "model"
    skips_lines: bool = False

    @property
    def suffix(self) -> str:
        """Return the rules that differ from the defaults, to be added to a family's name."""
        own, plain = asdict(self), asdict(LadderRules())
        found = [f"{name}={own[name]}" for name in own if own[name] != plain[name]]
        return "".join(_SEPARATOR + each for each in found)


CHOICES: Mapping[str, tuple[Any, ...]] = {
    "decode_top": ("cut", "sequences", "share", "cache", "quarter", "once"),
    "cut": (3, 2, 1, 4, 5, 6, 8, 10, 16),
    "decode_steps": ("dense", "top", "cache"),
    "prompt_fits": ("each", "sum"),
    "long_contexts": ("bounded", "free", "none"),
    "ladder": ("exact", "open", "plain"),
    "one_token": (True, False),
    "linear_cache": (False, True),
    "pad": (True, False),
    "chunks": ("stated", "checked", "any", "none"),
    "speculation": (True, False),
    "added": ("model", "largest", "cache"),
    "skips_lines": (False, True),
}
"""Every value of each rule, that of the newest code first."""


def rules_of(found: Mapping[str, Any]) -> LadderRules:
    """Return the rules of a release's facts.

    Raises ValueError for an unknown name or value."""
    for name, value in found.items():
        if value not in CHOICES.get(name, ()):
            raise ValueError(f"{name}: {value}")
    return LadderRules(**found)


def split_name(name: str) -> tuple[str, LadderRules]:
    """Return the family and rules of ``FAMILY/rule=value/...``. Raises ValueError."""
    family, *words = name.split(_SEPARATOR)
    found: dict[str, Any] = {}
    for word in words:
        rule, _, text = word.partition("=")
        found[rule] = next((each for each in CHOICES.get(rule, ()) if str(each) == text), text)
    return family, rules_of(found)
