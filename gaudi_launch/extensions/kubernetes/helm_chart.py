"""The same objects as a Helm chart: templates, values, and a schema of these.

Helm's template language is used only where a `Knob` or a `Name` was. All else, braces included, is
literal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.core.render.yaml_text import documents, dump
from gaudi_launch.extensions.kubernetes.chart_values import (
    Checksum,
    Knob,
    Name,
    TemplateText,
    knobs_of,
    plain,
)
from gaudi_launch.extensions.kubernetes.documents import header, notes, parts_of
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from gaudi_launch.extensions.kubernetes.schema_check import check
from gaudi_launch.extensions.kubernetes.target import ServedModel

_ENABLED = "enabled"
# values to which the user of a chart may add keys
_OPEN = ("nodeSelector", "limits", "requests")


def chart(models: Sequence[ServedModel], cluster: KubernetesOptions) -> Rendered:
    """Return a chart with one template per object.

    Every name begins with the name of the release, so that two releases can coexist. Raises
    LaunchError for what Kubernetes would refuse.
    """
    release = Name(cluster.release)
    parts = parts_of(models, cluster, release)
    check([plain(part) for _, part in parts])
    values: dict[str, Any] = {}
    for served in models:
        _put(values, ("models", served.key, _ENABLED), True)
    files: dict[str, str] = {}
    for key, part in parts:
        for knob in knobs_of(part):
            _put(values, knob.path, knob.default)
        file = _file(str(part["kind"]), key, part["metadata"]["name"].suffix)
        files[f"templates/{file}"] = template(_kept(part), key)
    values = {name: values[name] for name in sorted(values, key=lambda name: name != "models")}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **_part(values, "")}
    about = {
        "apiVersion": "v2",
        "name": cluster.release,
        "description": "Made by gaudi-launch render kubernetes --helm",
        "type": "application",
        "version": "0.1.0",
        "kubeVersion": ">=1.27.0-0",
    }
    first = {
        "Chart.yaml": dump(about),
        "values.yaml": documents(
            [dump(values)], header(models, cluster, "helm install NAME FOLDER")
        ),
        "values.schema.json": json.dumps(schema, indent=2) + "\n",
    }
    return Rendered({**first, **files}, notes=notes(models, cluster, release))


def _file(kind: str, key: str, suffix: str) -> str:
    """Return the name of an object's template.

    ``suffix`` follows the release in the object's name.
    """
    words = [kind.lower(), key]
    if suffix != key:
        words.append(suffix)
    return "-".join(filter(None, words)) + ".yaml"


def _kept(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the annotation by which a PVC outlives its release.

    Its content took hours to create.
    """
    if part["kind"] != "PersistentVolumeClaim":
        return part
    metadata = {**part["metadata"], "annotations": {"helm.sh/resource-policy": "keep"}}
    return {**part, "metadata": metadata}


def _put(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values.setdefault(path[-1], value)


def template(part: Mapping[str, Any], key: str) -> str:
    """Return one object as a template.

    For a model that is not enabled it renders nothing.
    """
    marks = _Marks(json.dumps(plain(part), ensure_ascii=False))
    text = dump(marks.into(part))
    text = re.sub(r"\{\{|\}\}", lambda found: '{{ "' + found.group() + '" }}', text)
    text = marks.out_of(text)
    if not key:
        return text
    asked = _value(("models", key, _ENABLED))
    return f"{{{{- if {asked} }}}}\n{text}{{{{- end }}}}\n"


class _Marks:
    """Placeholders for knobs while YAML is written.

    None of them occurs in the text itself.
    """

    def __init__(self, text: str) -> None:
        number = 0
        while (start := f"KNOB{number}x") in text:
            number += 1
        self._start = start
        self._found: list[Knob | Name | Checksum] = []

    def into(self, part: Any) -> Any:
        if isinstance(part, (Knob, Name, Checksum)):
            self._found.append(part)
            return f"{self._start}{len(self._found) - 1}x"
        if isinstance(part, TemplateText):
            return "".join(
                word if isinstance(word, str) else self.into(word) for word in part.parts
            )
        if isinstance(part, Mapping):
            return {key: self.into(value) for key, value in part.items()}
        if isinstance(part, (list, tuple)):
            return [self.into(item) for item in part]
        return part

    def out_of(self, text: str) -> str:
        return "".join(self._line(line) for line in text.splitlines(keepends=True))

    def _line(self, line: str) -> str:
        alone = re.match(rf"^( *)((?:- )?)((?:[^\s:]+: )?){self._start}(\d+)x\n$", line)
        if alone:
            indent, item, name, number = alone.groups()
            found = self._found[int(number)]
            if isinstance(found, Knob):
                return self._knob(found, indent, item, name)
        return re.sub(
            rf"{self._start}(\d+)x",
            lambda mark: self._inline(self._found[int(mark.group(1))]),
            line,
        )

    @staticmethod
    def _knob(found: Knob, indent: str, item: str, name: str) -> str:
        """Return the line of a knob that is all of a value."""
        if found.form == "block":
            deep = len(indent) + len(item) + 2
            return f"{indent}{item}{name}{{{{- toYaml {_value(found.path)} | nindent {deep} }}}}\n"
        # a text is in quotes
        ending = "int" if found.form == "number" else "quote"
        return f"{indent}{item}{name}{{{{ {_value(found.path)} | {ending} }}}}\n"

    @staticmethod
    def _inline(found: Knob | Name | Checksum) -> str:
        if isinstance(found, Knob):
            return f"{{{{ {_value(found.path)} }}}}"
        if isinstance(found, Checksum):
            file = f"/{_file('ConfigMap', '', found.suffix)}"
            return (
                f"{{{{ include (print $.Template.BasePath {json.dumps(file)}) $ | sha256sum | "
                "quote }}"
            )
        most = found.most - len(found.tail)
        return f'{{{{ .Release.Name | trunc {most} | trimSuffix "-" }}}}{found.tail}'


def _value(path: Sequence[str]) -> str:
    return "(index .Values " + " ".join(json.dumps(name) for name in path) + ")"


def _part(value: Any, name: str) -> dict[str, Any]:
    if isinstance(value, Mapping):
        found: dict[str, Any] = {"type": "object"}
        if name in _OPEN:
            kinds = ["string", "number", "boolean", "object"]
            return {**found, "additionalProperties": {"type": kinds}}
        known = {key: _part(part, key) for key, part in value.items()}
        if not name:
            # helm itself adds "global" to the values of every chart
            known["global"] = {"type": "object"}
        return {**found, "properties": known, "additionalProperties": False}
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer"}
    if isinstance(value, (list, tuple)):
        return {"type": "array"}
    return {"type": "string"}
