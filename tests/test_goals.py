"""The sampler against exact probabilities, worked out by loops, and against the dataset row by row.

Each row of the datasets here carries its own number, so that the rows of a batch can be identified.
"""

from functools import partial
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gtrl.algorithms import make
from gtrl.data.dataset import Dataset, make_dataset
from gtrl.data.sampling import Batch, sample_batch, sample_goals
from gtrl.tasks import Goals, WaypointDraw, WaypointSource

LENGTHS = (2, 40, 3, 17, 5, 9)
DRAWS = 200_000  # for a distribution
ROWS = 2000  # checked one by one
OFFSET = 1000  # between a row's number and its oracle goal: the two cannot be mixed up
TRAJECTORY: Goals = (0.0, 1.0, 0.0)
RANDOM: Goals = (0.0, 0.0, 1.0)
MIXED: Goals = (0.2, 0.5, 0.3)


def numbered(lengths: tuple[int, ...] = LENGTHS, first: int = 0, identity: Any = None) -> Dataset:
    """A dataset whose row r has observation (r, .), action r / 1000 and goal r + OFFSET, counted from `first`."""
    number = first + np.arange(sum(lengths))
    terminals = np.isin(np.arange(sum(lengths)), np.cumsum(lengths) - 1)
    observations = np.stack([number, np.zeros(len(number))], -1)
    return make_dataset(observations, number[:, None] / 1000, terminals, number[:, None] + OFFSET, identity)


def ends_of(lengths: tuple[int, ...]) -> list[int]:
    """The last row of each row's trajectory."""
    ends: list[int] = []
    for length in lengths:
        ends += [len(ends) + length - 1] * length
    return ends


def rows_of(batch: Batch) -> tuple[np.ndarray, ...]:
    """(i, j, k, the actor's j) of every drawn row."""
    i, j, k = (np.asarray(part[:, 0], int) for part in (batch.observation, batch.value_goal, batch.subgoal))
    return i, j, k, np.asarray(batch.actor_goal[:, 0], int) - OFFSET


def draw(seed: int, dataset: Dataset, size: int = DRAWS, **fields: Any) -> Batch:
    fields = {"gamma": 0.9, "value_goals": MIXED, "actor_goals": MIXED, **fields}
    return sample_batch(jax.random.key(seed), dataset, size, **fields)


# --- exact probabilities ---


def goal_probabilities(row: int, end: int, rows: int, mixture: Goals, geometric: bool, gamma: float) -> np.ndarray:
    current, trajectory, anywhere = mixture
    p = np.full(rows, anywhere / rows)
    p[row] += current
    for t in range(1, end - row + 1):
        if not geometric:
            offset = 1 / (end - row)
        elif row + t < end:
            offset = gamma ** (t - 1) * (1 - gamma)
        else:
            offset = gamma ** (t - 1)  # all that would have gone further
        p[row + t] += trajectory * offset
    np.testing.assert_allclose(p.sum(), 1)
    return p


def pair_probabilities(lengths: tuple[int, ...], *how: Any) -> np.ndarray:
    """P(i, j): transitions uniform over the rows that are not a trajectory's last."""
    ends = ends_of(lengths)
    transitions = [row for row, end in enumerate(ends) if row < end]
    table = np.zeros((len(ends), len(ends)))
    for row in transitions:
        table[row] = goal_probabilities(row, ends[row], len(ends), *how) / len(transitions)
    return table


def assert_follows(p: np.ndarray, *indices: np.ndarray) -> None:
    """Chi-square of draws, given as index arrays into the table p; impossible entries must not be drawn."""
    counts = np.zeros(p.shape)
    np.add.at(counts, indices, 1)
    assert counts[p == 0].sum() == 0
    if (p > 0).sum() == 1:
        return  # there is only one outcome
    expected = p * len(indices[0])
    rare = expected < 5  # too few for the approximation: one cell together
    observed, expected = (np.append(table[~rare], table[rare].sum()) for table in (counts, expected))
    if expected[-1] < 5:
        observed, expected = observed[:-1], expected[:-1] * observed[:-1].sum() / expected[:-1].sum()
    assert stats.chisquare(observed, expected).pvalue > 1e-3


