"""Judge the user's engine options and variables by one release's facts. Pure."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import mapped, value_or
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.engines.engine_version import Version
from gaudi_launch.core.engines.known_versions import newest_or_none, version_of, versions
from gaudi_launch.core.engines.version_facts import NameFacts, VersionNames, names_of, renames
from gaudi_launch.core.planning.engine_args import EngineArgs
from gaudi_launch.core.planning.engine_argument import Argument, json_keys
from gaudi_launch.core.planning.option_table import (
    UPSTREAM,
    UPSTREAM_VERSION,
    OptionTable,
    option_table,
    variable_table,
)
from gaudi_launch.core.planning.plan import EngineIdentity

# names that a plugin file of the user may register
_PARSERS = {
    "--reasoning-parser": ("reasoning", "--reasoning-parser-plugin"),
    "--tool-call-parser": ("tool", "--tool-parser-plugin"),
}
# vllm/distributed/kv_transfer/kv_connector/factory.py: a connector outside of the registry
_OWN_MODULE = "kv_connector_module_path"
_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
# exported for vLLM; other prefixes belong to libraries whose variables no list is complete of
_PREFIX = "VLLM_"


@dataclass(frozen=True)
class OptionFault:
    """A fault of an option; ``certain`` where the engine ends with it."""

    option: str
    sentence: Message
    certain: bool


def option_faults(args: EngineArgs, identity: EngineIdentity) -> tuple[OptionFault, ...]:
    """Return the faults of the user's options, in their order.

    They are certain where the facts, or the table of options, are of exactly this release, and
    likely by the facts of the newest one.
    """
    exact = version_of(identity.name, identity.version)
    facts = exact
    if exact is None or not names_of(exact).options:
        exact, facts = None, newest_or_none(identity.name)
    names = value_or(mapped(names_of, facts), VersionNames({}, {}))
    label = identity.exact if facts is None else facts.label
    table = option_table(identity.options)
    of_table = (identity.options, identity.version) == (UPSTREAM, UPSTREAM_VERSION)
    certain = exact is not None or (facts is None and of_table)
    found: list[OptionFault] = []
    for argument in (*args.file, *args.user):
        # argparse drops the dashes, not what follows them
        if argument.name == "--" or not (names.options or table.options):
            continue
        if argument.positional:
            sentences = [message("options.positional", given=argument.name, engine=label)]
        elif argument.attached and argument.option.count == "0":
            given = argument.words[0]
            sentences = [message("options.flag", given=given, engine=label, option=argument.shown)]
        elif not _is_listed(argument, names, table):
            sentences = [_unknown(argument.shown, label, names, facts)]
        else:
            sentences = list(_wrong_values(argument, args, names, facts))
        found += [OptionFault(argument.shown, each, certain) for each in sentences]
    return tuple(dict.fromkeys(found))


def _is_listed(argument: Argument, names: VersionNames, table: OptionTable) -> bool:
    """Return True for an option of the release in any spelling."""
    if not names.options:
        return argument.name in table.spellings
    if not argument.name.startswith("--"):
        return argument.option.name != ""
    if argument.name == "--help" or names.option(argument.name):
        return True
    return any(name.startswith(argument.name) for name in names.options)


def _unknown(option: str, label: str, names: VersionNames, facts: Version | None) -> Message:
    """Return the sentence about a name, with its replacement or the nearest one."""
    renamed = renames().get(option)
    last = [each for each in versions() if names_of(each).option(option) is not None]
    near = get_close_matches(option, names.options, n=1, cutoff=0.75)
    if renamed is not None:
        hint = message("options.instead", instead=renamed.instead)
    elif near:
        hint = message("options.near", near=near[0])
    elif last and facts is not None:
        same = [each for each in last if each.engine == facts.engine]
        hint = message("options.elsewhere", known=(same or last)[-1].label)
    else:
        hint = message("options.before_dashes")
    return message("options.unknown", option=option, engine=label, hint=hint.render())


def _wrong_values(
    argument: Argument, args: EngineArgs, names: VersionNames, facts: Version | None
) -> Iterator[Message]:
    """Yield a sentence for each value that the release's code does not have."""
    label = "" if facts is None else facts.label
    option = value_or(names.option(argument.name), NameFacts("", ""))
    form = option.form
    if form and not argument.key:
        wrong = [each for each in argument.values if not re.fullmatch(form[0], each)]
        if wrong or not argument.values:
            given = " ".join((argument.name, *wrong))
            yield message("options.form", given=given, engine=label, known=form[1])
    for value in _outside(option, argument.values):
        limits = ", ".join(f"{_SIGNS[bound]} {at:g}" for bound, at in option.bounds.items())
        yield message(
            "options.bounds", option=argument.name, found=value, engine=label, known=limits
        )
    for key, value in _values(argument, args):
        shown = f"{argument.name}.{key}" if key else argument.name
        known = enumerated(label).get(shown, ())
        if not key:
            parser = _of_parser(argument.name, args, names)
            # what the parser takes and the code after it knows
            known = tuple(each for each in known or parser if each in (parser or known))
        if known and value not in known:
            yield message(
                "options.value", option=shown, found=value, engine=label, known=", ".join(known)
            )


