"""The package's layers: no module imports from a layer above its own, no import cycles, some modules load no JAX."""

import ast
import graphlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import gtrl
from gtrl.runs.policy import load_policy
from gtrl.runs.run import Run

PACKAGE = Path(gtrl.__file__).parent
# From the bottom up; a module belongs to the entry with the longest matching name.
LAYERS = (
    ("gtrl.errors", "gtrl.io", "gtrl.console", "gtrl.workers", "gtrl.registry", "gtrl.fields"),
    ("gtrl.tasks",),
    ("gtrl.envs",),
    ("gtrl.data",),
    ("gtrl.data.collect",),
    ("gtrl.data.sources",),
    ("gtrl.nn",),
    ("gtrl.algorithms",),
    ("gtrl.runs",),
    ("gtrl.exports",),
    ("gtrl.training",),
    ("gtrl.evaluation",),
    ("gtrl.report",),
    ("gtrl", "gtrl.demo", "gtrl.bench", "gtrl.sweeps", "gtrl.experts"),
    ("gtrl.cli", "gtrl.__main__"),
)
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}
# Outside the layers: what it may import, and which modules may import it.
THEORY = "gtrl.theory"
THEORY_MAY_IMPORT = (*LAYERS[0], "gtrl.tasks", "gtrl.envs", "gtrl.report", THEORY)
MAY_IMPORT_THEORY = ("gtrl.demo", "gtrl.cli", THEORY)
# `gtrl/__init__.py` has run before any module of the package, so its version is there for all of them.
FOR_ALL = ("__version__",)


class Import(NamedTuple):
    """An import of one module by another, with its line."""

    importer: str
    imported: str
    place: str  # file:line


def modules_of(package: Path) -> dict[str, Path]:
    """Every module of a package by its full name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(package: Path) -> Iterator[Import]:
    """All imports of modules of the package by others, anywhere in a file."""
    modules = modules_of(package)
    for importer, path in modules.items():
        for node in nodes_of(path.read_text()):
            for name in imported_names(node, importer, is_package=path.name == "__init__.py"):
                imported = name if name in modules else name.rpartition(".")[0]
                if imported in modules and imported != importer and name not in {f"gtrl.{each}" for each in FOR_ALL}:
                    place = f"{path.relative_to(package.parent)}:{getattr(node, 'lineno', 0)}"
                    yield Import(importer, imported, place)


@cache
def nodes_of(source: str) -> list[ast.AST]:
    """All nodes of a file's syntax tree; the tests below read the same files again and again."""
    return list(ast.walk(ast.parse(source)))


