"""Options of other tools and their names here, for hints in usage errors.

foreign_options.json has vLLM's names (vllm-project/vllm: vllm/engine/arg_utils.py,
vllm/benchmarks/serve.py), TGI's (huggingface/text-generation-inference: launcher/src/main.rs),
those of `hf download`, kubectl, docker, llama.cpp and ollama, and of other commands here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import beside

# click reads them as -t with the value p, and so on
_SHORT_WITH_TWO_LETTERS = ("-tp",)


def _ours() -> Mapping[str, str]:
    found: Mapping[str, str] = beside(__file__)
    return found


def foreign_option(name: str, known: Collection[str]) -> Message | None:
    """Return the hint for another tool's option.

    Return None where no option of the command does the same. ``known``: every spelling that the
    command has.
    """
    found = name.partition("=")[0]
    ours = _ours().get(found.replace("_", "-"), "")
    if ours in known or (ours.startswith("gaudi-launch") and "-w" in known):
        return message("common.foreign_option", found=found, ours=ours)
    return None


def foreign_names(known: Collection[str]) -> dict[str, str]:
    """Return other tools' long options with ours, of those that the command has."""
    pairs = _ours().items()
    return {name: ours for name, ours in pairs if ours in known and name.startswith("--")}


def refuse_two_letters(typed: Sequence[str], known: Collection[str]) -> None:
    """Raise LaunchError (USAGE) for ``-tp``, which would be read as ``-t p``."""
    for word in typed:
        if word not in _SHORT_WITH_TWO_LETTERS:
            continue
        hint = foreign_option(word, known)
        if hint is not None:
            raise LaunchError(hint.id, ExitCode.USAGE, **hint.values)
