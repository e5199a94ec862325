"""Own data: its scaling, the units of policies, states without a logged action, and warnings about columns."""

import json
import logging
import re
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from foreign_logs import make_log, save, transitions_of, write_csv

import gtrl
from gtrl.algorithms import ALGORITHMS, make
from gtrl.cli import main
from gtrl.data.checks import check_arrays, check_file
from gtrl.data.columns import column_facts, goal_warnings, unscaled_warnings
from gtrl.data.dataset import Dataset, make_dataset
from gtrl.data.description import KEY, Description, read_description
from gtrl.data.load import load_dataset
from gtrl.data.sampling import gather
from gtrl.errors import DataError, RunError
from gtrl.evaluation.trained import TrainedNets
from gtrl.io.scaling import LIMIT, Scaling, bounds_of, center_and_scale, fit_scaling
from gtrl.report.dataset import examine

RNG = np.random.default_rng(0)
N = 20_000
TINY: dict[str, Any] = {"hidden": (8,), "batch_size": 16, "steps": 20, "log_every": 20, "seeds": 0, "show": False}


# --- centre and scale ---


def scale_of(column: np.ndarray) -> tuple[float, float]:
    center, scale = center_and_scale(column[:, None])
    return float(center[0]), float(scale[0])


def test_normal_column_has_its_mean_and_deviation():
    center, scale = scale_of(101_325 + 50 * RNG.standard_normal(N))
    assert center == pytest.approx(101_325, abs=2)
    assert scale == pytest.approx(50, rel=0.05)


@pytest.mark.parametrize("value", [0.0, 7.0, -3e8])
def test_constant_column_is_centred_and_not_scaled(value):
    noise = 1e-9 * abs(value) * RNG.standard_normal(N)  # below the precision of float32
    center, scale = scale_of((value + noise).astype(np.float32))
    assert center == pytest.approx(value)
    assert scale == pytest.approx(1.0, abs=30)  # float32 rounds -3e8 to multiples of 32
    assert scale_of(np.full(N, value)) == (value, 1.0)


def test_small_range_at_a_large_offset_is_not_constant_in_float64():
    milliseconds = 1.7e12 + 20.0 * np.arange(N)
    center, scale = scale_of(milliseconds)
    assert (milliseconds.max() - center) / scale == pytest.approx(1.8, abs=0.1)


def test_single_outliers_change_nothing():
    column = RNG.standard_normal(N)
    clean = scale_of(column)
    column[:5] = 1e9
    assert scale_of(column) == pytest.approx(clean, abs=0.01)


def test_frequent_spikes_stay_within_the_limit():
    column = 1e-3 * RNG.standard_normal(N)
    column[::25] = 50.0  # 4 % of the rows: outside of the middle 90 %
    center, scale = scale_of(column)
    assert (50 - center) / scale == pytest.approx(LIMIT)


def test_missing_readings_leave_the_other_values_apart():
    column = RNG.uniform(0, 1, N)
    _, clean = scale_of(column)
    column[::100] = -999
    center, scale = scale_of(column)
    assert center == pytest.approx(0.5, abs=0.02)
    assert scale == pytest.approx(3 * clean, rel=0.02)


def test_heavy_tails_stay_usable():
    column = RNG.standard_cauchy(N)
    center, scale = scale_of(column)
    assert scale == pytest.approx(3 * 2 * 6.314 / 3.29, rel=0.1)  # the middle 90 % are within ±6.314
    assert (np.abs(column - center) > LIMIT * scale).mean() < 0.01


def test_rounding_noise_is_not_amplified():
    column = 1e-17 * RNG.standard_normal(N)
    column[::100] = 1.0
    assert scale_of(column)[1] == pytest.approx(column.std())


def test_rare_event_is_visible():
    column = np.zeros(N)
    column[::5000] = 1.0  # fewer than the outermost 0.2 %
    center, scale = scale_of(column)
    assert (center, scale) == (0.0, pytest.approx(column.std()))


# --- bounds of actions ---