# --- distributions ---


def test_transitions():
    i = rows_of(draw(0, numbered()))[0]
    ends = np.array(ends_of(LENGTHS))
    assert_follows((np.arange(len(ends)) < ends) / (len(ends) - len(LENGTHS)), i)


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("geometric", [True, False])
@pytest.mark.parametrize("mixture", [TRAJECTORY, MIXED])
def test_goals(mixture, geometric, gamma):
    """Every pair (state, goal), for the critic and for the actor, each with its own settings."""
    other: Goals = (0.5, 0.3, 0.2)
    batch = draw(
        1,
        numbered(),
        gamma=gamma,
        value_goals=mixture,
        value_geometric=geometric,
        actor_goals=other,
        actor_geometric=not geometric,
    )
    i, j, _, actor_j = rows_of(batch)
    assert_follows(pair_probabilities(LENGTHS, mixture, geometric, gamma), i, j)
    assert_follows(pair_probabilities(LENGTHS, other, not geometric, gamma), i, actor_j)


@pytest.mark.parametrize("geometric", [True, False])
@pytest.mark.parametrize(("row", "end"), [(3, 4), (3, 10), (0, 99)])
def test_goals_of_one_state(row, end, geometric):
    """`sample_goals` by itself: a trajectory's last step, a short rest and a long one."""
    where = jnp.full(DRAWS, row), jnp.full(DRAWS, end)
    j = sample_goals(jax.random.key(2), *where, rows=100, mixture=TRAJECTORY, geometric=geometric, gamma=0.97)
    assert_follows(goal_probabilities(row, end, 100, TRAJECTORY, geometric, 0.97), np.asarray(j))


@pytest.mark.parametrize("gamma", [1 - 2**-24, 1 - 1e-9, 1.0])
def test_a_discount_close_to_1(gamma: float) -> None:
    """The largest one a method takes, and ones that float32 rounds to 1: goals stay ahead on the trajectory.

    P(offset > 9) = gamma^9 is 1 but for 5e-7: nearly every draw goes to the end, ten steps ahead.
    """
    where = jnp.full(DRAWS, 3), jnp.full(DRAWS, 13)
    j = sample_goals(jax.random.key(2), *where, rows=100, mixture=TRAJECTORY, geometric=True, gamma=gamma)
    assert 4 <= int(j.min()) <= int(j.max()) == 13
    assert float(jnp.mean(j == 13)) > 0.999
    # On the longest trajectory there may be, goals are spread: P(offset <= 2^24) = 1 - (1 - 2^-24)^(2^24) = 1 - 1 / e.
    end = 2**31 - 2
    where = jnp.zeros(DRAWS, jnp.int32), jnp.full(DRAWS, end)
    j = sample_goals(jax.random.key(3), *where, rows=end + 1, mixture=TRAJECTORY, geometric=True, gamma=gamma)
    assert int(j.min()) >= 1
    assert int(j.max()) <= end
    assert float(jnp.mean(j <= 2**24)) == pytest.approx(1 - np.exp(-1), abs=4 / DRAWS**0.5)


def test_random_goals_are_any_row():
    """Rows that are a trajectory's last are goals like all others."""
    rows = sum(LENGTHS)
    batch = draw(3, numbered(), value_goals=RANDOM, actor_goals=RANDOM)
    for j in (rows_of(batch)[1], rows_of(batch)[3]):
        assert_follows(np.full(rows, 1 / rows), j)


@pytest.mark.parametrize("geometric", [True, False])
def test_subgoals(geometric):
    """Uniform on {i, ..., j - 1} where the goal lies ahead, by the length of the segment."""
    pairs, ends = pair_probabilities(LENGTHS, MIXED, geometric, 0.9), ends_of(LENGTHS)
    p = np.zeros((max(LENGTHS), max(LENGTHS)))
    for row, end in enumerate(ends):
        for goal in range(row + 1, end + 1):
            length = goal - row
            p[length, :length] += pairs[row, goal] / length
    batch = draw(4, numbered(), value_geometric=geometric)
    i, j, k, _ = rows_of(batch)
    m = np.asarray(batch.decomposable)
    assert_follows(p / p.sum(), (j - i)[m], (k - i)[m])
    np.testing.assert_array_equal(k[~m], i[~m])


