"""Options and commands of other tools, and ours.

An option that means the same is accepted; the others are answered with ours.

foreign_options.json has vLLM's names (vllm-project/vllm: vllm/engine/arg_utils.py,
vllm/benchmarks/serve.py), TGI's (huggingface/text-generation-inference: launcher/src/main.rs),
those of `hf download`, kubectl, docker, llama.cpp, ollama, pip and systemctl. Those below "same"
take the same value as ours; ours below "instead" takes the place of theirs and of its value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import beside


def other_names(kind: str) -> Mapping[str, str]:
    """Return ours by the name of another tool.

    ``kind``: "same", "near" or "instead" of options, or "commands".
    """
    found: Mapping[str, Mapping[str, str]] = beside(__file__)
    return found[kind]


def options_end(args: Sequence[str]) -> int:
    """Return the place of the first ``--``, else the number of arguments.

    >>> options_end(["serve", "m", "--", "--seed", "1"])
    2
    """
    return [*args, "--"].index("--")


def in_our_names(args: Sequence[str], known: Collection[str]) -> list[str]:
    """Return arguments with our names for other tools' options that mean the same.

    ``known``: every spelling that the command has. After ``--`` all belongs to the engine.
    """
    end = options_end(args)
    found: list[str] = []
    for word in args[:end]:
        name, equals, value = word.partition("=")
        ours = ""
        # most lines have no other tool's option, and the names need not be read
        if word.startswith("-") and name not in known:
            ours = other_names("same").get(name.replace("_", "-"), "")
        if ours not in known:
            found.append(word)
        else:
            found += [ours, value] if equals else [ours]
    return [*found, *args[end:]]


def foreign_option(name: str, known: Collection[str]) -> Message | None:
    """Return the hint for another tool's option.

    Return None where no option of the command does the same. ``known``: every spelling that the
    command has.
    """
    found = name.partition("=")[0]
    ours = {**other_names("near"), **other_names("instead")}.get(found.replace("_", "-"), "")
    is_known = ours.partition(" ")[0] in known
    if is_known or (ours.startswith("gaudi-launch") and "-w" in known):
        return message("common.foreign_option", found=found, ours=ours)
    return None


def foreign_names(known: Collection[str]) -> dict[str, str]:
    """Return other tools' long options with ours, of those that the command has."""
    pairs = {**other_names("same"), **other_names("near")}.items()
    return {name: ours for name, ours in pairs if ours in known and name.startswith("--")}