def test_bounds_of_actions():
    small, large = np.array([[0.2, -0.9], [0.5, 1.0]]), np.array([[0.2, -4.0], [0.5, 3.0], [np.nan, np.nan]])
    assert np.array_equal(bounds_of(small), [[0.2, -1], [0.5, 1]])
    assert np.array_equal(bounds_of(large), [[0.2, -4.0], [0.5, 3.0]])


def test_bounds_are_found_column_by_column():
    columns = {
        "small": RNG.uniform(-0.02, 0.02, N), "near 1": RNG.uniform(-0.97, 0.8, N), "large": RNG.uniform(-3, 5, N),
        "constant": np.full(N, 0.7), "zero": np.zeros(N), "switch": np.arange(N) % 2.0,
    }  # fmt: skip
    actions = np.stack(list(columns.values()), 1)
    low, high = bounds_of(actions)
    assert low.tolist() == [actions[:, 0].min(), -1, actions[:, 2].min(), 0.7, 0, -1]
    assert high.tolist() == [actions[:, 0].max(), 1, actions[:, 2].max(), 0.7, 0, 1]
    scaling = fit_scaling(actions, actions, actions)
    assert np.abs(scaling.action(actions)[:, 0]).max() == pytest.approx(1)  # small actions fill their bounds
    assert np.allclose(scaling.raw_action(scaling.action(actions)), actions, atol=1e-6)


@pytest.mark.parametrize(("low", "high"), [(-0.3, 0.3), (0.1, 0.7), (-0.7, 1e-3), (0.3, 0.3)])
def test_raw_actions_stay_within_bounds_in_float64(low, high):
    actions = np.array([[low], [high]])
    scaling = fit_scaling(actions, actions, actions, ([low], [high]))
    found = scaling.raw_action([[-1], [-0.999], [0], [0.999], [1]])
    assert found.dtype == np.float32
    assert np.allclose(found[[0, -1], 0], [low, high], rtol=1e-6)
    if low < high:
        space = gymnasium.spaces.Box(low, high, (1,), np.float64)
        assert all(space.contains(action) for action in found)
    assert np.isnan(scaling.raw_action([[np.nan]])).all()


def test_large_units_are_float64():
    rows = 5.4e6 + 0.5 * RNG.standard_normal((N, 1))
    scaling = fit_scaling(rows, rows, rows)
    for scaled, back in ((scaling.observation, scaling.raw_observation), (scaling.goal, scaling.raw_goal)):
        assert np.abs(back(scaled(rows)) - rows).max() < 1e-5  # float32 has steps of 0.5 there


def test_actions_are_mapped_from_their_bounds_and_back():
    actions = np.array([[-5.0, 2.0, 7.0], [5.0, 4.0, 7.0], [0.0, 2.5, 7.0]])
    scaling = fit_scaling(actions, actions, actions, ([-5, 2, 7], [5, 4, 7]))
    assert np.allclose(scaling.action(actions), [[-1, -1, 0], [1, 1, 0], [0, -0.5, 0]])
    assert np.allclose(scaling.raw_action(scaling.action(actions)), actions)
    assert np.array_equal(scaling.raw_action(RNG.uniform(-1, 1, (9, 3)))[:, 2], np.full(9, 7))  # it never changes


def test_scaling_of_many_rows_equals_that_of_single_rows():
    rows = 1e5 + RNG.standard_normal((70_000, 2))
    scaling = fit_scaling(rows, rows, rows)
    expected = np.clip((rows - scaling.observation_center) / scaling.observation_scale, -LIMIT, LIMIT)
    assert np.array_equal(scaling.observation(rows), expected.astype(np.float32))
    assert np.array_equal(scaling.observation(rows[-1]), expected[-1].astype(np.float32))
    assert np.allclose(scaling.raw_observation(scaling.observation(rows)), rows, atol=0.01)


# --- datasets ---