@pytest.mark.parametrize("geometric", [True, False])
def test_joint_distribution(geometric):
    """Goal, subgoal and the actor's goal depend on each other through the state alone (and k on j)."""
    lengths = (4, 3)
    rows, ends = sum(lengths), ends_of(lengths)
    how = {"value_geometric": geometric, "actor_geometric": not geometric}
    value, actor = (pair_probabilities(lengths, MIXED, each, 0.9) for each in how.values())
    p = np.zeros((rows,) * 4)
    for i in range(rows):
        if i == ends[i]:
            continue
        for j in range(rows):
            subgoals = range(i, j) if i < j <= ends[i] else [i]
            for k in subgoals:
                p[i, j, k] = value[i, j] / len(subgoals) * actor[i] / actor[i].sum()
    assert_follows(p, *rows_of(draw(5, numbered(lengths), **how)))


# --- waypoints ---

SOURCES = [source for source in get_args(WaypointSource) if source != "none"]


def way(row: int, direction: int, lengths: tuple[int, ...], how: WaypointDraw, gamma: float) -> dict[int, float]:
    """The probabilities of the rows after (direction 1) or before a row, on its trajectory."""
    ends = ends_of(lengths)
    rows = [k for k in range(len(ends)) if ends[k] == ends[row] and (k - row) * direction > 0][::direction]
    if how == "uniform":
        return {k: 1 / len(rows) for k in rows}
    if how == "farthest":
        return dict.fromkeys(rows[-1:], 1.0)
    return {k: gamma**n * (1 if n == len(rows) - 1 else 1 - gamma) for n, k in enumerate(rows)}


@pytest.mark.parametrize("how", get_args(WaypointDraw))
@pytest.mark.parametrize("source", SOURCES)
def test_waypoints(source: WaypointSource, how: WaypointDraw):
    """The joint distribution of state, goal and w: a subgoal where m = 1, elsewhere a waypoint, or s without one."""
    lengths = (4, 3)
    rows, ends = sum(lengths), ends_of(lengths)
    pairs = pair_probabilities(lengths, MIXED, True, 0.9)
    halves = {"state": [True], "goal": [False], "both": [True, False], "random": [None]}[source]
    transitions = [k for k, end in enumerate(ends) if k < end]
    p = np.zeros((rows,) * 3)
    for i, j in np.ndindex(rows, rows):
        if i < j <= ends[i]:
            p[i, j, i:j] = pairs[i, j] / (j - i)
            continue
        for by_state in halves:
            found = way(i, 1, lengths, how, 0.9) if by_state else way(j, -1, lengths, how, 0.9)
            if by_state is None:
                found = dict.fromkeys(transitions, 1 / len(transitions))
            for k, share in (found or {i: 1.0}).items():
                p[i, j, k] += pairs[i, j] * share / len(halves)
    batch = draw(7, numbered(lengths), waypoint=source, waypoint_draw=how)
    i, j, k, _ = rows_of(batch)
    assert_follows(p, i, j, k)
    np.testing.assert_array_equal(batch.has_waypoint, ~np.asarray(batch.decomposable) & (k != i))