def imported_names(node: ast.AST, importer: str, *, is_package: bool) -> list[str]:
    """The full names of what an import statement names: modules, or attributes of modules."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    parents = importer.split(".")[: len(importer.split(".")) - node.level + is_package] if node.level else []
    source = ".".join([*parents, *([node.module] if node.module else [])])
    return [f"{source}.{alias.name}" for alias in node.names]


def layer_of(module: str) -> str:
    """The entry of `LAYERS` a module belongs to, or theory."""
    known = {*HEIGHT, THEORY} - {"gtrl"}
    fitting = [name for name in known if f"{module}.".startswith(f"{name}.")]
    if not fitting and module != "gtrl":
        raise AssertionError(f"{module} belongs to no layer: give it one in {Path(__file__).name}.")
    return max(fitting, key=len, default="gtrl")


def is_allowed(each: Import) -> bool:
    importer, imported = layer_of(each.importer), layer_of(each.imported)
    if importer == THEORY:
        return imported in THEORY_MAY_IMPORT
    if imported == THEORY:
        return importer in MAY_IMPORT_THEORY
    return HEIGHT[imported] <= HEIGHT[importer]


def upward_imports(package: Path) -> list[str]:
    return [
        f"{each.place}: {each.importer} imports {each.imported}, which lies above it"
        for each in imports_of(package)
        if not is_allowed(each)
    ]


def cycle_of(package: Path) -> list[str]:
    """Modules that import each other in a circle, if any do."""
    graph: dict[str, set[str]] = {}
    for each in imports_of(package):
        graph.setdefault(each.importer, set()).add(each.imported)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_nothing_imports_from_a_layer_above() -> None:
    found = upward_imports(PACKAGE)
    assert not found, "\n".join(found)


def test_there_are_no_import_cycles() -> None:
    assert cycle_of(PACKAGE) == []


def test_every_import_is_seen() -> None:
    """Some of each kind that the package has."""
    found = {(each.importer, each.imported) for each in imports_of(PACKAGE)}
    assert ("gtrl.nn.networks", "gtrl.io.mlp") in found  # from gtrl.io import mlp
    assert ("gtrl.data.dataset", "gtrl.errors") in found  # from gtrl.errors import DataError
    assert ("gtrl.nn.kernels", "gtrl.nn.triton") in found  # inside a function
    assert ("gtrl", "gtrl.training.train") in found  # under TYPE_CHECKING
    assert not any(imported == "gtrl" for _, imported in found)  # __version__ is for all


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(PACKAGE, tmp_path / "gtrl", ignore=ignored))


@pytest.mark.parametrize(
    ("file", "line", "imported"),
    [
        ("data/dataset.py", "from gtrl.training.train import train", "gtrl.training.train"),
        ("data/checks.py", "from gtrl.data import collect", "gtrl.data.collect"),
        ("data/origin.py", "from .sources import get", "gtrl.data.sources.get"),
        ("errors.py", "import gtrl.tasks", "gtrl.tasks"),
        ("training/loop.py", "def late():\n    from gtrl.evaluation import evaluate", "gtrl.evaluation.evaluate"),
        ("io/mlp.py", "if TYPE_CHECKING:\n    import gtrl.nn.networks as n", "gtrl.nn.networks"),
        ("report/tables.py", "from gtrl import train", "gtrl"),
        ("theory/process.py", "from gtrl.runs.run import Run", "gtrl.runs.run"),
        ("report/figures.py", "from gtrl.theory.maze import grid_of", "gtrl.theory.maze"),
        ("bench.py", "from gtrl.cli import main", "gtrl.cli"),
    ],
)
def test_upward_import_is_reported_with_its_line(file: str, line: str, imported: str, copy: Path) -> None:
    before = upward_imports(copy)
    text = (copy / file).read_text()
    (copy / file).write_text(f"{text}\n{line}\n")
    importer = "gtrl." + file.removesuffix(".py").replace("/", ".")
    place = f"gtrl/{file}:{len(text.splitlines()) + 1 + len(line.splitlines())}"
    assert set(upward_imports(copy)) - set(before) == {f"{place}: {importer} imports {imported}, which lies above it"}


def test_import_cycle_is_reported(copy: Path) -> None:
    (copy / "io" / "mlp.py").write_text("from gtrl.io import npz\n")
    (copy / "io" / "npz.py").write_text("def late():\n    from gtrl.io.mlp import forward\n")
    assert set(cycle_of(copy)) == {"gtrl.io.mlp", "gtrl.io.npz"}


def test_module_without_a_layer_is_reported(copy: Path) -> None:
    (copy / "new.py").write_text("from gtrl.errors import GtrlError\n")
    with pytest.raises(AssertionError, match=r"gtrl\.new belongs to no layer"):
        upward_imports(copy)


# --- modules loaded by an import ---


def run_python(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


WITHOUT_JAX = (
    "gtrl", "gtrl.tasks", "gtrl.errors", "gtrl.envs.make", "gtrl.data.checks", "gtrl.data.formats.convert",
    "gtrl.runs.policy", "gtrl.exports.export", "gtrl.evaluation.rollout", "gtrl.report.figures", "gtrl.cli",
)  # fmt: skip


def test_imports_that_need_no_jax() -> None:
    run_python(
        f"import importlib, sys\nfor name in {WITHOUT_JAX!r}:\n"
        "    importlib.import_module(name)\n"
        "    assert not {'jax', 'jaxlib', 'equinox'} & set(sys.modules), name\n"
        "import gtrl\ngtrl.load_policy, gtrl.find_task, gtrl.Run\n"
        "assert 'jax' not in sys.modules, 'an attribute of gtrl'\n"
        "gtrl.train\nassert 'jax' in sys.modules\n"  # the check can see it
    )


def test_a_dataset_needs_neither_equinox_nor_pallas() -> None:
    run_python(
        "import sys, gtrl.data.dataset\n"
        "found = [name for name in sys.modules if name.split('.')[0] == 'equinox' or 'pallas' in name]\n"
        "assert 'jax' in sys.modules and not found, found\n"
    )


def test_networks_need_no_triton() -> None:
    """Equinox loads Pallas, but not this backend, which JAX has deprecated."""
    run_python(
        "import sys, gtrl.nn.fused, gtrl.training.train\n"
        "found = [name for name in sys.modules if name.endswith(('pallas.triton', 'nn.triton'))]\n"
        "assert not found, found\n"
    )


def test_a_policy_needs_numpy_alone(gtrl_run: Run) -> None:
    path = gtrl_run.policy_path(seed=0)
    dims = load_policy(path).header
    run_python(
        "import sys, numpy.random\n"
        "before = set(sys.modules)\n"
        "import numpy as np, gtrl\n"
        f"policy = gtrl.load_policy({str(path)!r})\n"
        f"action = policy(np.zeros({dims['observation_dim']}), np.zeros({dims['goal_dim']}))\n"
        f"assert action.shape == ({dims['action_dim']},)\n"
        "imported = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "others = imported - set(sys.stdlib_module_names) - {'numpy', 'gtrl'}\n"
        "assert 'gtrl' in imported and not others, others\n"
    )
