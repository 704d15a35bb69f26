"""``gaudi-launch chat``: chat with a server in the terminal."""

from __future__ import annotations

import re
import sys

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.record_options import RecordCommand
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.services.endpoint import Target, target
from gaudi_launch.extensions.bench.chat_options import MODEL, Chat, ChatOptions, begin
from gaudi_launch.extensions.bench.client import ServerError
from gaudi_launch.extensions.bench.conversation import Conversation, answer, clean

app = CommandApp()

_MOST_QUESTION = 4 << 20


@app.command(cls=RecordCommand)
def chat(
    words: list[str] | None = typer.Argument(
        None,
        metavar="[URL|NAME] [QUESTION]...",
        help="A server's address, a service, or its model (default: the only running service); a "
        "question to answer.",
    ),
    model: str | None = MODEL,
    options: ChatOptions = Chat,
) -> None:
    """Chat with a server. Ctrl-C stops the answer, Ctrl-D ends the chat; /reset clears the history.

    A question as argument, or from a pipe, is answered alone: only the answer is written. The key,
    if one is needed, comes from VLLM_API_KEY.
    """
    server, rest = None, words or []
    # an address or a name is printable ASCII without blanks: any other first argument belongs to
    # the question
    if rest and re.fullmatch("[!-~]+", rest[0]):
        server, rest = rest[0], rest[1:]
    talk(target(server), options, " ".join(rest), model)


def talk(found: Target, options: ChatOptions, question: str, model: str | None = None) -> None:
    """Answer a question and return, or read questions from the terminal or a pipe."""
    talking = begin(found, options, model)
    if question or not sys.stdin.isatty():
        _once(talking, found, question)
    else:
        _talk(talking, found)


def _once(talking: Conversation, found: Target, question: str) -> None:
    """Answer one question; "": the one from the pipe."""
    from gaudi_launch.extensions.bench.measurement import problem

    if not question:
        question = sys.stdin.buffer.read(_MOST_QUESTION).decode("utf-8", errors="replace").strip()
    if not question:
        raise LaunchError("measure.no_question", ExitCode.USAGE)
    try:
        reply = answer(talking, question, _Writer(thoughts=False))
    except ServerError as error:
        raise problem(error, found.url) from None
    print(flush=True)
    if reply is None:
        raise KeyboardInterrupt


def _talk(talking: Conversation, found: Target) -> None:
    """Read questions and show answers until Ctrl-D."""
    import contextlib

    with contextlib.suppress(ImportError):
        # line editing and the up arrow for input()
        import readline  # noqa: F401
    print(text("measure.chat_begin", model=talking.served.model, url=found.url))
    while True:
        try:
            words = input("> ").strip()
        except EOFError:
            return print()
        except KeyboardInterrupt:
            print("\n" + text("measure.chat_end_hint"))
            continue
        if words == "/reset":
            talking.reset()
            print(text("measure.chat_reset"))
        elif words.startswith("/"):
            print(text("measure.chat_unknown", found=words.split()[0]))
        elif words:
            try:
                reply = answer(talking, words, _Writer(thoughts=True))
            except ServerError as error:
                print("\n" + text(error.sentence, why=error.detail, status=error.status))
            else:
                print("\n" if reply is not None else "\n" + text("measure.chat_cut") + "\n")


class _Writer:
    """Writes an answer as it arrives; thoughts in grey on a terminal, or not at all."""

    def __init__(self, thoughts: bool) -> None:
        import os

        self._thoughts = thoughts
        self._grey = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._thinking = False

    def __call__(self, words: str, thought: bool) -> None:

        if thought and not self._thoughts:
            return
        mark = ""
        if thought != self._thinking:
            self._thinking = thought
            grey = "\x1b[90m" if thought else "\x1b[0m"
            mark = (grey if self._grey else "") + ("" if thought else "\n\n")
        sys.stdout.write(mark + clean(words))
        sys.stdout.flush()
