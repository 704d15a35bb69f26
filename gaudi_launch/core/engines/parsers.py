"""Parsers of reasoning and tool calls from a model's profile, for vLLM engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines.engine_version import version_numbers
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.weights import parser_tokens
from gaudi_launch.core.planning import profiles
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.engine_args import EngineArgs
from gaudi_launch.core.planning.option_table import OptionTable, option_table
from gaudi_launch.core.planning.plan import Source

REASONING, REASONING_SWITCH = "--reasoning-parser", "--enable-reasoning"
TOOL, TOOL_SWITCH = "--tool-call-parser", "--enable-auto-tool-choice"


def with_parsers(table: str, registered: Mapping[str, tuple[str, ...]]) -> OptionTable:
    """Return an option table with one release's ``reasoning`` and ``tool`` parsers.

    Unchanged where the release's parsers are not known.
    """
    found = option_table(table)
    if not registered:
        return found
    own = {REASONING: registered["reasoning"], TOOL: registered["tool"]}
    options = [
        replace(each, registered=own.get(each.name, each.registered)) for each in found.options
    ]
    return OptionTable(found.name, tuple(options))


@dataclass(frozen=True)
class _Parsers:
    """The parsers of one profile, while they are added to a plan."""

    profile: profiles.Profile
    table: OptionTable
    args: EngineArgs
    decisions: Decisions
    model: Model
    upstream: str
    fork: str

    def add(self, name: str, parser: str | None, switch: str | None) -> bool:
        """Add one parser and its switch.

        Return False where this engine version does not have it. If the user wrote one of the two
        options, the user decides about the switch.
        """
        option = self.table.spellings.get(name)
        decided = source_of(self.decisions, name) not in (None, "computed")
        given = decided or self.args.given(name)
        if not given and (missing := self._missing(name, parser or "")):
            self.decisions.warn(
                "profiles.parser_tokens",
                option=name,
                parser=parser,
                profile=self.profile.name,
                tokens=", ".join(missing),
            )
            return False
        if parser is None or option is None or parser not in option.registered:
            return False
        if decided:
            return True
        if switch is not None and not self.args.given(name, switch):
            self._option(switch, None)
        self._option(name, parser)
        return True

    def _missing(self, name: str, parser: str) -> Sequence[str]:
        """Return the tokens that this parser needs and the model's tokenizer lacks."""
        needed = parser_tokens().get(name, {}).get(parser, {})
        release, last = version_numbers(self.upstream), needed.get("to", self.upstream)
        within = version_numbers(needed.get("from", "9999")) <= release <= version_numbers(last)
        if not within and self.fork not in needed.get("forks", ()):
            return ()
        return sorted(self.model.tokens_missing.intersection(needed["tokens"]))

    def _option(self, name: str, value: str | None) -> None:
        reason = message("profiles.setting", profile=self.profile.name)
        origin = self.profile.sources.get("parsers", "")
        self.decisions.option(name, value, reason, source="profile", origin=origin)


def source_of(decisions: Decisions, option: str) -> Source | None:
    """Return the source of the decided value of an option.

    Return None for one that is not decided.
    """
    named = (each for each in decisions.settings() if (each.kind, each.name) == ("option", option))
    return next((each.source for each in named), None)


def add_parsers(
    context: Context,
    decisions: Decisions,
    table: OptionTable,
    *,
    reasoning_switch: bool = False,
    upstream: str = "",
    fork: str = "",
) -> None:
    """Add the parsers of the model's profile that this engine version has registered.

    A parser looks for tokens in the tokenizer and ends the engine or every chat without them, so
    only models that the profile matches by name get one, and none whose tokenizer lacks a token.
    ``upstream``: the release of vLLM, or ``fork``: that of the fork. ``reasoning_switch``:
    reasoning has a separate switch there, which excludes tool calls
    (HabanaAI/vllm-fork@016b6bd20:vllm/entrypoints/openai/cli_args.py validate_parsed_serve_args).
    """
    profile = profiles.match(context.model)
    if profile is None:
        return
    found = profiles.parsers_for(profile, context.model.name)
    args = context.request.args
    parsers = _Parsers(profile, table, args, decisions, context.model, upstream, fork)
    if not reasoning_switch:
        parsers.add(REASONING, found.reasoning, None)
        parsers.add(TOOL, found.tool, TOOL_SWITCH)
        return
    if args.given(TOOL, TOOL_SWITCH):
        parsers.add(TOOL, found.tool, TOOL_SWITCH)
        return
    added = parsers.add(REASONING, found.reasoning, REASONING_SWITCH)
    if not added and not args.given(REASONING, REASONING_SWITCH):
        parsers.add(TOOL, found.tool, TOOL_SWITCH)
