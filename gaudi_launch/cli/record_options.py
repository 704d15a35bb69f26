"""Options of a command made from the fields of a record, and read back.

They are read as the same record.

The fields are those of `gaudi_launch.core.base.fields`. A parameter whose default is a record is
replaced by one option per field::

    @app.command(cls=RecordCommand) def plan(as_json: bool = typer.Option(False, "--json"), options:
    LaunchOptions = record(LaunchOptions())): ...
"""

from __future__ import annotations

import os
from dataclasses import Field, fields
from typing import TYPE_CHECKING, Any

import typer
import typer.main
from typer.models import ParamMeta

from gaudi_launch.cli.command_app import HelpCommand
from gaudi_launch.cli.console import say
from gaudi_launch.cli.foreign_options import options_end
from gaudi_launch.cli.positional import only_model
from gaudi_launch.cli.table import COMPLETES, listed
from gaudi_launch.core.base.fields import Option, option_of, options_of
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.planning.launch_options import LaunchOptions

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


LAUNCH_OPTIONS = "Takes the launch options of plan, too: see 'gaudi-launch plan --help-all'."


def record(empty: DataclassInstance) -> Any:
    """Return the default of a parameter for the fields of ``empty``.

    It is for a `RecordCommand`.
    """
    # the parser only prevents typer from inspecting the type: no text is ever read with it
    return typer.Option(empty, parser=str)


class RecordCommand(HelpCommand):
    """A command that replaces record parameters by the options of their fields.

    The command gets the record that the options fill. Everything else is typer's: help, completion,
    usage errors.
    """

    def __init__(
        self, name: str | None, *, params: list[Any] | None = None, **settings: Any
    ) -> None:
        self._records: dict[str, type[DataclassInstance]] = {}
        # fields without names: the last is for what follows ``--``
        self._rest: list[str] = []
        expanded: list[Any] = []
        for param in params or []:
            if not hasattr(param.default, "__dataclass_fields__"):
                expanded.append(param)
                continue
            kind = type(param.default)
            self._records[str(param.name)] = kind
            self._rest += [each.name for each in fields(kind) if _is_rest(each)]
            expanded += parameters_of(kind)
        # one argument takes all that belongs to no option
        expanded = [each for each in expanded if each.name not in self._rest[1:]]
        super().__init__(name, params=expanded, **settings)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the first ``--``.

        An engine's command in place of the model is read as our options.

        What follows it fills the last field without names. click drops the ``--`` and would mix
        both. What is before it and belongs to no option fills another field without names, else
        the ``bare`` option, which takes one.
        """
        rest = self._rest
        if not rest or ctx.resilient_parsing:
            return list(super().parse_args(ctx, args))
        end = options_end(args)
        left = list(super().parse_args(ctx, args[:end]))
        strays = tuple(ctx.params.get(rest[0]) or ())
        ctx.params[rest[-1]] = args[end + 1 :]
        if len(rest) > 1:
            ctx.params[rest[0]] = strays
            return left
        bare = self._bare()
        if len(strays) == 1 and " " in strays[0].strip():
            converted = _of_engine(strays[0])
            if converted is not None:
                options = [word for word in args[:end] if word != strays[0]]
                return self.parse_args(ctx, [*options, *converted, *args[end + 1 :]])
        if strays:
            given = mapped(ctx.params.get, bare)
            named = only_model(strays, given=given, typed=args[:end], options=self._options())
            if bare is not None:
                ctx.params[bare] = named
        return left

    @property
    def passes_options(self) -> bool:
        """Return True if what follows ``--`` goes to an engine."""
        return bool(self._rest)

    def _bare(self) -> str | None:
        """Return the name of the field that one argument without an option fills."""
        for kind in self._records.values():
            for each in fields(kind):
                option = option_of(each)
                if option is not None and option.bare:
                    return each.name
        return None

    def _options(self) -> dict[str, str]:
        """Return each spelling of an option with its metavar; "" for a switch."""
        found: dict[str, str] = {}
        for param in self.params:
            takes_none = getattr(param, "is_flag", False) or param.param_type_name == "argument"
            metavar = "" if takes_none else str(param.metavar or "VALUE")
            for spelling in (*param.opts, *param.secondary_opts):
                if spelling.startswith("-"):
                    found[spelling] = metavar
        return found

    def invoke(self, ctx: Any) -> Any:
        for name, kind in self._records.items():
            ctx.params[name] = _with_saved_plan(_filled(kind, ctx.params))
        return super().invoke(ctx)


class ModelCommand(RecordCommand):
    """A command whose first argument is a model, which may be given with -w instead."""

    def __init__(
        self, name: str | None, *, params: list[Any] | None = None, **settings: Any
    ) -> None:
        model = next(each for each in parameters_of(LaunchOptions) if each.name == "model")
        model.expose_value, model.rich_help_panel = False, None
        self._spellings = tuple(model.opts)
        super().__init__(name, params=[*(params or []), model], **settings)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the value of -w as the first argument."""
        for at, word in enumerate(args[: options_end(args)]):
            name, equals, text = word.partition("=")
            if name not in self._spellings:
                continue
            found = [text] if equals else args[at + 1 : at + 2]
            rest = [*args[:at], *args[at + 2 - len(equals) :]]
            if found:
                return super().parse_args(ctx, [*found, *rest])
        return super().parse_args(ctx, args)


