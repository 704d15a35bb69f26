"""A plan as two files: variables to source, and options for ``--config``.

The latter is read by ``vllm serve``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

import yaml

from gaudi_launch.planning.engine_args import Argument, EngineArgs, positional_model
from gaudi_launch.planning.plan import Plan
from gaudi_launch.render.plan_container import no_container, refuse_secrets, required, secrets_of
from gaudi_launch.render.rendered import Rendered
from gaudi_launch.render.script import as_they_stand, asked, exports, plan_words
from gaudi_launch.render.text import check_words, comments, heading


def render(plan: Plan, environment: Mapping[str, str]) -> Rendered:
    """Return env.sh, and for vLLM config.yml with everything that fits into it."""
    import shlex

    no_container(plan, "env")
    check_words(plan)
    refuse_secrets(plan.args)
    lines = ["# shellcheck shell=bash", *as_they_stand(plan_words(plan)), *comments(heading(plan))]
    files: dict[str, str] = {}
    # HabanaAI/vllm-fork@277a33cd9, @17a7946f4 and @016b6bd20: vllm/utils.py
    # (FlexibleArgumentParser), upstream in vllm/utils/argparse_utils.py
    if plan.engine.config_file:
        model, options, rest = as_config(plan.args)
        body = "{}\n"
        if options:
            body = yaml.safe_dump(options, allow_unicode=True, sort_keys=False, width=1 << 20)
        files["config.yml"] = "\n".join(comments(heading(plan))) + "\n" + body
        words = [_vllm(plan.command.argv[0]), "serve"]
        if model:
            words.append(model)
        words += ["--config", "config.yml", *rest]
        lines += [f"# {line}" for line in shlex.join(words).splitlines()]
    lines += exports(plan.command.env)
    lines += [f"unset {name}" for name in plan.command.unset]
    lines += asked(required(secrets_of(plan, environment)))
    return Rendered({"env.sh": "\n".join(lines) + "\n", **files})


def as_config(args: EngineArgs) -> tuple[str | None, dict[str, str | bool], list[str]]:
    """Return the model, the options of the config file, and the other arguments.

    The file is one flat mapping: an option that is given twice, or with several values, stays an
    argument. Values are text, so that the engine gets exactly the plan's.
    """
    model = positional_model(args.to_argv())
    options: dict[str, str | bool] = {}
    rest: list[str] = []
    for place, argument in enumerate(args.every):
        loose_value = any(after.positional for after in args.every[place + 1 : place + 2])
        fits = _fits_config(argument, args) and not loose_value
        if argument.name == "--model" and fits:
            model = argument.value
        elif fits:
            written = argument.words[0].partition("=")[0]
            # a bare flag has no value
            options[written[2:]] = next(iter(argument.values), True)
        else:
            rest += argument.words
    return model, options, rest


def _fits_config(argument: Argument, args: EngineArgs) -> bool:
    """Return whether the file can contain this option.

    It must be given once, by its long name, with one value or none.
    """
    if argument.positional or argument.key or len(argument.values) > 1:
        return False
    if not argument.words[0].startswith("--") or len(args.given(argument.name)) > 1:
        return False
    # these two would be read as the file's true and false
    return argument.value not in ("True", "False")


def _vllm(interpreter: str) -> str:
    """Return vLLM's program, which is next to its interpreter."""
    folder = PurePosixPath(interpreter).parent
    if str(folder) == ".":
        return "vllm"
    return str(folder / "vllm")
