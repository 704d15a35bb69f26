"""``gaudi-launch chat``: talk with a server in the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from gaudi_launch.messages import text

if TYPE_CHECKING:
    from gaudi_launch.measure.conversation import Conversation
    from gaudi_launch.services.target import Target

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})

_MOST_QUESTION = 4 << 20


@app.command()
def chat(
    server: str = typer.Argument(..., metavar="URL|NAME", help="A server's address, or a service's name."),
    system: str = typer.Option("", "--system", metavar="TEXT", help="What the model is told before everything."),
    model: str | None = typer.Option(None, "--model", help="The model's name in requests."),
    tokens: str | None = typer.Option(None, "--max-tokens", metavar="N", help="Longest answer."),
    temperature: str | None = typer.Option(
        None, "--temperature", metavar="T", help="0 to 2; default: the server's."
    ),
    patience: str = typer.Option("120", "--patience", metavar="SECONDS", help="Longest silence of the server."),
) -> None:
    """Talk with a server. Ctrl-C ends an answer, Ctrl-D the talk; /reset forgets what was said.

    From a pipe, everything read is one question, and only the answer is written. The key, if it wants one, comes
    from VLLM_API_KEY.
    """
    import asyncio

    from gaudi_launch.measure.client import Client, ServerError
    from gaudi_launch.measure.conversation import begin
    from gaudi_launch.measure.run import problem
    from gaudi_launch.planning.asked import fraction, number
    from gaudi_launch.services.target import api_key, target

    found = target(server)
    longest = number("--max-tokens", tokens) if tokens is not None else None
    warm = float(fraction("--temperature", temperature, 0.0, 2.0)) if temperature is not None else None
    client = Client(found.url, api_key=api_key(), patience=number("--patience", patience))
    try:
        talking = asyncio.run(begin(client, model or found.model, system, longest, warm))
    except ServerError as error:
        raise problem(error, found.url) from None
    if sys.stdin.isatty():
        _talk(talking, found)
    else:
        _once(talking, found)


def _once(talking: Conversation, found: Target) -> None:
    """One question from a pipe, one answer."""
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.measure.client import ServerError
    from gaudi_launch.measure.conversation import answer
    from gaudi_launch.measure.run import problem

    question = sys.stdin.buffer.read(_MOST_QUESTION).decode("utf-8", errors="replace").strip()
    if not question:
        raise LaunchError("measure.no_question", ExitCode.USAGE)
    try:
        said = answer(talking, question, _Writer(thoughts=False))
    except ServerError as error:
        raise problem(error, found.url) from None
    print(flush=True)
    if said is None:
        raise KeyboardInterrupt


def _talk(talking: Conversation, found: Target) -> None:
    """Question and answer until Ctrl-D."""
    import contextlib

    from gaudi_launch.measure.client import ServerError
    from gaudi_launch.measure.conversation import answer

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
                said = answer(talking, words, _Writer(thoughts=True))
            except ServerError as error:
                id = "measure.fail_key" if error.status in (401, 403) else f"measure.fail_{error.kind}"
                print("\n" + text(id, why=error.detail, status=error.status))
            else:
                print("\n" if said is not None else "\n" + text("measure.chat_cut") + "\n")


class _Writer:
    """Writes an answer as it comes; thoughts in grey on a terminal, or not at all."""

    def __init__(self, thoughts: bool) -> None:
        import os

        self._thoughts = thoughts
        self._grey = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._thinking = False

    def __call__(self, words: str, thought: bool) -> None:
        from gaudi_launch.measure.conversation import clean

        if thought and not self._thoughts:
            return
        mark = ""
        if thought != self._thinking:
            self._thinking = thought
            grey = "\x1b[90m" if thought else "\x1b[0m"
            mark = (grey if self._grey else "") + ("" if thought else "\n\n")
        sys.stdout.write(mark + clean(words))
        sys.stdout.flush()
