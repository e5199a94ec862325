"""Helpers shared by `gtrl tasks` and `gtrl algorithms`."""

import json
import logging
from collections.abc import Iterable
from typing import Any, TypeVar

from gtrl.registry import Registry

log = logging.getLogger(__name__)
Entry = TypeVar("Entry")


def available(registry: Registry[Entry]) -> list[Entry]:
    """Returns all registered and installed entries; warns about those that cannot be imported, and omits them."""
    found: list[Entry] = []
    for name in registry:
        try:
            found.append(registry.find(name))
        except Exception as error:
            log.warning("the %s '%s' of an installed package cannot be loaded: %s", registry.kind, name, error)
    return found


def print_json(rows: Iterable[dict[str, Any]]) -> None:
    """Prints rows as an indented JSON list; values that JSON does not know become strings."""
    print(json.dumps(list(rows), indent=2, default=str))


def cell(value: Any) -> str:
    """Formats a value for a table: empty for None, thousands separators for integers, no trailing zeros for floats."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(f"{item:g}" for item in value) + ")"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
