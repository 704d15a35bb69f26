"""The application of one command module: our help, without completion options."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import typer
import typer.core
import typer.main

from gaudi_launch.cli.console import say
from gaudi_launch.cli.first_options import first_options, path_of
from gaudi_launch.cli.foreign_options import in_our_names, options_end
from gaudi_launch.cli.table import COMPLETES, SUBCOMMANDS, listed, load_command
from gaudi_launch.cli.translated import translated
from gaudi_launch.core.base.members import ForeignMember, foreign, refused

_Function = TypeVar("_Function", bound=Callable[..., Any])
# options of most commands
JSON = typer.Option(False, "--json", help="One JSON object on stdout.")
OUTPUT_JSON = typer.Option(
    False, "--json", help="One JSON object on stdout.", rich_help_panel="Output"
)
_HELP = {"help_option_names": ["-h", "--help"]}


class HelpCommand(typer.core.TyperCommand):
    """A command with our help and with values for completion."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        _attach_values(self)

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Return the context of the arguments, with our names of other tools' options."""
        known = [spelling for param in self.params for spelling in param.opts]
        return super().make_context(info_name, in_our_names(args, known), parent, **extra)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, but take no option as the value of the one before it."""
        if not ctx.resilient_parsing:
            _refuse_missing_values(ctx, self.get_params(ctx), args)
        return list(super().parse_args(ctx, args))

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the options that begin so, with their help."""
        return _completions(super().shell_complete(ctx, incomplete))

    def get_help(self, ctx: Any) -> str:
        """Return the short help where there is one, else all of it."""
        return _shown(self, ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters with --help, and with --help-all for a short help.

        A short help leaves some parameters out.
        """
        return _with_help_all(ctx, list(super().get_params(ctx)))


def _completions(items: list[Any]) -> list[Any]:
    """Return completions with their help in the language in force, for any shell.

    typer doubles an apostrophe (typer/_completion_classes.py), which zsh reads as none.
    """
    for item in items:
        item.help = translated(item.help or "").replace("'", "\u02bc") or None
    return items


class HelpGroup(typer.core.TyperGroup):
    """A command that has commands, with our help and with values for completion."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _attach_values(self)

    @property
    def entry_points(self) -> str:
        """Return the entry points of other packages' commands; "" for none."""
        return {"render": "targets"}.get(str(self.name), "")

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the commands and options that begin so, with their help."""
        return _completions(super().shell_complete(ctx, incomplete))

    def get_help(self, ctx: Any) -> str:
        """Return the help with the commands below it."""
        self.report_refused(ctx)
        return _shown(self, ctx)

    def report_refused(self, ctx: Any) -> None:
        """Print which commands of other packages are not used."""
        if self.entry_points:
            for each in refused(self.entry_points, self.own_commands(ctx)):
                say(each.render())

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands of the module, of the table, and of other packages."""
        own = self.own_commands(ctx)
        return [*own, *foreign(self.entry_points, own)] if self.entry_points else own

    def own_commands(self, ctx: Any) -> list[str]:
        """Return the commands of the module, and those that the table adds."""
        return [*super().list_commands(ctx), *self._added()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name; one that the table adds is imported now."""
        module = self._added().get(cmd_name)
        if module is not None:
            return load_command(cmd_name, module)
        return super().get_command(ctx, cmd_name) or self.foreign_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name and the command of the arguments, and the other arguments.

        A command of another package is imported now. Raises LaunchError (FAILED).
        """
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, ForeignCommand):
            command = command.loaded()
        return name, command, rest

    def foreign_command(self, ctx: Any, name: str) -> ForeignCommand | None:
        """Return the command of another package by its name, not imported yet."""
        if not self.entry_points:
            return None
        found = foreign(self.entry_points, self.own_commands(ctx)).get(name)
        return ForeignCommand(found) if found is not None else None

    def _added(self) -> dict[str, str]:
        pairs = ((name.partition(" "), module) for name, module in SUBCOMMANDS.items())
        return {name: module for (group, _, name), module in pairs if group == self.name}

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters with --help, and with --help-all for a short help.

        A short help leaves some parameters out.
        """
        params = list(super().get_params(ctx))
        if path_of(ctx) == "":
            params.insert(len(params) - 1, _help_all("Show all commands and options."))
        return _with_help_all(ctx, params)

    def command_sections(self, ctx: Any) -> list[tuple[str, list[tuple[str, str]]]]:
        """Return the English titles, each with its commands and their English help."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        return [
            (
                "Commands",
                [(name, str(each.help or "")) for name, each in found if each and not each.hidden],
            )
        ]


class ForeignCommand(typer.core.TyperCommand):
    """A command of another package, as a list shows it."""

    def __init__(self, found: ForeignMember) -> None:
        super().__init__(found.name, help=f"From the package {found.package}.")
        self.found = found

    def loaded(self) -> Any:
        """Return the command itself. Raises LaunchError (FAILED)."""
        command = typer.main.get_command(self.found.load())
        command.name = self.found.name
        return command


class CommandApp(typer.Typer):
    """A `typer.Typer` for a command module.

    Completion belongs to the program, not to each command.
    """

    def __init__(self, **settings: Any) -> None:
        settings = {
            "cls": HelpGroup,
            "context_settings": _HELP,
            "add_completion": False,
            **settings,
        }
        super().__init__(**settings)

    def command(
        self,
        name: str | None = None,
        *,
        cls: type[typer.core.TyperCommand] | None = None,
        **settings: Any,
    ) -> Callable[[_Function], _Function]:
        """Register a command; its class is `HelpCommand` where none is given."""
        return super().command(name, cls=cls or HelpCommand, **settings)


def _attach_values(command: Any) -> None:
    """Give the parameters their values, only when a shell requests completions."""
    if not os.environ.get(COMPLETES):
        return
    module = getattr(command.callback, "__module__", "")
    for param in command.params:
        listed("completion")(param, module)


def _refuse_missing_values(ctx: Any, params: list[Any], args: list[str]) -> None:
    """Raise a usage error for an option without its value.

    It is the last argument, or in front of another option.
    """
    known = {spelling for param in params for spelling in (*param.opts, *param.secondary_opts)}
    with_value = {
        spelling
        for param in params
        if param.param_type_name == "option" and not param.is_flag and not param.count
        for spelling in param.opts
    }
    end = options_end(args)
    at = 0
    while at < end:
        if args[at] not in with_value:
            at += 1
            continue
        if at + 1 >= end or args[at + 1] in known:
            ctx.fail(f"Option {args[at]!r} requires an argument.")
        at += 2


def _shown(command: Any, ctx: Any, *, everything: bool = False) -> str:
    return str(listed("help")(command, ctx, everything=everything))


def _with_help_all(ctx: Any, params: list[Any]) -> list[Any]:
    if first_options(path_of(ctx)):
        params.insert(len(params) - 1, _help_all("Show all options."))
    return params


def _help_all(text: str) -> Any:
    return typer.core.TyperOption(
        param_decls=["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all,
        help=text,
    )


def _show_all(ctx: Any, param: Any, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    if isinstance(ctx.command, HelpGroup):
        ctx.command.report_refused(ctx)
    typer.echo(_shown(ctx.command, ctx, everything=True))
    ctx.exit()
