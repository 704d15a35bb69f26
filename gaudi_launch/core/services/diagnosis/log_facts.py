"""The engine, release, model and options that a log states. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

# the first that is found names the engine
_ENGINES = (
    (
        "other",
        re.compile(r"(?:detected platform|device_config=)\s?(?:cpu|cuda|rocm)|plugin cpu is act"),
    ),
    ("tgi", re.compile(r"\btext_generation_(?:launcher|router|server)\b")),
    ("vllm-fork", re.compile(r"vllm-fork|gaudi000|\+Gaudi-|detected platform hpu|\bengine\.py:\d")),
    ("vllm-gaudi", re.compile(r"vllm[-_]gaudi|plugin hpu is activated")),
    ("vllm-gaudi", re.compile(r"\(?(?:EngineCore|Worker_?TP|APIServer)|\[core\.py:\d|\bvllm[./]")),
)
_FACTS = {
    "release": re.compile(
        r"vLLM API server version v?(\d[\w.+]{0,60})|LLM engine \(v(\d[\w.+]{0,60})\)"
        r"|/vllm-(\d[\w.]{0,60})[^/]{0,60}\.egg/"
    ),
    "plugin": re.compile(r"vllm[-_]gaudi(?:==|[ -]v?)(\d{1,4}\.\d{1,4}\.[\w.+]{1,40})"),
    "model": re.compile(r"Resolved architecture: (\w{1,100})"),
    "method": re.compile(r"\bquantization='?(\w{1,40})"),
    "options": re.compile(r"((?:non-default args: |args: Namespace\().{0,4000})"),
}


def facts_of(text: str) -> Mapping[str, str]:
    """Return engine, release of vLLM, plugin, model class, method and options.

    "" is unknown. The engine is "other" for one that does not use Gaudi cards.
    """
    facts = {"engine": next((name for name, sign in _ENGINES if sign.search(text)), "")}
    for name, expression in _FACTS.items():
        found = expression.search(text)
        values = found.groups() if found is not None else ()
        facts[name] = next((value for value in values if value), "")
    return facts