def own_arrays(last_action: bool = True, episodes: int = 12, length: int = 20) -> dict[str, np.ndarray]:
    """A point on a line, moved by a force of up to 5; its pressure says nothing."""
    rng = np.random.default_rng(1)
    rows = episodes * length
    position = rng.normal(size=(episodes, length)).cumsum(1).reshape(-1)
    observations = np.stack([position, rng.normal(size=rows), 101_325 + 50 * rng.normal(size=rows)], 1)
    actions = rng.uniform(-5, 5, (rows, 2))
    terminals = np.arange(rows) % length == length - 1
    if not last_action:
        actions[terminals] = np.nan
    return {"observations": observations, "actions": actions, "terminals": terminals, "goals": observations[:, :1]}


def own_file(tmp_path: Any, **changes: Any) -> Any:
    path = tmp_path / "own.npz"
    save(path, **(own_arrays() | changes))
    return path


def test_own_data_is_scaled_by_default(tmp_path):
    data = load_dataset(own_file(tmp_path))
    arrays = own_arrays()
    assert data.scaling == fit_scaling(arrays["observations"], arrays["goals"], arrays["actions"])
    assert np.asarray(data.train.observations).std(0) == pytest.approx(np.ones(3), rel=0.25)
    assert np.abs(data.train.actions).max() == pytest.approx(1, abs=1e-4)
    assert np.array_equal(data.train.goals, data.train.observations[:, :1])


def test_built_in_tasks_are_not_scaled_unless_asked(tmp_path):
    rng = np.random.default_rng(0)
    rows = 30
    arrays = {"observations": 8 + rng.normal(size=(rows, 2)), "actions": rng.uniform(-1, 1, (rows, 2))}
    path = tmp_path / "own.npz"
    save(path, **arrays, terminals=np.arange(rows) % 10 == 9, qpos=arrays["observations"])
    task = "pointmaze-large-navigate"
    assert load_dataset(path, task).scaling is None
    assert np.allclose(load_dataset(path, task).train.observations, arrays["observations"])
    assert np.abs(np.median(load_dataset(path, task, scale=True).train.observations, 0)).max() < 1e-6


def test_bounds_come_from_the_argument_then_the_file_then_the_data(tmp_path, caplog):
    description = Description(action_bounds=(np.array([-10.0, -10]), np.array([10.0, 10])))
    plain, described = own_file(tmp_path), tmp_path / "described.npz"
    save(described, **own_arrays(), **{KEY: description.to_array()})
    found = load_dataset(plain).scaling
    low, high = bounds_of(own_arrays()["actions"])
    assert found
    assert np.allclose(found.action_scale, (high - low) / 2)
    assert "the bounds of actions are not known" in caplog.text
    assert f"action[0] {low[0]:.4g} to {high[0]:.4g}" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.WARNING}  # Python shows no others by default
    caplog.clear()
    for scaling, bound in (
        (load_dataset(described).scaling, 10),
        (load_dataset(described, action_bounds=(-20, 20)).scaling, 20),
    ):
        assert scaling
        assert np.array_equal(scaling.action_scale, [bound, bound])
    assert not caplog.text
    load_dataset(plain, action_bounds=(-4, 4))
    assert "outside of its bounds -4 to 4; it is clipped" in caplog.text


def test_environment_without_usable_bounds_is_named(tmp_path, caplog):
    path = own_file(tmp_path)
    for environment, message in (
        (lambda: Bounded(np.inf), "the environment of arm has no finite bounds of actions"),
        (lambda: Bounded(1.0, 3), "the environment of arm has 3 actions, not 2"),
    ):
        load_dataset(path, gtrl.Task("arm", environment=environment))
        assert message in caplog.text
        assert "the bounds of actions are not known" in caplog.text
        caplog.clear()


@pytest.mark.parametrize(
    "bounds", [(1, -1), (1, 1), ([-1, 2], [1, 2]), (0, np.inf), ([1, 2, 3], [4, 5, 6]), ("a", "b"), (1,), 5]
)
def test_wrong_bounds_are_one_sentence(tmp_path, bounds):
    with pytest.raises(DataError, match="the bounds of actions must be"):
        load_dataset(own_file(tmp_path), action_bounds=bounds)


