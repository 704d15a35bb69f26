"""Mutants of a module: mutmut's operators, without those that no test can notice.

The operators are those of mutmut (mutmut 3.8.1:mutmut/mutation/mutators.py): another operator,
another number, None for an argument or a value, one argument fewer, another text, the other branch.
mutmut itself mutates neither decorated functions (properties, cached functions) nor constants, and
it starts an interpreter for each mutant; so only its operators are used.

Left out by rule, as no test of behaviour shows them:

- docstrings, annotations, aliases of types, `if TYPE_CHECKING:`, `if __name__ == "__main__":`
- arguments of `cast`, `TypeVar` and `NewType`
- arguments of a log call (`_log.debug(...)`): the log is for maintainers
- arguments of `@dataclass(...)` (`frozen=True`) and of `@lru_cache(...)`
- the arguments `encoding=` (UTF-8 on every machine of the tests), `strict=` and `stacklevel=`
- texts of AssertionError, NotImplementedError, RuntimeError and TypeError, which show a defect
- the second and third text of mutmut for one string (lower and upper case): it has one mutant
- what does not compile
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_arg_removal, operator_string

_LOGGERS = {"_log", "log", "logger", "logging"}
_LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
_FOR_TYPES = {"cast", "TypeVar", "NewType", "ParamSpec"}
_DEFECTS = {"AssertionError", "NotImplementedError", "RuntimeError", "TypeError"}
_SAME_EFFECT = {"encoding", "strict", "stacklevel"}
_ONLY_DECLARED = {"dataclass", "lru_cache"}
_TYPE_NAME = re.compile(r"_?[A-Z][a-z]\w*")
# code of other interpreters: its tests start one, and that one reads the original
_ELSEWHERE = {"runtime", "pods"}


@dataclass(frozen=True)
class Function:
    """The outermost function around a mutant: name and first line."""

    name: str
    line: int


@dataclass(frozen=True)
class Mutant:
    """One change of a module, between two places (line from 1, column from 0).

    ``function`` is None for code that runs at the import.
    """

    path: Path
    source: str
    start: tuple[int, int]
    end: tuple[int, int]
    operator: str
    function: Function | None
    module: Any
    old: Any
    new: Any

    @cached_property
    def text(self) -> str:
        """Return the text of the changed module."""
        (first, first_column), (last, last_column) = self.start, self.end
        lines = self.source.splitlines(keepends=True)
        before = "".join(lines[: first - 1]) + lines[first - 1][:first_column]
        after = lines[last - 1][last_column:] + "".join(lines[last:])
        replaced = self.source[len(before) : len(self.source) - len(after)]
        for old, new in _written(self.module, self.old, self.new):
            if old == replaced:
                return f"{before}{new}{after}"
        return str(self.module.deep_replace(self.old, self.new).code)

    @property
    def lines(self) -> range:
        """Return the lines of the changed code, from 1."""
        return range(self.start[0], self.end[0] + 1)

    @property
    def differs(self) -> bool:
        """Return True if the changed text compiles and is not the original."""
        try:
            compile(self.text, str(self.path), "exec")
        except (SyntaxError, ValueError):
            return False
        return self.text != self.source

    @property
    def diff(self) -> str:
        """Return the changed lines, before and after."""
        lines = difflib.unified_diff(
            self.source.splitlines(), self.text.splitlines(), lineterm="", n=0
        )
        return "\n".join([*lines][3:])


def modules_of(path: Path) -> list[Path]:
    """Return the modules of a package, or the module.

    Those that another interpreter runs are left out.
    """
    if path.is_file():
        return [path]
    found = sorted(path.rglob("*.py"))
    return [each for each in found if not _ELSEWHERE & set(each.relative_to(path).parts)]


def mutants_of(path: Path) -> list[Mutant]:
    """Return the mutants of a module in the order of its lines."""
    source = path.read_text(encoding="utf-8")
    wrapper = MetadataWrapper(cst.parse_module(source))
    reader = _Reader(path, source, wrapper.module, wrapper.resolve(PositionProvider))
    return [*reader.below(wrapper.module, (), None)]


@dataclass
class _Reader:
    path: Path
    source: str
    module: Any
    positions: Any

    def below(
        self, node: Any, names: tuple[str, ...], function: Function | None
    ) -> Iterator[Mutant]:
        """Yield the mutants of a node and of what it consists of."""
        if _left_out(node):
            return
        yield from self._of(node, function)
        if isinstance(node, cst.ClassDef):
            names = (*names, node.name.value)
        for child in node.children:
            inside = function
            if isinstance(node, cst.FunctionDef) and child is node.body and function is None:
                inside = Function(".".join((*names, node.name.value)), self._first_line(node))
            yield from self.below(child, names, inside)

    def _of(self, node: Any, function: Function | None) -> Iterator[Mutant]:
        for kind, operator in mutation_operators:
            if not isinstance(node, kind):
                continue
            found = list(operator(node))
            if operator is operator_string:
                found = found[:1]
            if operator is operator_arg_removal:
                found = [each for each in found if _changed_name(node, each) not in _SAME_EFFECT]
            place = self.positions[node]
            for new in found:
                yield Mutant(
                    self.path,
                    self.source,
                    (place.start.line, place.start.column),
                    (place.end.line, place.end.column),
                    operator.__name__.removeprefix("operator_"),
                    function,
                    self.module,
                    node,
                    new,
                )

    def _first_line(self, function: Any) -> int:
        """Return the line that Python records for a function: its first decorator."""
        first = function.decorators[0] if function.decorators else function
        return int(self.positions[first].start.line)


def _written(module: Any, old: Any, new: Any) -> Iterator[tuple[str, str]]:
    """Yield the code before and after, in three forms.

    They are as written, without spaces around, and without parentheses.

    libcst's positions leave out the parentheses around an expression and the spaces around an
    operator, and its code has both.
    """
    before, after = module.code_for_node(old), module.code_for_node(new)
    yield before, after
    yield before.strip(), after.strip()
    if getattr(old, "lpar", ()):
        bare = module.code_for_node(old.with_changes(lpar=(), rpar=()))
        same = getattr(new, "lpar", ()) is old.lpar
        yield bare, module.code_for_node(new.with_changes(lpar=(), rpar=())) if same else after


def _left_out(node: Any) -> bool:
    """Return True for code whose mutants no test can notice."""
    if isinstance(node, cst.Annotation):
        return True
    if isinstance(node, cst.Decorator):
        return _name(node.decorator) in _ONLY_DECLARED
    if isinstance(node, cst.Call):
        return _unnoticed_call(node)
    if isinstance(node, cst.Arg):
        return node.keyword is not None and node.keyword.value in _SAME_EFFECT
    if isinstance(node, cst.Expr):
        return isinstance(node.value, (cst.SimpleString, cst.ConcatenatedString))
    if isinstance(node, cst.If):
        return _is_for_types_or_a_program(node.test)
    return isinstance(node, cst.Assign) and _is_an_alias(node)


def _unnoticed_call(node: Any) -> bool:
    name = _name(node)
    if isinstance(node.func, cst.Attribute) and name in _LEVELS:
        return _name(node.func.value) in _LOGGERS
    return name in _FOR_TYPES or name in _DEFECTS


def _is_for_types_or_a_program(test: Any) -> bool:
    if isinstance(test, cst.Comparison):
        return _name(test.left) == "__name__"
    return _name(test) == "TYPE_CHECKING"


def _is_an_alias(node: Any) -> bool:
    """Return True for `Kind = Literal[...]` and `Hits = dict[...]`."""
    name = _name(node.targets[0].target)
    if name == "__all__":
        return True
    of_types = isinstance(node.value, (cst.Subscript, cst.BinaryOperation))
    return of_types and _TYPE_NAME.fullmatch(name) is not None


def _name(node: Any) -> str:
    """Return the last part of a name: `debug` of `_log.debug(...)`."""
    if isinstance(node, cst.Call):
        return _name(node.func)
    if isinstance(node, cst.Attribute):
        return str(node.attr.value)
    return str(node.value) if isinstance(node, cst.Name) else ""


def _changed_name(call: Any, changed: Any) -> str:
    """Return the name of the argument that changed or is removed; "" for none."""
    kept = {id(argument) for argument in changed.args}
    for argument in call.args:
        if id(argument) not in kept:
            return argument.keyword.value if argument.keyword is not None else ""
    return ""
