"""The marks by which a client sees that the cards are simulated.

The API server of vLLM 0.32 imports this module by ``--middleware`` (vllm 0.32.0:
vllm/entrypoints/serve/middleware/register.py): each answer has a header, and each entry of
/v1/models an owner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from vllm.entrypoints.serve.engine.protocol import ModelCard, ModelList

HEADER = (b"x-simulated", b"gaudi-launch")
OWNER = "simulated"

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class SimulatedHeader:
    """Adds the header to every answer, streamed ones included."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), HEADER]
            await send(message)

        await self.app(scope, receive, marked)


# make ``simulated`` the owner of every model that the server lists
ModelCard.model_fields["owned_by"].default = OWNER
ModelCard.model_rebuild(force=True)
# its entries are cards
ModelList.model_rebuild(force=True)
