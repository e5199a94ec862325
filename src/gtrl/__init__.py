"""Offline goal-conditioned reinforcement learning: GTRL and the methods it is compared with.

Example:
    run = gtrl.train("gtrl", "teleport.npz", task="pointmaze-teleport-navigate", out="runs/teleport")
    rows = gtrl.evaluate(run, episodes=50)
    policy = gtrl.load_policy(run.policy_path(seed=0))
    action = policy(observation, goal)

Public names are imported on first use, so `import gtrl` and `gtrl.load_policy` do not import JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gtrl.algorithms import make
    from gtrl.algorithms.base import Algorithm
    from gtrl.data.checks import check_file
    from gtrl.data.collect.expert import Experts
    from gtrl.data.collect.files import collect
    from gtrl.data.dataset import Data, Dataset, Spec, make_dataset
    from gtrl.data.load import load_dataset
    from gtrl.data.sampling import Batch, sample_batch
    from gtrl.data.sources.get import get_dataset
    from gtrl.errors import GtrlError
    from gtrl.evaluation.diagnostics.diagnose import diagnose
    from gtrl.evaluation.during import EvaluateDuring
    from gtrl.evaluation.evaluate import evaluate
    from gtrl.exports.export import export
    from gtrl.nn.fused import fused
    from gtrl.registry import register
    from gtrl.runs.policy import Policy, load_policy
    from gtrl.runs.run import Run
    from gtrl.tasks import TASKS, Task, find_task
    from gtrl.training.callbacks import WandB
    from gtrl.training.config import Training
    from gtrl.training.session import Callback, Session
    from gtrl.training.train import train

# The public names of each module.
_PUBLIC_NAMES = {
    "algorithms": ["make"],
    "algorithms.base": ["Algorithm"],
    "data.checks": ["check_file"],
    "data.collect.expert": ["Experts"],
    "data.collect.files": ["collect"],
    "data.dataset": ["Data", "Dataset", "Spec", "make_dataset"],
    "data.load": ["load_dataset"],
    "data.sampling": ["Batch", "sample_batch"],
    "data.sources.get": ["get_dataset"],
    "errors": ["GtrlError"],
    "evaluation.diagnostics.diagnose": ["diagnose"],
    "evaluation.evaluate": ["evaluate"],
    "evaluation.during": ["EvaluateDuring"],
    "exports.export": ["export"],
    "nn.fused": ["fused"],
    "registry": ["register"],
    "runs.policy": ["Policy", "load_policy"],
    "runs.run": ["Run"],
    "tasks": ["TASKS", "Task", "find_task"],
    "training.callbacks": ["WandB"],
    "training.config": ["Training"],
    "training.session": ["Callback", "Session"],
    "training.train": ["train"],
}
_MODULE_OF = {name: f"gtrl.{module}" for module, names in _PUBLIC_NAMES.items() for name in names}

__all__ = [
    "TASKS", "Algorithm", "Batch", "Callback", "Data", "Dataset", "EvaluateDuring", "Experts", "GtrlError", "Policy",
    "Run", "Session", "Spec", "Task", "Training", "WandB", "check_file", "collect", "diagnose", "evaluate", "export",
    "find_task", "fused", "get_dataset", "load_dataset", "load_policy", "make", "make_dataset", "register",
    "sample_batch", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'gtrl' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
