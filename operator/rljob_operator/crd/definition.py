"""The CustomResourceDefinition of RLJob."""

from __future__ import annotations

from typing import Any

import yaml

from rljob_core import names
from rljob_operator.crd.schema import object_schema

SIZE_LIMIT = 256 * 1024
"""Bytes that client-side `kubectl apply` can keep in its annotation."""

COLUMNS = (
    ("PHASE", "string", ".status.phase", 0),
    ("STEP", "string", ".status.progress", 0),
    ("REWARD", "string", ".status.reward", 0),
    ("LAG", "integer", ".status.lag", 0),
    ("TOK/S", "string", ".status.tokensPerSecond", 0),
    ("READY", "string", ".status.podsReady", 0),
    ("AGE", "date", ".metadata.creationTimestamp", 0),
    ("MODE", "string", ".status.mode", 1),
    ("BALANCE", "string", ".status.balance", 1),
    ("RESTARTS", "integer", ".status.restarts.counted", 1),
    ("VERSION", "integer", ".status.policyVersion", 1),
)
"""Printer columns: name, type, path, priority (1: `-o wide` only)."""

HEADER = "# Generated from core/rljob_core/api by `rljob crd`; change the models, not this file.\n"


def definition() -> dict[str, Any]:
    """The CRD as a plain object."""
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path} | ({"priority": priority} if priority else {})
            for name, kind, path, priority in COLUMNS
        ],
        "schema": {"openAPIV3Schema": object_schema()},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": [names.SHORT_NAME],
                "categories": ["all"],
            },
            "versions": [version],
        },
    }


def definition_yaml() -> str:
    """The committed file, byte for byte."""
    text = HEADER + yaml.dump(definition(), Dumper=_PlainDumper, sort_keys=False, width=120, allow_unicode=True)
    size = len(text.encode())
    assert size < SIZE_LIMIT, f"the CRD takes {size} bytes; client-side apply ends at {SIZE_LIMIT}"
    return text


class _PlainDumper(yaml.SafeDumper):
    """No anchors: readers and old tools see each node written out."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
