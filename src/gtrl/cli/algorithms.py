"""`gtrl algorithms`: lists the methods."""

import dataclasses
from typing import Any

from gtrl import console
from gtrl.cli.listing import available, print_json


def algorithms_command(*, json: bool = False) -> None:
    """List the methods: family, idea and reference.

    Args:
        json: Print JSON, with the fields of each method and their defaults, instead of a table.
    """
    from gtrl.algorithms import ALGORITHMS

    rows = [_row(kind) for kind in available(ALGORITHMS)]
    if json:
        print_json({key: value for key, value in row.items() if key != "idea"} for row in rows)
        return
    cells = []
    for row in rows:
        idea = f"{row['idea']} (reconstruction)" if row["reconstruction"] else row["idea"]
        cells.append([row["name"], row["family"], idea, row["reference"]])
    console.print_table(console.table("", ["method", "family", "idea", "reference"], cells, text=4))


def _row(kind: Any) -> dict[str, Any]:
    described = {key: getattr(kind, key, "") for key in ("family", "idea", "reference")}  # optional in a plugin
    return {
        "name": kind.name,
        "family": described["family"],
        "fields": {field.name.rstrip("_"): _default(field) for field in dataclasses.fields(kind)},
        "reconstruction": kind.reconstruction,
        "reference": described["reference"],
        "idea": described["idea"],
    }


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None
