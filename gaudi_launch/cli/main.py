"""The program: a table of commands, each loaded when it runs, and the one place that turns errors into exits."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

import typer
import typer.core
import typer.main

# what the system says of a path that is not for us, wherever it is looked at first
_NO_WAY = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP)
# name -> (module, short help). `--help` reads this table only, so it stays quick.
COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("serve", "Start a model: cards, plan, engine, warm-up, answer."),
    "plan": ("plan", "Show every setting that serve would use, with its source and reason."),
    "render": ("render", "Write the plan as a script, a container, a unit, for Kubernetes; start nothing."),
    "doctor": ("doctor", "Check BIOS, OS, driver and cards; --fix puts right what it may."),
    "devices": ("devices", "Show the cards and who uses them; 'devices pick -n 4' chooses."),
    "warmup": ("warmup", "Predict warm-up: graphs, time, coverage; plan better buckets."),
    "migrate": ("migrate", "Turn a start-script command line into ours and say what differs."),
    "pull": ("pull", "Fetch a model from Hugging Face or ModelScope, verified, resumable."),
    "convert": ("convert", "Turn an fp8 checkpoint into one that Gaudi2 can load; resumable."),
    "calibrate": ("calibrate", "Measure a model for fp8, by the engine's own scripts; resumable."),
    "inspect": ("inspect", "Read a model folder: size, heads, experts, missing files."),
    "fit": ("fit", "On how many cards does a model fit, with which context?"),
    "capacity": ("capacity", "How many replicas, cards and nodes for a rate of requests?"),
    "cluster": ("cluster", "One engine over several hosts by Ray: plan, up, status, down."),
    "profiles": ("profiles", "List, show and check the shipped and your own profiles."),
    "engines": ("engines", "List the engines, what is installed and what each can do."),
    "ps": ("ps", "List the services: phase, uptime, requests; -a shows dead ones."),
    "status": ("status", "One service: plan, phases with times, memory, last error."),
    "logs": ("logs", "Print a service's log; -f follows it."),
    "stop": ("stop", "End services, drained first; --orphans ends what a dead launcher left."),
    "restart": ("restart", "Stop a service and start it again as it was."),
    "wait": ("wait", "Wait until a service answers."),
    "setup": ("setup", "Prepare an engine environment ('setup cpu' is the embedded engine)."),
    "ray": ("ray", "Ray Serve: print a deployment's config, check one, read the state back."),
    "check": ("check", "Ask a server what users will: models, chat, stream, long prompt, speed."),
    "chat": ("chat", "Talk with a server in the terminal."),
    "webui": ("webui", "A chat page in the browser for a server."),
    "exporter": ("exporter", "Services and cards as Prometheus metrics."),
    "bench": ("bench", "Measure a server under a load; compare two runs."),
    "why": ("why", "Explain a failed start from its log."),
    "cache": ("cache", "List, verify, prune and ship caches of compiled graphs."),
    "kube": ("kube", "What runs in a cluster: status, logs, delete, through kubectl."),
    "snapshot": ("snapshot", "Write this machine as JSON, to plan on another one."),
}

_loaded: dict[str, typer.core.TyperGroup | typer.core.TyperCommand] = {}


def _load(name: str) -> Any:
    module = importlib.import_module(f"gaudi_launch.cli.{COMMANDS[name][0]}")
    command = typer.main.get_command(module.app)
    command.name = name
    return command


class LazyGroup(typer.core.TyperGroup):
    """Lists commands from the table and imports a command's module only to run it."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        help_text = COMMANDS[cmd_name][1]
        return typer.core.TyperCommand(cmd_name, help=help_text, short_help=help_text)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, (_load(name) if name in COMMANDS else command), rest


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="One command from weights on disk to an LLM server that answers, on Intel Gaudi machines.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from gaudi_launch import __version__

        typer.echo(f"gaudi-launch {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
    lang: str = typer.Option("", "--lang", metavar="en|zh", help="Language of messages (also after a command)."),
    debug: bool = typer.Option(False, "--debug", help="Show a traceback when the program itself fails."),
) -> None:
    """Both options are taken out of the arguments by `run`, so that they may stand anywhere; here they are help."""


