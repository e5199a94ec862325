"""Parameters inside the training loop: stored exactly, stacked as they are read, and trained as outside of it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtrl import bench
from gtrl.algorithms import make
from gtrl.data.dataset import Spec
from gtrl.nn import speed
from gtrl.nn.kernels import product
from gtrl.training import config, layout, loop
from gtrl.training.layout import groups_of, layout_of

SPEC = Spec(5, 3, 2)
DATA = bench.synthetic(SPEC, 400, 50)
HIDDEN = (16, 16, 16)


def names_of(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def groups_by_name(method: str, **fields: Any) -> list[list[str]]:
    algorithm = make(method, hidden=HIDDEN, **fields)
    nets = algorithm.init(jax.random.key(0), SPEC)
    with speed.using(("together",)):
        groups = groups_of(algorithm, nets, algorithm.targets(nets), DATA, 32)
    names = names_of(nets)
    return [[names[number] for number in group] for group in groups]


def test_networks_that_are_evaluated_together_are_stored_together() -> None:
    """The hidden layers of critic, oracle critic and policy, in the order of GTRL's call of `fused`."""
    hidden = [f".layers[{k}].{name}" for k in range(3) for name in ("weight", "bias", "scale", "shift")][1:]
    networks = (".critic", ".oracle_critic", ".actor")
    assert groups_by_name("gtrl") == [[network + leaf for network in networks] for leaf in hidden]
    assert groups_by_name("td") == [[network + leaf for network in (".critic", ".actor")] for leaf in hidden]
    assert groups_by_name("bc") == []  # a single network
    assert groups_by_name("gtrl", actor_layer_norm=False) == []  # layers that differ are not evaluated together


@pytest.mark.parametrize(
    ("method", "min_large", "large"), [("gtrl", 1, 11), ("gtrl", 250, 2), ("gtrl", 10**9, 0), ("qrl", 1, 0)]
)
def test_what_is_stored_is_restored_to_the_bit(
    method: str, min_large: int, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of GTRL's groups only the weights are large enough; QRL's networks are in no group."""
    monkeypatch.setattr(layout, "MIN_LARGE", min_large)
    algorithm = make(method, hidden=HIDDEN)
    nets = algorithm.init(jax.random.key(0), SPEC)
    nets = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(leaf.size), leaf.shape), nets)
    with speed.using(("together",)):
        groups = groups_of(algorithm, nets, algorithm.targets(nets), DATA, 32)
    found = layout_of(nets, groups)
    stored = found.store(nets)
    assert len(stored.large) == large
    assert sum(array.size for array in stored.large) + stored.small.size == sum(x.size for x in jax.tree.leaves(nets))
    for one, other in zip(jax.tree.leaves(nets), jax.tree.leaves(found.restore(stored)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_gradient_of_a_product() -> None:
    x, weight, dy = (
        jax.random.normal(jax.random.key(k), shape) for k, shape in enumerate([(2, 5, 3), (2, 3, 4), (2, 5, 4)])
    )
    y, back = jax.vjp(product, x, weight)
    np.testing.assert_allclose(y, np.einsum("grk,gko->gro", x, weight), rtol=1e-5)
    dx, dweight = back(dy)
    np.testing.assert_allclose(dx, np.einsum("gro,gko->grk", dy, weight), rtol=1e-5)
    np.testing.assert_allclose(dweight, np.einsum("grk,gro->gko", x, dy), rtol=1e-5)


def test_a_group_is_stacked_along_its_members() -> None:
    """Two members, and one network without that axis: what their batched product reads."""
    tree = {"a": jnp.arange(8.0).reshape(2, 2, 2), "b": jnp.full(3, 9.0), "c": 8 + jnp.arange(4.0).reshape(2, 2)}
    stored = layout_of(tree, [[0, 2]]).store(tree)
    np.testing.assert_array_equal(stored.small, [*range(12), 9, 9, 9])


def test_parameters_of_other_types_stay_as_they_are() -> None:
    tree = {"a": jnp.ones(3), "b": jnp.ones(3, jnp.bfloat16)}
    assert layout_of(tree) is layout.IDENTITY
    assert layout_of({"a": jnp.ones(3)}) is not layout.IDENTITY


def trained(method: str, fast: tuple[str, ...], precision: str, chunks: tuple[int, ...] = (3,)) -> Any:
    algorithm = make(method, hidden=HIDDEN)
    how = config.Update(batch_size=32, learning_rate=1e-3, precision=precision, fast=fast)
    keys = loop.seed_keys(range(2))
    states = loop.init(algorithm, how, SPEC, keys, DATA)
    states = states._replace(target=jax.tree.map(lambda leaf: leaf * 1.05, states.target))
    for steps in chunks:
        states = loop.advance(algorithm, how, states, keys, DATA, steps)
    return jax.device_get(states)


@pytest.mark.parametrize(
    ("method", "fast"),
    [
        ("gtrl", speed.ON_GPU),  # with the kernels, in an interpreter, and their products
        ("trl", ("flat", "together")),
        pytest.param("qrl", ("flat", "together"), marks=pytest.mark.soak),
    ],
)
def test_stored_parameters_train_as_others(method: str, fast: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacked arrays and the vector at once; GTRL's averages are of updated parameters, TRL's of those before."""
    monkeypatch.setattr(layout, "MIN_LARGE", 700)
    plain = trained(method, (), "float32")
    monkeypatch.setattr(speed, "INTERPRETED", True)
    stored = trained(method, fast, "float32")
    assert jax.tree.structure(plain) == jax.tree.structure(stored)
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(stored), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def test_chunks_of_steps_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit: the copies in bfloat16 are made again at the start of each chunk."""
    monkeypatch.setattr(layout, "MIN_LARGE", 700)
    one, several = (trained("gtrl", ("flat", "together"), "bfloat16", chunks) for chunks in ((3,), (1, 2)))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(several), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_loss_reads_copies_that_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies in bfloat16 are those of the parameters after the last step, as if they were made in each loss."""
    monkeypatch.setattr(layout, "MIN_LARGE", 700)
    found = trained("gtrl", ("flat", "together"), "bfloat16")
    monkeypatch.setattr(loop.Layouts, "copies", lambda *_: None)
    jax.clear_caches()
    in_each_loss = trained("gtrl", ("flat", "together"), "bfloat16")
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(in_each_loss), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