@pytest.mark.parametrize("source", SOURCES)
def test_flags_of_waypoints(source: WaypointSource):
    """A waypoint is never the same state as s; one-step base cases are for subgoals only."""
    identity = np.random.default_rng(0).integers(0, 4, sum(LENGTHS))
    batch = draw(8, numbered(identity=identity), value_goals=RANDOM, waypoint=source, waypoint_draw="farthest")
    i, j, k, _ = rows_of(batch)
    waypoint, m = np.asarray(batch.has_waypoint), np.asarray(batch.decomposable)
    assert (identity[k] != identity[i])[waypoint].all()
    assert 0.3 < waypoint.mean() < 0.9
    follows = identity[j] == identity[np.minimum(k + 1, len(identity) - 1)]
    assert (waypoint & (identity[k] == identity[i + 1])).any()
    assert (waypoint & follows).any()
    np.testing.assert_array_equal(batch.subgoal_is_next, (identity[k] == identity[i + 1]) & ~waypoint)
    np.testing.assert_array_equal(batch.goal_is_after_subgoal, follows & ~waypoint)
    assert (m & follows).any()


@pytest.mark.parametrize("source", ["both", "random"])
def test_waypoints_have_a_logged_action(source: WaypointSource):
    data = numbered()
    actions = np.array(data.actions)
    last = np.asarray(data.ends) == np.arange(len(actions))
    actions[last] = np.nan
    data = make_dataset(data.observations, actions, last, data.goals)
    batch = draw(9, data, value_goals=RANDOM, waypoint=source, waypoint_draw="farthest")
    k = rows_of(batch)[2][np.asarray(batch.has_waypoint)]
    assert not last[k].any()
    assert len(set(k)) > 1


def test_waypoints_change_nothing_else():
    plain, other = (draw(10, numbered(), ROWS, waypoint=source) for source in ("none", "both"))
    of_w = {"subgoal", "subgoal_action", "subgoal_offset"}
    for name in Batch._fields:
        one, two = getattr(plain, name), getattr(other, name)
        if name not in of_w and "subgoal" not in name:
            np.testing.assert_array_equal(one, two)
    m = np.asarray(plain.decomposable)
    np.testing.assert_array_equal(plain.subgoal[m], other.subgoal[m])
    np.testing.assert_array_equal(rows_of(plain)[2][~m], rows_of(plain)[0][~m])


# --- every row drawn ---


def in_numpy(batch: Batch) -> Any:
    return jax.tree.map(np.asarray, batch)


@pytest.mark.parametrize("mixture", [TRAJECTORY, RANDOM, MIXED])
@pytest.mark.parametrize("states", [None, 4])
def test_rows(mixture, states):
    """Fields and flags of each row against the dataset; with `states`, rows come back to a few states."""
    count = sum(LENGTHS)
    identity = np.arange(count) if states is None else np.random.default_rng(0).integers(0, states, count)
    data = numbered(identity=None if states is None else identity)
    batch = draw(6, data, ROWS, value_goals=mixture, actor_goals=TRAJECTORY)
    ends = ends_of(LENGTHS)
    b = in_numpy(batch)
    seen = {"ahead": 0, "here": 0, "behind": 0, "elsewhere": 0}
    for row, (i, j, k, actor_j) in enumerate(zip(*rows_of(batch), strict=True)):
        number = {
            "observation": i,
            "next_observation": i + 1,
            "value_goal": j,
            "subgoal": k,
            "value_goal_oracle": j + OFFSET,
            "actor_goal": actor_j + OFFSET,
            "action": i / 1000,
            "next_action": (i + 1) / 1000,
            "subgoal_action": k / 1000,
        }
        for name, expected in number.items():
            assert getattr(b, name)[row, 0] == np.float32(expected), name
        assert i < ends[i]
        assert i < actor_j <= ends[i]

        same_trajectory = ends[j] == ends[i]
        place = ("ahead" if j > i else "here" if j == i else "behind") if same_trajectory else "elsewhere"
        seen[place] += 1
        assert b.decomposable[row] == (place == "ahead")
        assert i <= k < max(j, i + 1) if place == "ahead" else k == i
        assert b.goal_offset[row] == j - i
        assert b.subgoal_offset[row] == k - i

        assert b.goal_is_state[row] == (identity[j] == identity[i])
        assert b.goal_is_next[row] == (identity[j] == identity[i + 1])
        assert b.subgoal_is_state[row] == (identity[k] == identity[i])
        assert b.subgoal_is_next[row] == (identity[k] == identity[i + 1])
        assert b.goal_is_subgoal[row] == (identity[j] == identity[k])
        assert b.goal_is_after_subgoal[row] == (identity[j] == identity[k + 1])
    if mixture == TRAJECTORY:
        assert seen["ahead"] == ROWS
    else:
        assert min(seen.values()) > 5  # a random goal may lie ahead on the same trajectory, here or behind