def _take_global_options(arguments: list[str]) -> tuple[list[str], str | None, bool]:
    """Arguments without --lang and --debug (before a bare ``--``), the language asked for, and whether to debug."""
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
    """Run the program and exit with DESIGN's codes. Every way out of the program passes here."""
    arguments = sys.argv[1:] if argv is None else argv
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # closed by the caller (`>&-`): nobody reads it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """One run of the program; the exit code."""
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import LANGUAGES, set_language

    arguments, lang, debug = _take_global_options(arguments)
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    set_language(lang)
    try:
        if lang is not None and lang not in LANGUAGES:
            raise LaunchError("common.language", ExitCode.USAGE, found=lang, known=", ".join(LANGUAGES))
        result = typer.main.get_command(app)(args=arguments, prog_name="gaudi-launch", standalone_mode=False)
        sys.stdout.flush()
    except LaunchError as error:
        return _report(error.to_json(), error.detail, as_json)
    except KeyboardInterrupt:
        return _interrupted(as_json)
    except BrokenPipeError:
        # the reader went away (`| head`): not an error
        _drop_output()
        return int(ExitCode.FAILED)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _full(error)
        if isinstance(error, OSError) and error.errno in _NO_WAY and error.filename is not None and not debug:
            return _no_way(error, as_json)
        return _unexpected(error, as_json, debug)
    return result if isinstance(result, int) else int(ExitCode.DONE)


def _drop_output() -> None:
    """What could not be written to stdout is given up: Python must not complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _full(error: OSError) -> int:
    """A disk without room, most likely below our own output, so the error goes to stderr only."""
    from gaudi_launch.errors import ExitCode
    from gaudi_launch.messages import text

    _drop_output()
    return _report(_error("common.full", text("common.full", why=error.strerror), ExitCode.FAILED), None, False)


def _no_way(error: OSError, as_json: bool) -> int:
    """A path that the system lets nobody, or this user not, use: whoever named it can name another."""
    from gaudi_launch.errors import ExitCode
    from gaudi_launch.messages import text

    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
    sentence = text("common.no_way", path=path, why=error.strerror)
    return _report(_error("common.no_way", sentence, ExitCode.FAILED), None, as_json)


def _report(error: dict[str, Any], detail: str | None, as_json: bool) -> int:
    if as_json:
        import json

        print(json.dumps({"schema": 1, "error": error}, ensure_ascii=False, indent=2))
    else:
        print(f"gaudi-launch: {error['message']}", file=sys.stderr)
        if detail:
            print(detail, file=sys.stderr)
    return int(error["exit_code"])


def _error(id: str, sentence: str, code: int) -> dict[str, Any]:
    return {"id": id, "message": sentence, "exit_code": int(code), "values": {}}


def _interrupted(as_json: bool) -> int:
    from gaudi_launch.errors import ExitCode
    from gaudi_launch.messages import text

    return _report(_error("common.interrupted", text("common.interrupted"), ExitCode.INTERRUPTED), None, as_json)


def _unexpected(error: Exception, as_json: bool, debug: bool) -> int:
    from gaudi_launch.errors import ExitCode
    from gaudi_launch.messages import text

    # some releases of typer vendor click and some import it, so its exceptions are known by their shape
    show = getattr(error, "format_message", None)
    code = getattr(error, "exit_code", None)
    if isinstance(code, int) and show is None:  # Exit
        return code
    if type(error).__name__ == "Abort":
        return _interrupted(as_json)
    if show is not None:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(show())
            return int(ExitCode.USAGE)
        context = getattr(error, "ctx", None)
        hint = f" ({context.command_path} --help)" if context is not None else ""
        return _report(_error("common.usage", show() + hint, ExitCode.USAGE), None, as_json)
    import traceback

    trace = "".join(traceback.format_exception(error))
    sentence = text("common.internal", error=f"{type(error).__name__}: {error}", path=_keep_trace(trace))
    return _report(_error("common.internal", sentence, ExitCode.FAILED), trace if debug else None, as_json)


def _keep_trace(trace: str) -> str:
    from gaudi_launch.paths import state_dir

    try:
        state_dir().mkdir(parents=True, exist_ok=True)
        path = state_dir() / "last-crash.txt"
        path.write_text(trace, encoding="utf-8")
    except OSError as error:
        return f"({error.strerror})"
    return str(path)


if __name__ == "__main__":
    main()
