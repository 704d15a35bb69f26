"""The program: a table of commands, and the place that turns errors into exits.

Each command is loaded when it runs.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from typing import Any

import typer
import typer.core
import typer.main

from gaudi_launch.cli.colour import ERROR, is_coloured, painted
from gaudi_launch.cli.command_app import HelpGroup
from gaudi_launch.cli.console import emit_json, error_document, give_up
from gaudi_launch.cli.foreign_options import options_end
from gaudi_launch.cli.gone import refuse_gone
from gaudi_launch.cli.streams import prepare_streams, shows
from gaudi_launch.cli.table import COMMANDS, COMPLETES, GROUPS, listed, load_command
from gaudi_launch.cli.wrapping import folded
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import LANGUAGES, language, set_language, text
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.base.steps import shown_by
from gaudi_launch.core.base.version import VERSION

# system errors for a path that this user may not use, wherever it is used first
_NO_WAY = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP)


class CommandInterruptedError(Exception):
    """A command was ended by Ctrl-C.

    typer itself would end with 130 and print nothing.
    """


class LazyGroup(HelpGroup):
    """Lists commands from the table and imports a command's module only to run it."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Raises CommandInterruptedError at a Ctrl-C."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise CommandInterruptedError from None

    @property
    def entry_points(self) -> str:
        return "commands"

    def own_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return self.foreign_command(ctx, cmd_name)
        help_text = COMMANDS[cmd_name][1]
        return typer.core.TyperCommand(cmd_name, help=help_text, short_help=help_text)

    def command_sections(self, ctx: Any) -> list[tuple[str, list[tuple[str, str]]]]:
        """Return the commands by what a user wants."""
        grouped = {name for names in GROUPS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in grouped)
        groups = {**GROUPS, "Other": others} if others else GROUPS
        return [
            (title, [(name, str(self.get_command(ctx, name).help)) for name in names])
            for title, names in groups.items()
        ]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        refuse_gone(args)
        name, command, rest = super().resolve_command(ctx, args)
        return name, (load_command(name, COMMANDS[name][0]) if name in COMMANDS else command), rest


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Start LLM servers on Intel Gaudi machines with one command.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gaudi-launch {VERSION}")
        raise typer.Exit()


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
    lang: str = typer.Option(
        "", "--lang", metavar="en|zh", help="Language of messages (also after a command)."
    ),
    debug: bool = typer.Option(
        False, "--debug", help="Show the debug log and tracebacks on stderr."
    ),
) -> None:
    """Define the global options for the help.

    `run` takes them out of the arguments, so that they may be anywhere.
    """


def _take_global_options(arguments: list[str]) -> tuple[list[str], str | None, bool]:
    """Return arguments without --lang and --debug, and the values of both.

    The options before a bare ``--`` count.
    """
    rest: list[str] = []
    lang: str | None = None
    debug = False
    words = iter(arguments)
    for word in words:
        if word == "--":
            return [*rest, word, *words], lang, debug
        if word == "--debug":
            debug = True
        elif word == "--lang":
            lang = next(words, "")
        elif word.startswith("--lang="):
            lang = word.removeprefix("--lang=")
        else:
            rest.append(word)
    return rest, lang, debug


def main(argv: list[str] | None = None) -> None:
    """Run the program and exit with DESIGN's codes.

    All ways out of the program pass here.
    """
    # objects of the start live until the end: looking for dead ones is 5 % of a command
    gc.set_threshold(50_000)
    arguments = sys.argv[1:] if argv is None else argv
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # closed by the caller (`>&-`): nothing reads it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    _, lang, _ = _take_global_options(arguments)
    prepare_streams(os.environ, english=(lang or language()) == "en")
    if COMPLETES in os.environ:
        listed("bash words")(os.environ)
    try:
        sys.exit(run(arguments))
    except KeyboardInterrupt:
        # while our own modules are loaded
        sys.exit(130)


def run(arguments: list[str]) -> int:
    """Run the program once; return the exit code."""
    from gaudi_launch.core.base import debug_log

    arguments, lang, debug = _take_global_options(arguments)
    with debug_log.kept(debug=debug):
        return _run(arguments, lang, debug)