def test_base_cases_are_offsets_on_continuous_data():
    """Without repeats the flags are the index offsets: g = s only at 0, g = s' only at 1, and so on."""
    b = in_numpy(draw(7, numbered(), ROWS))
    left = b.goal_offset - b.subgoal_offset
    np.testing.assert_array_equal(b.goal_is_state, b.goal_offset == 0)
    np.testing.assert_array_equal(b.goal_is_next, b.goal_offset == 1)
    np.testing.assert_array_equal(b.subgoal_is_state, b.subgoal_offset == 0)
    np.testing.assert_array_equal(b.subgoal_is_next, b.subgoal_offset == 1)
    np.testing.assert_array_equal(b.goal_is_subgoal, left == 0)
    np.testing.assert_array_equal(b.goal_is_after_subgoal, left == 1)


# --- n steps ahead ---

AHEAD = ("ahead_observation", "ahead_action", "ahead_steps", "arrives", "arrival")
STATES = np.random.default_rng(3).integers(0, 12, sum(LENGTHS))  # every state comes back, in other trajectories too


def walk(i: int, goal: int, end: int, n: int, identity: np.ndarray) -> tuple[int, int | None]:
    """From row i up to n steps along its trajectory: the row it gets to, and after how many steps it met the goal."""
    row, met = i, None
    for step in range(n + 1):
        if met is None and identity[row] == identity[goal]:
            met = step
        if row == end or step == n:
            break
        row += 1
    return row, met


@pytest.mark.parametrize("n", [1, 3, 50])
@pytest.mark.parametrize("mixture", [TRAJECTORY, RANDOM])
@pytest.mark.parametrize("identity", [None, STATES], ids=["continuous", "finite"])
def test_ahead(identity, mixture, n):
    """Row by row against a walk along the trajectory, and every kind of row that there can be was among them."""
    batch = draw(10, numbered(identity=identity), 2 * ROWS, value_goals=mixture, lookahead=n)
    same = np.arange(sum(LENGTHS)) if identity is None else identity
    ends, last = ends_of(LENGTHS), sum(LENGTHS) - 1
    b = in_numpy(batch)
    seen = set()
    for row, (i, j, *_) in enumerate(zip(*rows_of(batch), strict=True)):
        ahead, met = walk(i, j, ends[i], n, same)
        assert b.ahead_observation[row, 0] == ahead
        assert b.ahead_action[row, 0] == np.float32(ahead / 1000)
        assert b.ahead_steps[row] == ahead - i
        assert b.arrives[row] == (met is not None)
        if met is not None:
            assert b.arrival[row] == met

        if met is None:
            passed_later = same[j] in same[ahead + 1 : i + n + 1]  # by looking over the trajectory's end
            kinds = {
                "too late": ahead < j <= ends[i],
                "cut short": ahead < i + n,
                "cut short, met in the next trajectory": passed_later,
                "cut short by the end of the data": ahead < i + n and ahead == last,
            }
        else:
            kinds = {
                "here": met == 0,
                "after the last step": met == n,
                "at the trajectory's end": met > 0 and i + met == ends[i],
                "sooner than drawn": i + met < j <= ends[i],
                "though drawn elsewhere": not i <= j <= ends[i],
            }
        seen |= {kind for kind, found in kinds.items() if found}

    possible = {"at the trajectory's end"}
    possible |= {"after the last step", "too late"} if n < max(LENGTHS) else set()
    if mixture == RANDOM or identity is not None:
        possible |= {"here"}
    if mixture == RANDOM and n > 1:
        possible |= {"cut short", "cut short, met in the next trajectory", "cut short by the end of the data"}
    if identity is not None:
        possible |= {"sooner than drawn"} | ({"though drawn elsewhere"} if mixture == RANDOM else set())
    assert seen == possible