def test_description_survives_a_file(tmp_path):
    arrays = own_arrays()
    scaling = fit_scaling(arrays["observations"], arrays["goals"], arrays["actions"], (-7, 7))
    columns = {"observation": ["x", "v", "pressure"], "goal": ["x"], "action": ["left", "right"]}
    written = Description(columns, (np.array([-7.0, -7]), np.array([7.0, 7])), scaling, {"format": "npz"})
    path = tmp_path / "described.npz"
    save(path, **arrays, **{KEY: written.to_array()})
    found = read_description(path)
    assert (found.columns, found.scaling, found.source) == (columns, scaling, {"format": "npz"})
    assert load_dataset(path).scaling == scaling
    assert load_dataset(path).columns == columns


def test_stored_scaling_is_used_for_what_it_describes(tmp_path):
    """Not for other goals of a task, nor for bounds of actions that the source did not know."""
    arrays = own_arrays()
    stored = fit_scaling(arrays["observations"] * 2, arrays["goals"] * 2, arrays["actions"])
    path = save(tmp_path / "d.npz", **arrays, **{KEY: Description(scaling=stored).to_array()})
    task = gtrl.Task("speed", goal=(1,), environment=lambda: Bounded(9.0))
    found = load_dataset(path, task).scaling
    assert found
    assert np.array_equal(found.observation_scale, stored.observation_scale)
    assert np.array_equal(found.goal_scale, center_and_scale(arrays["observations"][:, 1:2])[1])
    assert found.action_scale.tolist() == [9, 9]


class Bounded(gymnasium.Env):
    """An environment of which only the action space is used."""

    def __init__(self, bound: float, size: int = 2) -> None:
        self.action_space = gymnasium.spaces.Box(-bound, bound, (size,))


def test_validation_file_of_a_log_must_have_its_dimensions(tmp_path):
    path = own_file(tmp_path)
    save(tmp_path / "own-val.npz", **(own_arrays() | {"observations": own_arrays()["observations"][:, :2]}))
    with pytest.raises(DataError, match=r"own-val\.npz: its dimensions differ from those of own\.npz"):
        load_dataset(path, goal="0:1")
    with pytest.raises(DataError, match="is a folder of shards, whose columns cannot be chosen here"):
        load_dataset(tmp_path, goal="0:1")
    with pytest.raises(DataError, match="give names of columns, or slices"):
        load_dataset(path, goal=slice(0, 1))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": 2}', '{"format": 1, "scaling": {}}', '{"format": 1, "columns": 3}']
)
def test_damaged_description_is_one_sentence(tmp_path, text):
    with pytest.raises(DataError, match="its description is damaged"):
        load_dataset(own_file(tmp_path, description=np.array(text)))


def test_shards_share_the_scaling_of_the_first(tmp_path):
    for index, factor in enumerate((1, 3)):
        arrays = own_arrays()
        save(tmp_path / f"shard-{index}.npz", **(arrays | {"observations": factor * arrays["observations"]}))
    data = load_dataset(tmp_path)
    alone = load_dataset(tmp_path / "shard-0.npz")
    assert data.scaling == alone.scaling
    assert np.array_equal(data.train.observations, alone.train.observations)


# --- policies ---


def test_change_of_units_changes_the_policy_by_the_units_alone(tmp_path):
    """Trained on the same log in other units, a policy gives the same action in these units."""
    arrays = own_arrays()
    factors, offset = np.array([1000.0, 0.01, 1.0]), np.array([5.0, -3.0, 0.0])
    converted = arrays | {"observations": arrays["observations"] * factors + offset, "actions": arrays["actions"] * 3}
    converted["goals"] = converted["observations"][:, :1]
    policies = []
    for name, content in (("a", arrays), ("b", converted)):
        save(tmp_path / f"{name}.npz", **content)
        run = gtrl.train("gtrl", tmp_path / f"{name}.npz", out=tmp_path / name, **TINY)
        policies.append(gtrl.load_policy(run.policy_path(0)))
    s, g = arrays["observations"][:50], arrays["goals"][50:100]
    action = policies[0](s, g)
    assert np.abs(action).max() > 0.01
    assert np.allclose(policies[1](s * factors + offset, g * factors[:1] + offset[:1]), 3 * action, atol=1e-3)


