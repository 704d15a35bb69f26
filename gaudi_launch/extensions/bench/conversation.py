"""A conversation with a server, one answer at a time."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field

from gaudi_launch.extensions.bench import protocols, server
from gaudi_launch.extensions.bench.client import Client

# a model may write anything, terminal control sequences too. Removed are C0 and C1, lone surrogates
# (no encoding has them), and marks that change the direction of what follows
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
# servers without chat stop after 16 or 20 tokens when no number is given
_PLAIN_TOKENS = 256


def clean(words: str) -> str:
    """Return text without terminal controls and characters that cannot be written.

    Line ends and tabs stay.
    """
    return _CONTROL.sub("", words.replace("\r\n", "\n"))


@dataclass
class Conversation:
    """A conversation: ``messages`` are the user's and the answers to them.

    ``system`` comes before them.
    """

    client: Client
    served: server.ServerFacts
    form: protocols.Form
    system: str = ""
    tokens: int | None = None
    temperature: float | None = None
    messages: list[protocols.Message] = field(default_factory=list)

    def reset(self) -> None:
        """Clear the history."""
        self.messages.clear()

    async def say(self, words: str, show: protocols.Show) -> protocols.ModelAnswer:
        """Send a message and read the answer.

        Raises ServerError; then, and when it is cancelled before an answer, the message is
        forgotten. The part of an answer that came before a cancellation is kept.
        """
        asked: protocols.Message = {"role": "user", "content": words}
        first = [{"role": "system", "content": self.system}] if self.system else []
        tokens = self.tokens
        if tokens is None and self.form != "chat":
            tokens = _PLAIN_TOKENS
        question = protocols.Prompt((*first, *self.messages, asked), tokens, self.temperature)
        pieces: list[str] = []

        def piece(text: str, thought: bool) -> None:
            if not thought:
                pieces.append(text)
            show(text, thought)

        try:
            answer = await protocols.stream(
                self.client, self.form, question, self.served.model, piece
            )
        except asyncio.CancelledError:
            if pieces:
                self.messages += [asked, {"role": "assistant", "content": "".join(pieces)}]
            raise
        self.messages += [asked, {"role": "assistant", "content": answer.text}]
        return answer


def answer(
    conversation: Conversation, words: str, show: protocols.Show
) -> protocols.ModelAnswer | None:
    """Send a message and wait for the answer; None when Ctrl-C ended it.

    Raises ServerError.
    """

    async def run() -> protocols.ModelAnswer | None:
        task = asyncio.ensure_future(conversation.say(words, show))
        with _cancelling(task):
            try:
                return await task
            except asyncio.CancelledError:
                return None

    return asyncio.run(run())


@contextlib.contextmanager
def _cancelling(task: asyncio.Future[protocols.ModelAnswer]) -> Iterator[None]:
    """Let Ctrl-C cancel this task, and nothing else."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
