"""Every public module, class, function, method and property has a docstring that says more than its name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src"
FILLER_WORDS = {
    "a", "an", "and", "as", "at", "by", "for", "from", "gtrl", "in", "into", "is", "it", "its", "of", "on", "one", "or",
    "that", "the", "this", "to", "with",
}  # fmt: skip


class Definition(NamedTuple):
    """A public definition in the source, parsed but not imported."""

    location: str  # file, line and dotted name, as error messages show it
    name: str  # its own name after those of the classes it is in
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    owner: ast.ClassDef | None = None  # the class of a method or property


def package_definitions() -> Iterator[Definition]:
    for path in sorted(SOURCE.rglob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        location = str(path.relative_to(SOURCE))
        yield Definition(location, path.parent.name if path.stem == "__init__" else path.stem, module)
        yield from definitions_in(module, location)


def definitions_in(parent: ast.Module | ast.ClassDef, file: str, prefix: str = "") -> Iterator[Definition]:
    for node in parent.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        owner = parent if isinstance(parent, ast.ClassDef) else None
        yield Definition(f"{file}:{node.lineno} {prefix}{node.name}", prefix + node.name, node, owner)
        if isinstance(node, ast.ClassDef):
            yield from definitions_in(node, file, f"{prefix}{node.name}.")


def words(text: str) -> set[str]:
    """The lower-case words of a text or identifier, in the singular, without articles and prepositions."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W_]+", text)
    return {part.lower().removesuffix("s") for part in parts if part.lower() not in FILLER_WORDS}


def base_names(node: ast.ClassDef) -> list[str]:
    """Names of the base classes, without modules and type parameters."""
    return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]


def documents(class_name: str, method: str) -> bool:
    """Whether a class of the package, or a class it derives from, has a docstring on this method."""
    if (node := CLASSES.get(class_name)) is None:
        return False
    own = [child for child in node.body if isinstance(child, ast.FunctionDef) and child.name == method]
    return any(map(ast.get_docstring, own)) or any(documents(base, method) for base in base_names(node))


def needs_docstring(definition: Definition) -> bool:
    node, owner = definition.node, definition.owner
    if not isinstance(node, ast.FunctionDef):
        return True
    decorators = [ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list]
    if "overload" in decorators or "setter" in decorators:  # the implementation or the getter has it
        return False
    # An override of a method that a base class documents: Python inherits the docstring (`inspect.getdoc`).
    return owner is None or not any(documents(base, node.name) for base in base_names(owner))


DEFINITIONS = list(package_definitions())
CLASSES = {
    definition.node.name: definition.node for definition in DEFINITIONS if isinstance(definition.node, ast.ClassDef)
}


def test_every_public_definition_has_a_docstring() -> None:
    missing = [
        definition.location
        for definition in DEFINITIONS
        if needs_docstring(definition) and not ast.get_docstring(definition.node)
    ]
    assert not missing, "without a docstring:\n" + "\n".join(missing)


def test_no_docstring_only_repeats_the_name() -> None:
    repeating = [
        f"{definition.location}: {docstring}"
        for definition in DEFINITIONS
        if (docstring := ast.get_docstring(definition.node)) and words(docstring) <= words(definition.name)
    ]
    assert not repeating, "docstrings that only repeat the name:\n" + "\n".join(repeating)


@pytest.mark.parametrize(
    ("name", "docstring", "repeats"),
    [
        ("Policy.load", "Loads the policy.", True),
        ("read_rows", "Rows read from one of the files.", False),
        ("success_rate", "The success rate", True),
        ("success_rate", "Mean over goals, in percent.", False),
    ],
)
def test_repetition_is_recognised(name: str, docstring: str, repeats: bool) -> None:
    assert (words(docstring) <= words(name)) == repeats