@pytest.mark.parametrize("identity", [None, STATES], ids=["continuous", "finite"])
def test_one_step_ahead_is_the_next_row(identity):
    b = in_numpy(draw(11, numbered(identity=identity), ROWS))  # the default lookahead
    np.testing.assert_array_equal(b.ahead_observation, b.next_observation)
    np.testing.assert_array_equal(b.ahead_action, b.next_action)
    np.testing.assert_array_equal(b.ahead_steps, 1)
    assert set(b.arrival.tolist()) == {0, 1}
    # The base cases of the one-step target, once more.
    np.testing.assert_array_equal(b.arrives, b.goal_is_state | b.goal_is_next)
    np.testing.assert_array_equal(b.arrival[b.arrives], np.where(b.goal_is_state, 0, 1)[b.arrives])


def test_rest_of_a_batch_does_not_depend_on_the_lookahead():
    data = numbered(identity=STATES)
    one, *others = (draw(12, data, ROWS, lookahead=n) for n in (1, 3, 50))
    for other in others:
        for name in Batch._fields:
            same = np.array_equal(getattr(one, name), getattr(other, name))
            assert same == (name not in AHEAD), name


def test_method_gets_a_batch_with_its_own_settings():
    """Each setting is away from its default, so that none can be forgotten."""
    key, data = jax.random.key(13), numbered()
    method = make(
        "td-n", n=7, gamma=0.8, value_goals=MIXED, actor_goals=(0.5, 0.3, 0.2), value_geometric=False,
        actor_geometric=True,
    )  # fmt: skip
    batch = method.sample(key, data, ROWS)
    assert batch.ahead_steps.max() == 7
    expected = sample_batch(
        key, data, ROWS, gamma=0.8, value_goals=MIXED, value_geometric=False, actor_goals=(0.5, 0.3, 0.2),
        actor_geometric=True, lookahead=7,
    )  # fmt: skip
    assert_same(batch, expected)
    assert make("gtrl").sample(key, data, ROWS).ahead_steps.max() == 1


# --- purity ---


def assert_same(first: Batch, second: Batch) -> None:
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_sampling_is_pure():
    sample = partial(sample_batch, size=ROWS, gamma=0.9, value_goals=MIXED, actor_goals=MIXED, lookahead=3)
    data = numbered()
    keys = jax.random.split(jax.random.key(8), 2)
    eager = [sample(key, data) for key in keys]
    assert_same(eager[0], sample(keys[0], data))
    assert_same(eager[0], jax.jit(sample)(keys[0], data))
    # Seeds side by side draw what each draws alone.
    together = jax.jit(jax.vmap(sample, (0, None)))(keys, data)
    for seed in range(2):
        assert_same(eager[seed], jax.tree.map(lambda leaf, at=seed: leaf[at], together))
    for first, second in zip(rows_of(eager[0]), rows_of(eager[1]), strict=True):
        assert (first != second).mean() > 0.5


def test_dataset_is_an_argument():
    """One compiled program serves any dataset of the shape, and holds no row of the one it was traced with."""
    traces = []

    def sample(key: jax.Array, data: Dataset) -> Batch:
        traces.append(data)
        return sample_batch(key, data, ROWS, gamma=0.9, value_goals=MIXED, actor_goals=MIXED)

    compiled = jax.jit(sample)
    one, other = numbered(), numbered(tuple(reversed(LENGTHS)), first=200)
    key = jax.random.key(9)
    assert_same(compiled(key, one), sample_batch(key, one, ROWS, gamma=0.9, value_goals=MIXED, actor_goals=MIXED))
    second = compiled(key, other)
    assert len(traces) == 1
    assert_same(second, sample_batch(key, other, ROWS, gamma=0.9, value_goals=MIXED, actor_goals=MIXED))
    assert min(rows.min() for rows in rows_of(second)) >= 200
    constants = jax.make_jaxpr(sample)(key, one).consts
    assert sum(np.size(constant) for constant in constants) < sum(LENGTHS)