def test_policy_takes_raw_units_as_the_networks_take_scaled_ones(tmp_path):
    run = gtrl.train("gtrl", own_file(tmp_path), out=tmp_path / "run", **TINY)
    policy, trained, data = gtrl.load_policy(run.policy_path(0)), TrainedNets(run, 20), load_dataset(own_file(tmp_path))
    arrays = own_arrays()
    s, g = arrays["observations"][:40], arrays["goals"][40:80]
    assert np.allclose(policy(s, g), trained.actions(0, s, g), atol=1e-5)
    scaled = trained.actions(0, data.train.observations[:40], data.train.goals[40:80], scaled=True)
    assert data.scaling is not None
    assert np.allclose(policy(s, g), data.scaling.action_center + data.scaling.action_scale * scaled, atol=1e-5)
    assert run.config["data"]["scaling"] == data.scaling.to_json()


def test_policy_rejects_nan_unless_told_otherwise(tmp_path):
    run = gtrl.train("bc", own_file(tmp_path), out=tmp_path / "run", **TINY)
    path = run.policy_path(0)
    with pytest.raises(RunError, match="the observation holds NaN or infinity"):
        gtrl.load_policy(path)([0, np.nan, 0], [0])
    assert np.isnan(gtrl.load_policy(path, check_finite=False)([0, np.nan, 0], [0])).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"goal_scale": np.zeros(1)}, "'goal_scale' is not a vector of valid numbers"),
        ({"goal_center": np.full(1, np.nan)}, "'goal_center' is not a vector of valid numbers"),
        ({"goal_center": np.zeros(2), "goal_scale": np.ones(2)}, "its scaling does not match its header's goal_dim"),
        ({"goal_center": None}, "it has no 'goal_center'"),
    ],
)
def test_damaged_scaling_of_a_policy_is_one_sentence(tmp_path, change, message):
    run = gtrl.train("bc", own_file(tmp_path), out=tmp_path / "run", **TINY)
    with np.load(run.policy_path(0)) as file:
        arrays = {name: array for name, array in (dict(file) | change).items() if array is not None}
    save(tmp_path / "damaged.npz", **arrays)
    with pytest.raises(RunError, match=message):
        gtrl.load_policy(tmp_path / "damaged.npz")


def test_resuming_with_another_scaling_is_refused(tmp_path):
    path, out = own_file(tmp_path), tmp_path / "run"
    gtrl.train("bc", path, out=out, **TINY)
    longer: dict[str, Any] = TINY | {"steps": 40}
    with pytest.raises(RunError, match="action_scale"):
        gtrl.train("bc", load_dataset(path, action_bounds=(-9, 9)), out=out, resume=True, **longer)


# --- states without a logged action ---


def without_last_actions() -> tuple[Dataset, np.ndarray]:
    """A dataset in which no episode has a last action, and the last rows."""
    arrays = own_arrays(last_action=False, episodes=6, length=5)
    arrays["actions"] /= 5
    return make_dataset(**arrays), np.flatnonzero(arrays["terminals"])


BOOTSTRAPPING = ("gtrl", "trl", "td", "td-n", "tdp", "coe")  # whose losses read actions of other states


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        *(pytest.param(name, None, marks=() if name in BOOTSTRAPPING else pytest.mark.soak) for name in ALGORITHMS),
        ("gtrl", "authors"),
    ],
)
def test_no_loss_depends_on_an_action_that_was_not_logged(name, preset):
    data, last = without_last_actions()
    method = make(name, preset=preset, hidden=(8,))
    other = data._replace(actions=data.actions.at[last].set(0.7))
    nets = method.init(jax.random.key(0), data.spec)

    @jax.jit
    def loss(dataset: Dataset) -> tuple[Any, Any]:
        batch = method.sample(jax.random.key(1), dataset, 256)
        compute = lambda nets: method.loss(nets, method.targets(nets), batch, jax.random.key(2))[0]  # noqa: E731
        return jax.value_and_grad(compute)(nets)

    for found, expected in zip(jax.tree.leaves(loss(other)), jax.tree.leaves(loss(data)), strict=True):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", ["gtrl", "td"])
