"""Options common to `chat` and `webui`, and opening a conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from gaudi_launch.core.services.endpoint import api_key, target

if TYPE_CHECKING:
    from gaudi_launch.core.services.endpoint import Target
    from gaudi_launch.extensions.bench.conversation import Conversation

SYSTEM = typer.Option(
    "", "--system", metavar="TEXT", help="System prompt, sent before the conversation."
)
MODEL = typer.Option(None, "--model", metavar="NAME", help="The model's name in requests.")
TOKENS = typer.Option(None, "--max-tokens", metavar="N", help="Maximum number of output tokens.")
TEMPERATURE = typer.Option(
    None, "--temperature", metavar="T", help="0 to 2 (default: the server's)."
)
TIMEOUT = typer.Option(
    "120", "--timeout", metavar="TIME", help="Timeout without data of the server: 90, 5m."
)


@dataclass(frozen=True)
class ChatOptions:
    """The parsed options; the server was not contacted yet."""

    target: Target
    model: str | None
    system: str
    tokens: int | None
    temperature: float | None
    timeout: float

    def begin(self) -> Conversation:
        """Return a conversation with the server.

        Raises LaunchError when it does not answer.
        """
        import asyncio

        from gaudi_launch.extensions.bench.client import Client, ServerError
        from gaudi_launch.extensions.bench.conversation import begin
        from gaudi_launch.extensions.bench.measurement import problem

        client = Client(self.target.url, api_key=api_key(), timeout=self.timeout)
        try:
            return asyncio.run(
                begin(
                    client,
                    self.model or self.target.model,
                    self.system,
                    self.tokens,
                    self.temperature,
                )
            )
        except ServerError as error:
            raise problem(error, self.target.url) from None


def read(
    server: str | None,
    model: str | None,
    system: str,
    tokens: str | None,
    temperature: str | None,
    timeout: str,
) -> ChatOptions:
    """Return the options of a chat.

    Raises LaunchError for an invalid server or number.
    """
    from gaudi_launch.core.planning.parse import fraction, number, seconds

    return ChatOptions(
        target(server),
        model,
        system,
        number("--max-tokens", tokens) if tokens is not None else None,
        float(fraction("--temperature", temperature, 0.0, 2.0))
        if temperature is not None
        else None,
        seconds("--timeout", timeout),
    )
