"""The loop: seeds do not influence each other, chunks change nothing, precision, averages, checkpoints, resume."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gtrl
from gtrl.algorithms import Algorithm, make
from gtrl.data.dataset import Data, Dataset, make_dataset
from gtrl.data.shards import Rotation
from gtrl.errors import ConfigError, RunError
from gtrl.runs import checkpoints as checkpoint
from gtrl.training import config, driver, loop


def walks(seed: int = 0, episodes: int = 12, length: int = 30) -> Dataset:
    """Random walks in the plane; goals are positions, states have a third coordinate."""
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1, 1, (episodes, length, 2))
    positions = np.cumsum(actions, 1)
    states = np.concatenate([positions, rng.normal(size=(episodes, length, 1))], -1)
    flat = [array.reshape(episodes * length, -1) for array in (states, actions, positions)]
    return make_dataset(flat[0], flat[1], np.arange(episodes * length) % length == length - 1, flat[2])


# The loop's properties, on a method with targets and one without; tests/test_methods.py trains all thirteen.
SOME = ("gtrl", "bc")
TRAINING = config.Training(steps=50, batch_size=32, log_every=20, checkpoint_every=25)


def method(name: str) -> Algorithm:
    return make(name, hidden=(16,))


def trained(algorithm: Algorithm, seeds: list[int], training: config.Training = TRAINING, **how) -> loop.State:
    data, keys = walks(), loop.seed_keys(seeds)
    states = loop.init(algorithm, training.update, data.spec, keys, data)
    return driver.fit(algorithm, training, states, keys, Rotation(Data(data), 1), **how)


# First in the file, since the fixture clears what the other tests have compiled.
@pytest.mark.usefixtures("optimized")
def test_chunk_length_does_not_change_results_or_logs():
    logs: dict[int, list] = {1: [], 7: [], 50: []}
    finals = []
    for chunk, log in logs.items():
        keep = lambda step, states, _, log=log: log.append((step, jax.device_get(states.means())))  # noqa: E731
        finals.append(trained(method("td"), [0, 1], chunk=chunk, on_log=keep))
    for other in finals[1:]:
        jax.tree.map(np.testing.assert_array_equal, finals[0], other)
    assert [step for step, _ in logs[1]] == [20, 40, 50]
    for chunk in (7, 50):
        jax.tree.map(np.testing.assert_array_equal, logs[1], logs[chunk])


@pytest.mark.parametrize("name", SOME)
def test_seed_alone_equals_the_same_seed_among_others(name: str):
    algorithm = method(name)
    alone, together = trained(algorithm, [7]), trained(algorithm, [3, 7, 1])
    for one, several in zip(jax.tree.leaves(alone.nets), jax.tree.leaves(together.nets), strict=True):
        np.testing.assert_allclose(one[0], several[1], rtol=1e-4, atol=1e-6)
        assert not np.allclose(several[0], several[1])  # seeds differ


def test_logged_metrics_are_means_over_the_steps_since_the_last_log():
    """Against single steps, each logged by itself."""
    single, spans = [], []
    every = dataclasses.replace(TRAINING, log_every=1)
    trained(method("gtrl"), [0], every, on_log=lambda _, states, __: single.append(float(states.means()["loss"][0])))
    trained(method("gtrl"), [0], on_log=lambda _, states, __: spans.append(float(states.means()["loss"][0])))
    expected = [np.mean(single[0:20]), np.mean(single[20:40]), np.mean(single[40:50])]
    np.testing.assert_allclose(spans, expected, rtol=1e-5)


@pytest.mark.parametrize("source", ["updated", "previous"])
def test_targets_are_the_moving_average_of_algorithm_1(source: str):
    algorithm = dataclasses.replace(method("gtrl"), target_from=source)
    training = dataclasses.replace(TRAINING, steps=1)
    data, keys = walks(), loop.seed_keys([0])
    before = jax.device_get(loop.init(algorithm, training.update, data.spec, keys, data))
    after = trained(algorithm, [0], training)
    fresh = after.nets.critic if source == "updated" else before.nets.critic
    eta = algorithm.target_rate
    for old, new, average in zip(*map(jax.tree.leaves, (before.target, fresh, after.target)), strict=True):
        np.testing.assert_allclose(average, eta * np.asarray(new) + (1 - eta) * old, rtol=1e-6, atol=1e-7)


def test_one_step_is_adam_on_the_gradient_of_the_loss():
    """The first Adam step by hand: the learning rate times the sign of the gradient, up to epsilon."""
    algorithm, training = method("bc"), dataclasses.replace(TRAINING, steps=1)
    data, keys = walks(), loop.seed_keys([0])
    before = jax.device_get(loop.init(algorithm, training.update, data.spec, keys, data))
    nets = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), before.nets)
    step_key = jax.random.fold_in(keys[0], 0)
    loss = lambda nets: loop.loss_of(algorithm, training.update, nets, None, data, step_key)[0]  # noqa: E731
    gradient = jax.jit(jax.grad(loss))(nets)
    after = trained(algorithm, [0], training)
    for old, new, slope in zip(*map(jax.tree.leaves, (nets, after.nets, gradient)), strict=True):
        step = training.learning_rate * slope / (np.abs(slope) + 1e-8)
        np.testing.assert_allclose(new[0], old - step, atol=2e-6)


@pytest.mark.parametrize("name", SOME)
def test_bfloat16_follows_float32(name: str):
    """Half precision in the networks only: parameters stay float32 and the losses agree to about its 3 digits."""
    losses = {}
    for precision in ("float32", "bfloat16"):
        log: list[float] = []
        training = dataclasses.replace(TRAINING, precision=precision)
        keep = lambda _, states, __, log=log: log.append(float(states.means()["loss"][0]))  # noqa: E731
        final = trained(method(name), [0], training, on_log=keep)
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(final.nets))
        losses[precision] = log
    np.testing.assert_allclose(losses["bfloat16"], losses["float32"], rtol=0.05)


def test_the_default_checkpoints_are_the_scored_steps():
    assert config.Training().checkpoint_steps == [800_000, 900_000, 1_000_000]
    assert config.Training(steps=850_000).checkpoint_steps == [800_000, 850_000]
    assert config.Training(steps=10, checkpoint_every=4).checkpoint_steps == [4, 8, 10]
    assert config.Training(steps=10, checkpoints=(3, 12), checkpoint_every=4).checkpoint_steps == [3, 4, 8, 10]


def test_fields_accept_lists_and_trl_only_its_own_goals():
    assert hash(make("bc", hidden=[8, 8])) == hash(make("bc", hidden=(8, 8)))
    with pytest.raises(ConfigError, match="alpha is -1"):
        make("gtrl", alpha=-1)
    with pytest.raises(ConfigError, match="kappa is 1"):
        make("gtrl", kappa=1.5)
    with pytest.raises(ConfigError, match="no target for goals off"):
        make("trl", value_goals=(0, 0.5, 0.5))


def run_of(folder: Path, steps: int, **how) -> gtrl.Run:
    data = Data(walks(), walks(1), digest="walks")
    fields = {"hidden": (16,), "batch_size": 32, "log_every": 20, "checkpoint_every": 25}
    return gtrl.train("gtrl", data, out=folder, seeds=[0, 5], steps=steps, show=False, **fields, **how)


def test_a_checkpoint_holds_the_whole_state(tmp_path: Path):
    seeds = [0, 1, 2]  # as many as above: the same program
    state = trained(method("gtrl"), seeds)
    checkpoint.save(tmp_path, 50, state)
    assert checkpoint.steps(tmp_path) == [50]
    jax.tree.map(np.testing.assert_array_equal, checkpoint.restore(tmp_path, 50, state), state)
    nets = checkpoint.restore(tmp_path, 50, state.nets, part="nets")
    jax.tree.map(np.testing.assert_array_equal, nets, state.nets)
    with pytest.raises(RunError, match="no checkpoint of step 7"):
        checkpoint.restore(tmp_path, 7, state)
    data = walks()
    other = loop.init(make("gtrl", hidden=(8,)), TRAINING.update, data.spec, loop.seed_keys(seeds), data)
    with pytest.raises(RunError, match="does not fit"):
        checkpoint.restore(tmp_path, 50, other)


def test_a_resumed_run_equals_one_that_never_stopped(tmp_path: Path):
    """Stopped at a checkpoint that is not a logged step, so the metrics' running sums matter too."""
    whole = run_of(tmp_path / "whole", 50)
    run_of(tmp_path / "parts", 25)
    parts = run_of(tmp_path / "parts", 50, resume=True)
    for seed in (0, 5):
        with np.load(whole.policy_path(seed)) as one, np.load(parts.policy_path(seed)) as other:
            for key in one.files:
                np.testing.assert_array_equal(one[key], other[key])
    rows = {run.path.name: [row for row in run.metrics() if row["step"] != 25] for run in (whole, parts)}
    assert rows["whole"] == rows["parts"]


def test_validation_loss_is_the_loss_on_the_held_out_split(tmp_path: Path):
    rows = list(run_of(tmp_path / "run", 20).metrics())
    assert [(row["step"], row["seed"]) for row in rows] == [(20, 0), (20, 5)]
    assert all(np.isfinite(row["validation/critic_loss"]) for row in rows)
    # On the same data and networks both are estimates of one number; here the data differ, so they must not agree.
    assert rows[0]["validation/loss"] != rows[0]["loss"]
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert "time" not in json.loads(text.splitlines()[0])
