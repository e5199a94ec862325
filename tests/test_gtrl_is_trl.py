"""GTRL with its four changes reverted is TRL: the same draw, loss and gradient."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtrl.algorithms.gtrl import GTRL
from gtrl.algorithms.trl import TRL
from gtrl.data.dataset import Dataset, make_dataset
from gtrl.data.sampling import Batch
from gtrl.nn.networks import ActorCritic, Critic

GAMMA = 0.9
REVERTED: dict[str, Any] = {
    "value_goals": (0.0, 1.0, 0.0),
    "selection": "dc",
    "hindsight": False,
    "kappa_one_step": 0.7,
}
PUBLIC: dict[str, Any] = {"rho_reads": "target", "target_from": "previous"}  # of TRL's code: its defaults
ROWS = 50  # no multiple of a vector's width: the hard case for equality to the bit
KEY = jax.random.key(0)


def pair(**fields: Any) -> tuple[GTRL, TRL]:
    fields = {"gamma": GAMMA, "alpha": 0.3, "hidden": (17,), **fields}
    return GTRL(**(REVERTED | PUBLIC | fields)), TRL(**fields)


def random_dataset(seed: int, oracle: bool = True) -> Dataset:
    rng = np.random.default_rng(seed)
    lengths = (2, 5, 12, 40)
    rows = sum(lengths)
    terminals = np.isin(np.arange(rows), np.cumsum(lengths) - 1)
    observations = rng.normal(size=(rows, 6))
    return make_dataset(
        observations, rng.uniform(-1, 1, (rows, 3)), terminals, goals=observations[:, :2] if oracle else None
    )


def random_networks(method: TRL, seed: int, data: Dataset) -> tuple[ActorCritic, Critic]:
    """Networks, and a target that is not their critic."""
    rng = np.random.default_rng(seed)
    nets = jax.eval_shape(lambda: method.init(KEY, data.spec))
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) / 2, leaf.dtype), (nets, nets.critic))


def loss_and_gradient(method: GTRL | TRL, nets: ActorCritic, target: Critic, batch: Batch) -> tuple[jax.Array, Any]:
    return jax.value_and_grad(lambda n: method.loss(n, target, batch, KEY)[0])(nets)


@pytest.mark.parametrize("lambda_", [0.0, 0.7])
@pytest.mark.parametrize("fields", [{}, {"rho_reads": "critic"}, {"actor_reads": "value", "distill": False}], ids=str)
def test_same_loss_and_gradient(lambda_, fields, monkeypatch):
    """Equal to the bit if each query has its own matrix product (fused, GTRL has one more query)."""
    alone = lambda *passes: [network and network(*inputs) for network, *inputs in passes]  # noqa: E731
    for name in ("gtrl", "trl"):
        monkeypatch.setattr(f"gtrl.algorithms.{name}.fused", alone)
    gtrl, trl = pair(lambda_=lambda_, **fields)
    for seed in range(3):
        data = random_dataset(seed, oracle=trl.distill)
        nets, target = random_networks(trl, seed, data)
        batch = trl.sample(jax.random.key(seed), data, ROWS)
        assert batch.decomposable.all()
        of_gtrl, of_trl = (loss_and_gradient(method, nets, target, batch) for method in (gtrl, trl))
        jax.tree.map(np.testing.assert_array_equal, of_gtrl, of_trl)
        assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(of_trl))


def test_same_moving_average():
    gtrl, trl = pair()
    assert (gtrl.target_from, gtrl.target_rate) == (trl.target_from, trl.target_rate)
    assert TRL.target_from != GTRL.target_from


def test_same_draw():
    gtrl, trl = pair()
    data = random_dataset(0)
    of_gtrl, of_trl = (method.sample(KEY, data, ROWS) for method in (gtrl, trl))
    jax.tree.map(np.testing.assert_array_equal, of_gtrl, of_trl)


@pytest.mark.parametrize("change", [{"selection": "max"}, {"hindsight": True}, {"kappa_one_step": 0.5}], ids=str)
def test_each_change_matters(change):
    """The equality is not that of losses which ignore their fields."""
    gtrl, trl = pair()
    data = random_dataset(0)
    nets, target = random_networks(trl, 0, data)
    # Random goals too: without rows where m = 0 their expectile is idle.
    batch = GTRL(gamma=GAMMA).sample(KEY, data, ROWS)
    assert not batch.decomposable.all()
    before, after = (method.loss(nets, target, batch, KEY)[0] for method in (gtrl, replace(gtrl, **change)))
    assert abs(before - after) > 1e-4


# Last in the file, since the fixture clears what the other tests have compiled.
@pytest.mark.usefixtures("optimized")
def test_same_loss_and_gradient_compiled():
    """As trained: jitted, all queries in one product. XLA blocks 4 x ROWS and 3 x ROWS rows differently: rounding."""
    gtrl, trl = pair(lambda_=0.7)
    compiled, sample = jax.jit(loss_and_gradient, static_argnums=0), jax.jit(trl.sample, static_argnums=2)
    for seed in range(5):
        data = random_dataset(seed)
        nets, target = random_networks(trl, seed, data)
        batch = sample(jax.random.key(seed), data, ROWS)
        of_gtrl, of_trl = (compiled(method, nets, target, batch) for method in (gtrl, trl))
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-7), of_gtrl, of_trl)
