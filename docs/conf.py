"""How Sphinx builds the site; `make docs` runs it.

Nothing is loaded from a network: formulas become SVG, and the theme brings its own scripts.
"""

import re
import xml.etree.ElementTree as ET
from importlib.metadata import version as installed_version
from typing import Any

import ziamath
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.pycode import parser
from sphinx.util.nodes import make_refnode

from gtrl.algorithms import base

project = "gtrl"
author = "the gtrl contributors"
copyright = author  # noqa: A001
version = release = installed_version("gtrl")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
default_role = "literal"  # `name` in a docstring is code
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!gtrl\.).*"),  # links to other packages would need a network
    (r"py:.*", r"gtrl\.(registry\.Entry|training\.(loop\.State|config\.Update)|data\.shards\.Rotation)"),  # internal
]

# --- pages ---

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
suppress_warnings = ["myst.header"]  # an included file may begin at a deeper level

# --- docstrings ---

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 100
add_module_names = False
toc_object_entries_show_parents = "hide"

# The comment beside a field is its help text on the command line (tyro reads it). It is its documentation here too.
parser.comment_re = re.compile(r"^\s*#(?!:? ?(?:---|fmt:|noqa|pyright:|type:)):? ?(.*)\r?\n?$")

# `Lambda` names a flag for tyro, which is noise in a signature. Methods are imported after this.
base.Lambda = float  # pyright: ignore[reportAttributeAccessIssue]

# --- appearance ---

html_theme = "furo"
html_title = "gtrl"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_math_renderer = "svg"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
copybutton_exclude = ".linenos, .gp, .go"


def formula(tex: str, inline: bool) -> str:
    """A formula as SVG, in units of the text's font size, and as TeX for screen readers."""
    size = 16
    drawing = ziamath.Latex(tex, size=size, inline=inline)
    svg = drawing.svgxml()
    for side in ("width", "height"):
        svg.set(side, f"{float(svg.attrib[side]) / size:.3f}em")
    svg.set("style", f"vertical-align: {drawing.getyofst() / size:.3f}em")
    svg.set("role", "img")
    svg.set("aria-label", tex)
    return ET.tostring(svg, encoding="unicode")


def visit_math(self: Any, node: nodes.math) -> None:
    self.body.append(f'<span class="formula">{formula(node.astext(), inline=True)}</span>')
    raise nodes.SkipNode


def visit_math_block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="formula">{formula(node.astext(), inline=False)}</div>')
    raise nodes.SkipNode


def prepare_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn the Markdown of our docstrings into rST: code spans, indented examples, bars such as |x|."""
    prepared: list[str] = []
    last = ""  # the last line that is not empty
    code = False
    for line in lines:
        if line.startswith("    ") and not code and not last.startswith(" ") and not last.endswith(":"):
            prepared += ["::", ""]
            code = True
        elif line.strip() and not line.startswith(" "):
            code = False
        prepared.append(line if code else re.sub(r"(?<![`:])`([^`]+)`(?!`)", r"``\1``\\ ", line.replace("|", r"\|")))
        last = line if line.strip() else last
    if what in ("attribute", "data", "property"):
        prepared[:0] = ["..", ""]  # else napoleon reads "(N, 2): ..." as a type and its description
    lines[:] = prepared


def skip_shared(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Show only a method's own fields on the page of all methods: the rest is that of `gtrl.Algorithm`."""
    shared = vars(base.Algorithm).keys() | base.Algorithm.__annotations__
    return True if app.env.docname == "api/methods" and name in shared else None


def stay_on_site(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let links to files of the root, written for GitHub, lead to their pages here."""
    for file, page in {"README": "index", "CONTRIBUTING": "contributing", "CHANGELOG": "changelog"}.items():
        source[0] = re.sub(rf"\]\(((?:\.\./)*)\.\./{file}\.md", rf"](\1{page}.md", source[0])


def link_names(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link code such as `gtrl.train` to the API reference wherever it stands in a text."""
    objects = app.env.domains.python_domain.objects
    for node in list(doctree.findall(nodes.literal)):
        name = node.astext().removesuffix("()")
        if isinstance(node.parent, nodes.reference):
            continue
        for candidate in (name, f"gtrl.{name}"):
            if candidate in objects and candidate.count("."):
                found = objects[candidate]
                link = make_refnode(app.builder, docname, found.docname, found.node_id, node.deepcopy(), candidate)
                node.replace_self(link)
                break


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("svg", (visit_math, None), (visit_math_block, None))
    app.connect("autodoc-process-docstring", prepare_docstring, priority=400)  # before napoleon
    app.connect("autodoc-skip-member", skip_shared)
    app.connect("source-read", stay_on_site)
    app.connect("doctree-resolved", link_names)
