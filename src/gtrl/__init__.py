"""Offline goal-conditioned reinforcement learning: GTRL and the methods it is compared with.

    data = gtrl.load_dataset("pointmaze-teleport-navigate-v0.npz", task="pointmaze-teleport-navigate")
    run = gtrl.train("gtrl", data, seeds=[0, 1, 2, 3], out="runs/mine")
    rows = gtrl.evaluate(run, episodes=50)
    policy = gtrl.load_policy(run.policy_path(seed=0))
    action = policy(observation, goal)

Names are imported when they are first used: `import gtrl` and `gtrl.load_policy` need no JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gtrl.algorithms import make
    from gtrl.data.checks import check_file
    from gtrl.data.collect.expert import Experts
    from gtrl.data.collect.files import collect
    from gtrl.data.dataset import Data, Dataset, load_dataset, make_dataset
    from gtrl.data.sources.get import get_dataset
    from gtrl.errors import GtrlError
    from gtrl.evaluation.evaluate import evaluate
    from gtrl.runs.policy import Policy, load_policy
    from gtrl.runs.run import Run
    from gtrl.tasks import TASKS, Task, find_task
    from gtrl.training.config import Training
    from gtrl.training.train import train

_HOME = {
    "make": "algorithms",
    "check_file": "data.check",
    "Experts": "data.collect.expert",
    "collect": "data.collect.files",
    "Data": "data.dataset",
    "Dataset": "data.dataset",
    "load_dataset": "data.dataset",
    "make_dataset": "data.dataset",
    "get_dataset": "data.get",
    "GtrlError": "errors",
    "evaluate": "evaluation.evaluate",
    "Policy": "evaluation.policy",
    "load_policy": "evaluation.policy",
    "Run": "runs",
    "TASKS": "tasks",
    "Task": "tasks",
    "find_task": "tasks",
    "Training": "training.loop",
    "train": "training.run",
}

__all__ = [
    "TASKS", "Data", "Dataset", "Experts", "GtrlError", "Policy", "Run", "Task", "Training", "check_file", "collect",
    "evaluate", "find_task", "get_dataset", "load_dataset", "load_policy", "make", "make_dataset", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gtrl' has no attribute '{name}'")
    return getattr(importlib.import_module(f"gtrl.{_HOME[name]}"), name)