def test_rows_without_a_target_have_no_weight_and_base_cases_keep_theirs(name):
    """The loss is the mean over all rows, in which rows that would bootstrap from the last state count 0."""
    data, last = without_last_actions()
    method = make(name, hidden=(8,), alpha=0.0)
    nets = method.init(jax.random.key(0), data.spec)
    i = jnp.asarray([last[0] - 1, last[0] - 1, last[0] - 1, last[1] - 3])
    j = jnp.asarray([last[0], last[0] - 1, last[2], last[3]])  # the next state, the state itself, elsewhere, elsewhere

    @jax.jit
    def critic_loss(rows: Any) -> Any:
        batch = gather(data, i[rows], j[rows], i[rows], j[rows])
        return method.loss(nets, method.targets(nets), batch, jax.random.key(0))[1]["critic_loss"]

    alone = [float(critic_loss(jnp.full(4, row))) for row in range(4)]  # the same row four times
    assert alone[2] == 0
    assert min(alone[0], alone[1], alone[3]) > 0
    mixed = float(critic_loss(jnp.asarray([1, 2, 2, 3])))
    assert mixed == pytest.approx((alone[1] + alone[3]) / 4, rel=1e-5)


def test_n_step_targets_end_at_the_last_state_with_an_action():
    data, last = without_last_actions()
    i = jnp.arange(last[0])  # rows 0 to 3 of an episode of five
    batch = gather(data, i, i, i, i, lookahead=3)
    assert batch.ahead_steps.tolist() == [3, 2, 1, 1]
    assert batch.ahead_has_action is not None
    assert batch.ahead_has_action.tolist() == [True, True, True, False]


def test_nan_is_an_action_only_where_none_was_logged():
    arrays = own_arrays(last_action=False)
    assert check_arrays(arrays, scaled=True) == []
    arrays["actions"][3] = np.nan
    assert "'actions' holds NaN or infinity in 1 rows, first in row 3" in check_arrays(arrays, scaled=True)
    arrays = own_arrays()
    arrays["actions"][arrays["terminals"], 0] = np.nan  # half an action
    assert "'actions' holds NaN or infinity in 12 rows, first in row 19" in check_arrays(arrays, scaled=True)


# --- warnings ---


def walk(rows: int = 2000) -> np.ndarray:
    """Two angles that move smoothly."""
    return np.random.default_rng(2).normal(size=(rows, 2)).cumsum(0) * 0.05


def logged(observations: np.ndarray, goals: np.ndarray) -> dict[str, np.ndarray]:
    terminals = np.arange(len(observations)) % 100 == 99
    return {"observations": observations, "actions": observations, "terminals": terminals, "goals": goals}