def _run(arguments: list[str], lang: str | None, debug: bool) -> int:
    from gaudi_launch.cli.status_line import status_line
    from gaudi_launch.core.base.dropped_interrupt import redelivered

    as_json = "--json" in arguments[: options_end(arguments)]
    set_language(lang)
    if not all(shows(stream, "中") for stream in (sys.stdout, sys.stderr)):
        # Chinese as escapes is not readable
        set_language("en")
    try:
        if lang is not None and lang not in LANGUAGES:
            raise LaunchError(
                "common.language", ExitCode.USAGE, found=lang, known=", ".join(LANGUAGES)
            )
        with redelivered(), shown_by(status_line.show):
            result = typer.main.get_command(app)(
                args=arguments, prog_name="gaudi-launch", standalone_mode=False
            )
            sys.stdout.flush()
    except LaunchError as error:
        document = listed("corrected error")(error, arguments)
        return _report(document, error.detail, as_json)
    except (KeyboardInterrupt, CommandInterruptedError):
        return _interrupted(as_json)
    except BrokenPipeError:
        # the reader went away (`| head`): it has all that it needs
        _drop_output()
        return int(ExitCode.DONE)
    except Exception as error:
        if not isinstance(error, OSError):
            return _unexpected(error, arguments, as_json, debug)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _full(error)
        if error.errno in _NO_WAY and error.filename is not None and not debug:
            return _no_way(error, as_json)
        return _unexpected(error, arguments, as_json, debug)
    if isinstance(result, int):
        return result
    return int(ExitCode.DONE)


def _drop_output() -> None:
    """Discard what could not be written to stdout: Python must not complain at exit."""
    give_up(sys.stdout)


def _full(error: OSError) -> int:
    """Return the error of a full disk.

    It is most likely that of our output, so the error goes to stderr only.
    """
    _drop_output()
    return _report(
        error_document("common.full", text("common.full", why=error.strerror), ExitCode.FAILED),
        None,
        False,
    )


def _no_way(error: OSError, as_json: bool) -> int:
    """Return the error of a path that the system does not let this user use.

    The user can name another.
    """
    if isinstance(error.filename, str | bytes):
        path = os.fsdecode(error.filename)
    else:
        path = str(error.filename)
    sentence = text("common.no_way", path=path, why=error.strerror)
    return _report(error_document("common.no_way", sentence, ExitCode.FAILED), None, as_json)


def _report(error: dict[str, Any], detail: str | None, as_json: bool) -> int:
    if as_json:
        emit_json({"schema": 1, "error": error})
    else:
        shown = painted("gaudi-launch:", ERROR, coloured=is_coloured(sys.stderr))
        sentence = folded(f"gaudi-launch: {error['message']}", sys.stderr)
        print(sentence.replace("gaudi-launch:", shown, 1), file=sys.stderr)
        for line in (*(f"  {each}" for each in error.get("commands", ())), detail):
            if line:
                print(folded(line, sys.stderr), file=sys.stderr)
    return int(error["exit_code"])


def _interrupted(as_json: bool) -> int:
    return _report(
        error_document("common.interrupted", text("common.interrupted"), ExitCode.INTERRUPTED),
        None,
        as_json,
    )


def _unexpected(error: Exception, arguments: list[str], as_json: bool, debug: bool) -> int:
    # some releases of typer vendor click and some import it, so its exceptions are known by their
    # shape
    show = getattr(error, "format_message", None)
    code = getattr(error, "exit_code", None)
    if isinstance(code, int) and show is None:  # Exit
        return code
    if type(error).__name__ == "Abort":
        return _interrupted(as_json)
    if show is not None:
        if type(error).__name__ == "NoArgsIsHelpError":
            try:
                print(show(), flush=True)
            except BrokenPipeError:
                _drop_output()
            return int(ExitCode.USAGE)
        return _report(listed("usage error")(error, arguments), None, as_json)
    import logging
    import traceback

    logging.getLogger(__name__).debug("the program failed: %s", type(error).__name__)
    trace = "".join(traceback.format_exception(error))
    sentence = text(
        "common.internal", error=f"{type(error).__name__}: {error}", path=_keep_trace(trace)
    )
    return _report(
        error_document("common.internal", sentence, ExitCode.FAILED),
        trace if debug else None,
        as_json,
    )


def _keep_trace(trace: str) -> str:
    try:
        state_dir().mkdir(parents=True, exist_ok=True)
        path = state_dir() / "last-crash.txt"
        path.write_text(trace, encoding="utf-8")
    except OSError as error:
        return f"({error.strerror})"
    return str(path)


if __name__ == "__main__":
    main()
