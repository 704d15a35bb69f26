"""Options common to `chat`, `run` and `webui`, and opening a conversation."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import typer

from gaudi_launch.cli.record_options import record
from gaudi_launch.core.base.fields import OptionRecord, text, value
from gaudi_launch.core.planning import parse, parse_ranges
from gaudi_launch.core.services.endpoint import Target, api_key
from gaudi_launch.extensions.bench.conversation import Conversation

MODEL = typer.Option(None, "--model", metavar="NAME", help="The model's name in requests.")


def _temperature(flag: str, text: str) -> float:
    return float(parse_ranges.fraction(flag, text, 0.0, 2.0))


@dataclass(frozen=True)
class ChatOptions(OptionRecord):
    """The options of a conversation."""

    system: str = text(
        "--system", metavar="TEXT", help="System prompt, sent before the conversation."
    )
    tokens: int | None = value(
        "--max-tokens", metavar="N", help="Maximum number of output tokens.", read=parse.number
    )
    temperature: float | None = value(
        "--temperature", metavar="T", help="0 to 2 (default: the server's).", read=_temperature
    )
    timeout: float = text(
        "--timeout",
        metavar="TIME",
        help="Timeout without data of the server: 90, 5m.",
        default="120",
        read=parse.seconds,
    )


# the default of a command's ``options: ChatOptions``
Chat = record(ChatOptions())


def begin(found: Target, options: ChatOptions, model: str | None = None) -> Conversation:
    """Return a conversation with a server.

    Raises LaunchError when it does not answer.
    """
    from gaudi_launch.extensions.bench.client import Client, ServerError
    from gaudi_launch.extensions.bench.measurement import problem
    from gaudi_launch.extensions.bench.server import look, pick_form

    client = Client(found.url, api_key=api_key(), timeout=options.timeout)

    async def opened() -> Conversation:
        served = await look(client, model or found.model)
        form = await pick_form(client, served)
        return Conversation(
            client, served, form, options.system, options.tokens, options.temperature
        )

    try:
        return asyncio.run(opened())
    except ServerError as error:
        raise problem(error, found.url) from None