def test_achieved_goals_are_not_warned_about():
    angles = walk()
    tip = np.stack([np.cos(angles[:, 0]) + np.cos(angles.sum(1)), np.sin(angles[:, 0]) + np.sin(angles.sum(1))], 1)
    assert goal_warnings(logged(angles, tip), tip) == []
    button = (np.arange(2000) // 60 % 2)[:, None].astype(float)  # constant over stretches, but part of the state
    assert goal_warnings(logged(np.hstack([angles, button]), button), button) == []


def test_commanded_goals_are_warned_about():
    angles = walk()
    held = np.repeat(np.random.default_rng(3).normal(size=(40, 2)), 50, 0)
    assert "they stay the same in" in goal_warnings(logged(angles, held), held)[0]
    blended = angles + held  # it follows the state, and jumps with the command
    assert "they jump in" in goal_warnings(logged(angles, blended), blended)[0]


def test_a_target_is_commanded_even_if_it_is_part_of_the_observation():
    angles = walk()
    targets = np.repeat(np.random.default_rng(3).normal(size=(40, 2)), 50, 0)
    columns = {"goal": ["target_x", "target_y"]}
    (warning,) = goal_warnings(logged(np.hstack([angles, targets]), targets), targets, columns)
    assert "they stay the same in 99 % of the steps, while the state moves, and then change at once" in warning
    assert "(target_x, target_y)" in warning
    assert "harmless only for an object that stands still" in warning
    mixed = np.hstack([angles[:, :1], targets[:, :1]])  # only the second column is commanded
    assert "(goal[1])" in goal_warnings(logged(np.hstack([angles, targets]), mixed), mixed)[0]
    per_episode = np.repeat(np.random.default_rng(3).normal(size=(20, 1)), 100, 0)
    assert "in 100 % of the steps" in goal_warnings(logged(angles, per_episode), per_episode)[0]


def test_an_object_that_stands_still_for_long_is_achieved():
    """A door that is pushed for ten steps of every hundred; its sine and cosine are part of the observation."""
    pushed = np.arange(2000) % 100 >= 90
    door = (0.1 * pushed * RNG.uniform(0.5, 1, 2000)).reshape(20, 100).cumsum(1).reshape(-1, 1)
    observations = np.hstack([walk(), np.sin(door), np.cos(door)])
    assert goal_warnings(logged(observations, door), door) == []
    assert goal_warnings(logged(np.hstack([observations, door]), door), door) == []
    constant = np.full((2000, 1), 0.3)
    assert goal_warnings(logged(observations, constant), constant) == []
    assert goal_warnings({**logged(observations, door), "goals": observations}, observations) == []


def warnings_of(path: Any, caplog: pytest.LogCaptureFixture, **options: Any) -> str:
    """The warnings of loading, which `gtrl data check` has too, unless it cannot know the options."""
    caplog.clear()
    load_dataset(path, **options)
    if not options:
        found = examine(path).warnings
        assert all(record.getMessage().rstrip(".") in found for record in caplog.records)
    return caplog.text


def test_glitch_in_an_action_is_warned_about(tmp_path, caplog):
    actions = RNG.uniform(-0.01, 0.01, (240, 2))
    clean = warnings_of(own_file(tmp_path, actions=actions), caplog)
    assert "small part" not in clean
    actions[17, 0] = 1000
    found = warnings_of(own_file(tmp_path, actions=actions), caplog)
    assert re.search(r"the action\[0\] lies within -0\.\d+ to 0\.\d+ in 99.8 % of the rows, a small part of", found)
    assert "a small part of its bounds -0.00" in found
    assert "to 1000: remove outliers" in found


def test_actions_in_a_small_part_of_given_bounds_are_warned_about(tmp_path, caplog):
    path = own_file(tmp_path)
    assert "a small part of its bounds -100 to 100" in warnings_of(path, caplog, action_bounds=(-100, 100))
    assert "small part" not in warnings_of(path, caplog, action_bounds=(-10, 10))


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_missing_readings_are_warned_about(tmp_path, caplog, share):
    arrays = own_arrays(episodes=100)
    observations = arrays["observations"].copy()
    observations[:: round(1 / share), 1] = -999
    found = warnings_of(own_file(tmp_path, **arrays | {"observations": observations}), caplog)
    assert f"observation[1] ({100 * share:.2g} % of the rows, typically -999; scaled as" in found
    assert "observation[0]" not in found


def test_stale_scaling_is_used_shown_and_warned_about(tmp_path, caplog):
    arrays = own_arrays()
    stored = fit_scaling(arrays["observations"], arrays["goals"], arrays["actions"])
    bounds = (np.array([-20.0, -20]), np.array([30.0, 30]))
    changed = arrays | {"observations": arrays["observations"] * 1000}
    path = save(tmp_path / "d.npz", **changed, **{KEY: Description({}, bounds, stored).to_array()})
    found = warnings_of(path, caplog)
    assert re.search(r"values lie far outside of their column's scale: observation\[0\] \(9\d % of the rows", found)
    report = examine(path)
    assert report.scaling == load_dataset(path).scaling
    shown = {(fact.name, fact.center, fact.scale) for fact in report.columns}
    assert ("action[1]", 5, 25) in shown
    assert ("observation[2]", stored.observation_center[2], stored.observation_scale[2]) in shown


def test_check_reads_what_training_reads(tmp_path, capsys):
    log = make_log((300, 200, 600))
    sources = {
        "next.npz": save(tmp_path / "next.npz", **transitions_of(log)),
        "timeouts.npz": save(tmp_path / "timeouts.npz", **{
            "timeouts" if name == "terminals" else name: rows for name, rows in log.items()
        }),
        "CSV": write_csv(tmp_path / "log.csv", log),
    }  # fmt: skip
    for name, source in sources.items():
        assert main(["data", "check", str(source), "--goal", "0:2"]) == 0, name
        printed = capsys.readouterr().out
        assert "episodes     3, of 200 to 600 transitions\ntransitions  1,100\n" in printed
        assert "goals        1103×2" in printed
        cells = [[cell.strip() for cell in line.split("│")] for line in printed.splitlines()]
        lowest = [float(row[3]) for row in cells if row[1:2] == ["goal"]]
        assert lowest == pytest.approx(log["observations"][:, :2].min(0), rel=1e-5), name
    assert main(["data", "check", str(sources["CSV"]), "--goal", "nothing"]) == 2
    assert "there is no column 'nothing' for the goal" in capsys.readouterr().err


def test_pixels_in_a_dataset_file_are_named(tmp_path):
    rows = np.arange(12) % 4 == 3
    for name, images in (("a", np.zeros((12, 8, 8, 3))), ("b", np.zeros((12, 8, 8), np.uint8))):
        path = save(tmp_path / f"{name}.npz", observations=images, actions=np.zeros((12, 2)), terminals=rows)
        with pytest.raises(DataError, match=r"not \(rows, dimension\): it holds pixels, which are not supported yet:"):
            load_dataset(path)
        assert "choose the log's state features instead" in examine(path).problems[0]


def test_check_shows_every_column(tmp_path):
    arrays = own_arrays()
    position = arrays["observations"][:, :1]
    arrays["observations"] = np.hstack([arrays["observations"], np.full_like(position, 4), position])
    report = check_file(own_file(tmp_path, **arrays))
    notes = {fact.name: fact.note for fact in report.columns}
    assert notes["observation[3]"] == "constant"
    assert notes["observation[4]"] == "equals observation[0]"
    assert report.problems == []
    assert any("columns stand twice (observation[4])" in warning for warning in report.warnings)
    pressure = report.columns[2]
    assert (pressure.low, pressure.high) == (arrays["observations"][:, 2].min(), arrays["observations"][:, 2].max())
    goals = arrays["observations"][:, :1]
    assert ["observation[2]" in text for text in unscaled_warnings(column_facts(arrays, goals, {}))] == [True]


def test_unscaled_pressure_is_warned_about(tmp_path, caplog):
    arrays = own_arrays()
    load_dataset(own_file(tmp_path, actions=arrays["actions"] / 5), scale=False)
    assert "observation[2] is 1013" in caplog.text
    assert "is not scaled: learning will suffer" in caplog.text


def test_scaling_is_json():
    arrays = own_arrays()
    scaling = fit_scaling(arrays["observations"], arrays["goals"], arrays["actions"])
    assert Scaling.from_mapping(json.loads(json.dumps(scaling.to_json()))) == scaling


def test_a_logged_action_may_never_change(tmp_path):
    """Its bounds in a file's description may be equal; those that a user gives may not."""
    actions = np.column_stack([RNG.uniform(-4, 4, 60), np.full(60, 0.25)])
    description = json.dumps({"format": 1, "action_low": [-5, 0.25], "action_high": [5, 0.25]})
    arrays = {"observations": RNG.normal(size=(60, 2)), "actions": actions, "terminals": np.arange(60) % 20 == 19}
    np.savez(tmp_path / "x.npz", **arrays, description=description)
    scaling = load_dataset(tmp_path / "x.npz").scaling
    assert scaling is not None
    assert scaling.action_scale.tolist() == [5, 0]
    with pytest.raises(DataError, match="the lowest less than the highest"):
        load_dataset(tmp_path / "x.npz", action_bounds=([-5, 0.25], [5, 0.25]))
