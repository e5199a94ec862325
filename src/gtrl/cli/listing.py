"""What `gtrl tasks` and `gtrl algorithms` have in common."""

import json
import logging
from collections.abc import Iterable
from typing import Any, TypeVar

from gtrl.registry import Registry

log = logging.getLogger(__name__)
Thing = TypeVar("Thing")


def available(registry: Registry[Thing]) -> list[Thing]:
    """All that is registered or installed; a package that cannot be imported gets a warning and hides no other."""
    found: list[Thing] = []
    for name in registry:
        try:
            found.append(registry.find(name))
        except Exception as error:
            log.warning("the %s '%s' of an installed package cannot be loaded: %s", registry.kind, name, error)
    return found


def print_json(rows: Iterable[dict[str, Any]]) -> None:
    print(json.dumps(list(rows), indent=2, default=str))


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(f"{item:g}" for item in value) + ")"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
