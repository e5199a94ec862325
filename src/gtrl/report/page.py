"""The page of a report: one HTML file that opens from disk and needs no network.

The page holds Plotly's JavaScript, the style, the script and the data of the runs. The browser's content security
policy forbids any connection, and any script other than the two of the page. Text from runs is data: it is never parsed
as HTML.
"""

import base64
import hashlib
import json
import string
from collections.abc import Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gtrl.errors import ConfigError
from gtrl.io.atomic import write_text
from gtrl.report.cells import Cell
from gtrl.report.page_data import page_data

SCRIPTS = (  # in the order of their use
    "dom.js", "tables.js", "filters.js", "charts.js", "maze_data.js", "maze_view.js", "maze.js", "page.js",
)  # fmt: skip


def require_plotly() -> None:
    """Raises `ConfigError` if Plotly is not installed, without the work of a page."""
    try:
        found = find_spec("plotly.offline")
    except ImportError:  # the package itself is missing
        found = None
    if found is None:
        raise ConfigError("the page of a report needs Plotly: pip install 'gtrl[report]', or leave it out (--no-page).")


def write_page(path: Path, cells: Sequence[Cell]) -> None:
    """Writes the page of a set of runs. The same runs give the same bytes.

    Raises `ConfigError` if Plotly is not installed, and `RunError` for damaged files in a run directory.
    """
    plotly = _in_script(_plotly_source())
    script = _in_script("(() => {\n'use strict';\n" + "\n".join(map(_asset, SCRIPTS)) + "})();\n")
    page = string.Template(_asset("template.html")).substitute(
        style=_asset("style.css"),
        hashes=" ".join(f"'sha256-{_hash(each)}'" for each in (plotly, script)),
        plotly=plotly,
        script=script,
        data=json_for_html(page_data(cells)),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)


def json_for_html(data: Any) -> str:
    """Returns JSON that may stand inside a `<script>` element: without `<`, `>`, `&` and characters beyond ASCII."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plotly_source() -> str:
    require_plotly()
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def _asset(name: str) -> str:
    return resources.files("gtrl.report").joinpath("page_assets", name).read_text(encoding="utf-8")


def _in_script(source: str) -> str:
    """The source as a browser reads it from a page: with line feeds only, on which the hash depends."""
    return source.replace("\r\n", "\n").replace("\r", "\n")


def _hash(source: str) -> str:
    """The hash by which the content security policy allows a script."""
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
