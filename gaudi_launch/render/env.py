"""A plan as two files: variables to source, and the options as ``vllm serve --config`` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import yaml

from gaudi_launch.planning.plan import Plan
from gaudi_launch.render.container import no_container, positional_model, refuse_secrets, required, secrets_of
from gaudi_launch.render.records import Rendered
from gaudi_launch.render.script import as_they_stand, asked, exports, plan_words
from gaudi_launch.render.text import check_words, comments, heading

# engines that are vLLM: HabanaAI/vllm-fork@277a33cd9, @17a7946f4 and @016b6bd20 have it in vllm/utils.py
# (FlexibleArgumentParser), upstream in vllm/utils/argparse_utils.py
_READS_CONFIG = ("vllm-fork", "vllm-gaudi", "cpu")


def render(plan: Plan, environment: Mapping[str, str]) -> Rendered:
    """env.sh, and for vLLM config.yml with everything that fits into it."""
    import shlex

    no_container(plan, "env")
    check_words(plan)
    refuse_secrets(plan.command.argv)
    lines = ["# shellcheck shell=bash", *as_they_stand(plan_words(plan)), *comments(heading(plan))]
    files: dict[str, str] = {}
    if plan.engine.name in _READS_CONFIG:
        model, options, rest = as_config(plan.command.argv)
        body = yaml.safe_dump(options, allow_unicode=True, sort_keys=False, width=1 << 20) if options else "{}\n"
        files["config.yml"] = "\n".join(comments(heading(plan))) + "\n" + body
        words = [_vllm(plan.command.argv[0]), "serve", *([model] if model else []), "--config", "config.yml", *rest]
        lines += [f"# {line}" for line in shlex.join(words).splitlines()]
    lines += exports(plan.command.env)
    lines += [f"unset {name}" for name in plan.command.unset]
    lines += asked(required(secrets_of(plan, environment)))
    return Rendered({"env.sh": "\n".join(lines) + "\n", **files})


def as_config(argv: Sequence[str]) -> tuple[str | None, dict[str, str | bool], list[str]]:
    """The model, the options of the config file, and the words that such a file cannot say.

    The file is one flat mapping: an option that is given twice, or with several values, stays a word. Values are
    text, so that the engine gets exactly the plan's.
    """
    groups = _groups(argv)
    names = [group[0].partition("=")[0].replace("_", "-") for group in groups]
    model = positional_model(argv)
    options: dict[str, str | bool] = {}
    rest: list[str] = []
    for name, group in zip(names, groups, strict=True):
        word, equals, value = group[0].partition("=")
        given = [value, *group[1:]] if equals else group[1:]
        once = names.count(name) == 1 and len(given) <= 1 and word.startswith("--")
        if name == "--model" and len(given) == 1 and names.count(name) == 1:
            model = given[0]
        elif once and (not given or given[0] not in ("True", "False")):
            options[word[2:]] = given[0] if given else True
        else:
            rest += group
    return model, options, rest


def _groups(argv: Sequence[str]) -> list[list[str]]:
    """Each option with the words behind it; what stands in front of the first option is the program."""
    groups: list[list[str]] = []
    for word in argv[1:]:
        # "-1" is a value, "-tp" an option
        option = word.startswith("-") and not word[1:2].isdigit() and word != "-"
        if option:
            groups.append([word])
        elif groups:
            groups[-1].append(word)
    # "-m MODULE" starts the interpreter's module
    return groups[1:] if groups and groups[0][0] == "-m" else groups


def _vllm(interpreter: str) -> str:
    """vLLM's own program, which lies beside its interpreter."""
    folder = PurePosixPath(interpreter).parent
    return "vllm" if str(folder) == "." else str(folder / "vllm")