class BriefCommand(RecordCommand):
    """A command whose help names the launch options by one line; --plan is shown."""

    takes_launch_options = True
    shown: tuple[str, ...] = ("plan_file",)

    def __init__(self, name: str | None, *, help: str | None = None, **settings: Any) -> None:
        super().__init__(name, help=f"{help}\n\n{LAUNCH_OPTIONS}", **settings)
        if os.environ.get(COMPLETES):
            return
        launch = {name for name, option in options_of(LaunchOptions).items() if option.names}
        params: list[Any] = self.params
        for param in params:
            param.hidden = param.hidden or param.name in launch - {*self.shown}


class ReplicasCommand(BriefCommand):
    """A `BriefCommand` for a target that has replicas of a model."""

    shown = ("plan_file", "replicas", "target_ongoing")


def _is_rest(field: Field[Any]) -> bool:
    option = option_of(field)
    return option is not None and not option.names


def parameters_of(kind: type[DataclassInstance]) -> list[Any]:
    """Return the options of a record's fields as typer makes them."""
    found = []
    for field in fields(kind):
        option = option_of(field)
        if option is not None:
            found.append(typer.main.get_click_param(_meta(field, option))[0])
    return found


def _meta(field: Field[Any], option: Option) -> ParamMeta:
    """Return the field as typer reads a parameter of a function."""
    if not option.names:
        argument = typer.Argument(None, metavar=option.metavar, help=option.help)
        return ParamMeta(name=field.name, default=argument, annotation=list[str])
    kind: Any = str
    if option.switch:
        kind = bool
    elif option.many:
        kind = list[str]
    default = typer.Option(
        _default(field, option),
        *option.names,
        help=option.help,
        rich_help_panel=option.panel,
        metavar=option.metavar or None,
    )
    return ParamMeta(name=field.name, default=default, annotation=kind)


def _default(field: Field[Any], option: Option) -> Any:
    if option.many:
        return []
    if option.switch:
        return False
    return field.default


def _with_saved_plan(options: DataclassInstance) -> DataclassInstance:
    """Return launch options with those of their --plan FILE; other records unchanged."""
    if not isinstance(options, LaunchOptions) or options.plan_file is None:
        return options
    from gaudi_launch.core.launch.saved_plan import merged

    return merged(options)


def _filled(kind: type[DataclassInstance], values: dict[str, Any]) -> DataclassInstance:
    """Return the record that ``values`` fill, and remove its fields from them."""
    taken: dict[str, Any] = {}
    for field in fields(kind):
        option = option_of(field)
        if option is None:
            continue
        value = values.pop(field.name)
        if option.many:
            value = tuple(value or ())
        elif option.switch and not value:
            # None where the switch has a third state
            value = field.default
        taken[field.name] = value
    return kind(**taken)


def _of_engine(text: str) -> list[str] | None:
    """Return an engine's command as our arguments.

    Its variables are set, its notes printed.
    """
    import os
    from pathlib import Path

    found = None if Path(text).exists() else listed("start command")(text)
    if found is None:
        return None
    words: list[str]
    words, converted = found
    os.environ.update(converted.variables)
    notes = converted.notes
    if converted.variables:
        names = " ".join(f"{name}={value}" for name, value in converted.variables.items())
        notes = (*notes, message("migrate.variables", names=names))
    for note in notes:
        say(note.render())
    return words
