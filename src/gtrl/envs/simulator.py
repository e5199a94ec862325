"""The simulator of the built-in tasks (OGBench, with MuJoCo and dm_control), which is an extra of the installation."""

import sys
from importlib.util import find_spec

from gtrl.errors import MissingPackageError
from gtrl.tasks import Task
from gtrl.tasks.ogbench import OGBENCH

PACKAGES = ("ogbench", "mujoco", "dm_control")
INSTALL = 'pip install "gtrl[ogbench]"'
FIRST_PYTHON_WITHOUT_LABMAZE = (3, 13)  # dm_control needs labmaze, which has no wheels for this version and later ones
BUILT_IN_FACTORIES = "gtrl.envs."  # prefix of the references to environments of this package, which are OGBench's too


def require_simulator(what: str) -> None:
    """Raises `MissingPackageError` if the simulator, which `what` needs, is not installed. Imports nothing."""
    if all(map(_is_installed, PACKAGES)):
        return
    python = sys.version_info[:2]
    if python >= FIRST_PYTHON_WITHOUT_LABMAZE:
        version = ".".join(map(str, python))
        raise MissingPackageError(
            f"{what} needs OGBench and MuJoCo, and OGBench does not install on Python {version} yet: use Python 3.11 "
            f"or 3.12, and {INSTALL}."
        )
    raise MissingPackageError(f"{what} needs OGBench and MuJoCo: {INSTALL}.")


def require_simulator_of(task: Task) -> None:
    """Raises `MissingPackageError` if the task's environment is one of OGBench's, and that is not installed."""
    if isinstance(task.environment, str) and task.environment.startswith((OGBENCH, BUILT_IN_FACTORIES)):
        require_simulator(f"the environment of {task.name}")


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # an import that is blocked, or a module without a spec
        return False
