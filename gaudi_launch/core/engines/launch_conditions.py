"""Apply the conditions of a release to the options and the settings of a launch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.engines.launched import Launched, concerning
from gaudi_launch.core.engines.user_options import option_faults, unread_variables
from gaudi_launch.core.host.accelerators import product_of
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.engine import Context, Proposal
from gaudi_launch.core.planning.passthrough import with_user_args
from gaudi_launch.core.planning.plan import EngineIdentity, Setting
from gaudi_launch.core.planning.request import Request


def check_request(
    identity: EngineIdentity, request: Request, model: Model, release: EngineIdentity | None = None
) -> tuple[Message, ...]:
    """Return the warnings about the user's options, variables and features.

    ``release`` has the features, where it is not the engine that reads the options. Raises
    LaunchError (USAGE) for an option that this version ends with, unless forced.
    """
    label = (release or identity).exact
    args, forced = request.args, request.force
    warnings: list[Message] = []
    for fault in option_faults(args, identity):
        if fault.certain and not forced:
            why = fault.sentence.render()
            raise LaunchError("options.refused", ExitCode.USAGE, option=fault.option, why=why)
        warnings.append(fault.sentence)
    options = {each.name: args.last(each.name) or "" for each in args.every if args.has(each.name)}
    exported = {name: value for name, value in request.environment.items() if value}
    by_option = Launched(model, settings=options)
    asked = Launched(model, settings={**exported, **options})
    for row in [each for each in concerning(label, asked) if each.feature]:
        answer = row.answer(label)
        words = row.when[0]
        if row.status == "no" and by_option.holds(words) and not forced:
            option = next(each for each in words.split("|") if by_option.holds(each))
            name = re.split("[.=]", option)[0]
            raise LaunchError("features.refused", ExitCode.USAGE, option=name, why=answer.render())
        warnings.append(answer)
        exported.pop(words, None)
    return (*warnings, *unread_variables(exported, identity))


def values_of(settings: Iterable[Setting]) -> dict[str, str]:
    """Return the values of what is sent, by name."""
    return {each.name: each.value or "" for each in settings if each.sent}


def settled(identity: EngineIdentity, context: Context, proposed: Sequence[Setting]) -> Proposal:
    """Return the proposed settings as the conditions change them, and the warnings.

    What the user gave or exported stays, with a warning.
    """
    given = with_user_args(proposed, context.request.args)
    sent = {**context.request.environment, **values_of(given)}
    launched = Launched(context.model, product_of(context.host), sent, identity.facts)
    users = {each.name for each in given if each.source in ("flag", "environment")}
    warnings = []
    for each in concerning(identity.exact, launched):
        if each.feature:
            continue
        if not each.setting or users & each.setting.keys():
            warnings.append(each.sentence)
            continue
        proposed = [setting for setting in proposed if setting.name not in each.setting]
        for name, value in each.setting.items():
            if value is None:
                warnings.append(each.left_off(name))
                continue
            kind: Literal["option", "env"] = "option" if name.startswith("-") else "env"
            proposed.append(Setting(name, value, kind, "computed", each.sentence, each.thread))
    return Proposal(proposed, tuple(warnings))
