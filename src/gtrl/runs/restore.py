"""Restores the method and the networks of a run from its config and its checkpoints."""

import dataclasses
from typing import Any

import jax

from gtrl.algorithms import Algorithm, find_algorithm
from gtrl.data.dataset import Spec
from gtrl.errors import RunError
from gtrl.registry import load_plugins
from gtrl.runs import checkpoints
from gtrl.runs.run import Run


def algorithm_of(run: Run) -> Algorithm:
    """Returns the method of a run, with the fields recorded in `config.json`.

    Raises:
        RunError: If the method does not have one of these fields.
    """
    load_plugins(run.plugins)
    fields: dict[str, Any] = dict(run.config["algorithm"])
    kind = find_algorithm(fields.pop("name"))
    unknown = [name for name in fields if name not in {each.name for each in dataclasses.fields(kind)}]
    if unknown:
        names = " and ".join(f"'{name}'" for name in unknown)
        raise RunError(
            f"the config of {run.path} has {names}, which {kind.title} does not have; another version made it."
        )
    return kind(**fields)


def load_state(run: Run, step: int) -> tuple[Algorithm, Any]:
    """Returns the method and its networks at a checkpoint; the networks have a leading axis of seeds."""
    algorithm = algorithm_of(run)
    data = run.config["data"]
    spec = Spec(*(data[name] for name in Spec._fields))
    keys = jax.random.split(jax.random.key(0), len(run.seeds))
    nets = jax.eval_shape(jax.vmap(lambda key: algorithm.init(key, spec)), keys)
    return algorithm, checkpoints.restore(run.checkpoints, step, nets, part="nets")
