"""Make profiles/kubernetes/schemas.json: the valid keys of rendered objects.

    python scripts/kubernetes_schemas.py CORE_FOLDER CRD.yaml... > profiles/kubernetes/schemas.json

CORE_FOLDER is a folder of the package kubernetes-validate
(``kubernetes-json-schema/v1.32.0-local-strict``), the rest are CustomResourceDefinitions as
published (profiles/kubernetes/SOURCES.md). Descriptions are dropped, objects are closed, equal
parts are stored once. The result is JSON Schema with few keywords: type, properties,
additionalProperties, items, required, enum, pattern, limits of lengths and numbers, $ref.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

CORE = {
    "apps/v1 Deployment": "deployment-apps-v1",
    "v1 Service": "service-v1",
    "v1 ConfigMap": "configmap-v1",
    "v1 PersistentVolumeClaim": "persistentvolumeclaim-v1",
    "v1 Namespace": "namespace-v1",
    "policy/v1 PodDisruptionBudget": "poddisruptionbudget-policy-v1",
    "autoscaling/v2 HorizontalPodAutoscaler": "horizontalpodautoscaler-autoscaling-v2",
    "networking.k8s.io/v1 Ingress": "ingress-networking-v1",
}
_METADATA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        **{
            name: {"type": "object", "additionalProperties": {"type": "string"}}
            for name in ("labels", "annotations")
        },
    },
}
_LIMITS = ("minLength", "maxLength", "minItems", "minimum", "maximum")
# a part shorter than this is written inline
_SHARED_FROM = 120


def _is_pattern(text: str) -> bool:
    """Return False for an expression of Go that Python refuses."""
    try:
        re.compile(text)
    except re.error:
        return False
    return True


class Maker:
    """Schemas by kind, with their equal parts in ``defs``."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions
        self._known: dict[str, dict[str, Any]] = {}
        self.defs: dict[str, Any] = {}

    def shared(self, schema: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(schema, sort_keys=True)
        if len(text) < _SHARED_FROM:
            return schema
        key = hashlib.sha256(text.encode()).hexdigest()[:8]
        self.defs[key] = schema
        return {"$ref": f"#/$defs/{key}"}

    def small(self, schema: dict[str, Any], top: bool = False) -> dict[str, Any]:
        """Return the same schema with few keywords."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            if name not in self._known:
                self._known[name] = self.small(self._definitions[name])
            return self._known[name]
        if schema.get("x-kubernetes-int-or-string") or any(
            "type" in part for part in schema.get("oneOf", ())
        ):
            # both a count with its unit and a port by number or name are written either way
            return {"type": ["integer", "string"]}
        kinds = schema.get("type")
        kinds = (
            [k for k in kinds if k != "null"]
            if isinstance(kinds, list)
            else [kinds]
            if kinds
            else []
        )
        found: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}
        if "properties" in schema:
            inner = {
                name: part
                for name, part in schema["properties"].items()
                if not (top and name == "status")
            }
            found["properties"] = {
                name: _METADATA if top and name == "metadata" else self.small(part)
                for name, part in sorted(inner.items())
            }
            if not schema.get("x-kubernetes-preserve-unknown-fields"):
                found["additionalProperties"] = False
        elif isinstance(schema.get("additionalProperties"), dict):
            found["additionalProperties"] = self.small(schema["additionalProperties"])
        if isinstance(schema.get("items"), dict):
            found["items"] = self.small(schema["items"])
        enum = [value for value in schema.get("enum", ()) if value is not None]
        if enum:
            found["enum"] = enum
        if schema.get("required"):
            found["required"] = sorted(schema["required"])
        found |= {name: schema[name] for name in _LIMITS if name in schema}
        if "pattern" in schema and _is_pattern(schema["pattern"]):
            found["pattern"] = schema["pattern"]
        return found if top else self.shared(found)


def main(core: Path, crds: list[Path]) -> None:
    maker = Maker(json.loads((core / "_definitions.json").read_text(encoding="utf-8"))["$defs"])
    kinds: dict[str, Any] = {}
    for kind, name in CORE.items():
        kinds[kind] = maker.small(
            json.loads((core / f"{name}.json").read_text(encoding="utf-8")), top=True
        )
    for path in crds:
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
        version = next(v for v in spec["versions"] if v["storage"])
        kind = f"{spec['group']}/{version['name']} {spec['names']['kind']}"
        kinds[kind] = maker.small(version["schema"]["openAPIV3Schema"], top=True)
    for kind, schema in kinds.items():
        api, _, name = kind.partition(" ")
        schema["properties"] |= {"apiVersion": {"enum": [api]}, "kind": {"enum": [name]}}
        schema["required"] = ["apiVersion", "kind", "metadata"]
    json.dump(
        {"kinds": kinds, "$defs": dict(sorted(maker.defs.items()))},
        sys.stdout,
        separators=(",", ":"),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