def _outside(option: NameFacts, values: Iterable[str]) -> Iterator[str]:
    """Yield the numbers outside of an option's range; skip texts such as ``auto``."""
    for value in values:
        try:
            number = float(value)
        except ValueError:
            continue
        if not all(getattr(operator, bound)(number, at) for bound, at in option.bounds.items()):
            yield value


def _of_parser(name: str, args: EngineArgs, names: VersionNames) -> tuple[str, ...]:
    kind, plugin = _PARSERS.get(name, ("", ""))
    if kind:
        return () if args.has(plugin) else names.parsers.get(kind, ())
    return value_or(names.option(name), NameFacts("", "")).values


def _values(argument: Argument, args: EngineArgs) -> Iterator[tuple[str, str]]:
    """Yield (key, value) of an option.

    The key is "" for the option itself, else one of its JSON object.
    """
    keys = json_keys(args.last(argument.name))
    if _OWN_MODULE in keys:
        return
    yield from keys.items()
    if not keys:
        yield from (("", value) for value in argument.values)


def keyword_words(keywords: Mapping[str, object]) -> tuple[str, ...]:
    """Return the keywords of vLLM's engine, as Ray Serve passes them, as arguments.

    Source: ray 2.60.0 (commit b7f4259e), python/ray/llm/_internal/serve (engine_kwargs).
    """
    words: list[str] = []
    for name, value in keywords.items():
        plain = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{plain}" if value else f"--no-{plain}")
        elif isinstance(value, dict):
            words += [f"--{plain}", json.dumps(value)]
        elif value is not None:
            words += [f"--{plain}", *map(str, value if isinstance(value, list) else [value])]
    return tuple(words)


@cache
def enumerated(label: str) -> Mapping[str, tuple[str, ...]]:
    """Return the values that a release's code has, by option or ``option.key``.

    scripts/engine_values.py reads them.
    """
    path = paths.profiles_dir() / "engines" / "changes" / "values.json"
    rows = read_json(path)["releases"].get(label, {})
    return {option: tuple(row["values"]) for option, row in rows.items()}


def unread_variables(
    environment: Mapping[str, str], identity: EngineIdentity
) -> tuple[Message, ...]:
    """Return a warning for each exported variable that this release does not read.

    None without facts of exactly this release. Only variables of vLLM are judged; those of the
    engine's table count as read.
    """
    facts = version_of(identity.name, identity.version)
    if facts is None or not names_of(facts).options:
        return ()
    names, table = names_of(facts), variable_table(identity.variables)
    found = []
    for name in sorted(environment):
        row = names.variables.get(name)
        read = name in table if row is None else not row.unused
        if not name.startswith(_PREFIX) or not environment[name] or read:
            continue
        renamed = renames().get(name)
        hint = ""
        if renamed is not None:
            hint = message("options.instead", instead=renamed.instead).render()
        found.append(message("options.unread", name=name, engine=facts.label, hint=hint))
    return tuple(found)
