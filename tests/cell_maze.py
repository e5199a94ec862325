"""A maze of cells as an environment with OGBench's attributes, and a method whose critic and policy are tables."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import equinox as eqx
import gymnasium
import jax.numpy as jnp
import numpy as np
from jax import Array

from gtrl.algorithms.base import Algorithm
from gtrl.runs.policy import Policy
from gtrl.tasks import Task
from gtrl.theory.examples import SMALL_MAZE
from gtrl.theory.maze import FOUR_MOVES, TextMaze, maze
from gtrl.theory.process import Process
from gtrl.theory.values import divide_and_conquer_values, optimal_values

UNIT = OFFSET = 4.0
GAMMA = 0.9
PLAIN_MAZE = (
    "#######",
    "#.....#",
    "#.###.#",
    "#.#...#",
    "#.###.#",
    "#.....#",
    "#######",
)
MAZES: dict[str, TextMaze] = {"plain": maze(PLAIN_MAZE), "teleport": maze(SMALL_MAZE)}
# (start, goal) cells. In the teleport maze they are s and g of `SMALL_MAZE`.
ENDS = {"plain": (((1, 1), (3, 3)), ((5, 1), (1, 5)), ((3, 4), (3, 3))), "teleport": (((1, 1), (1, 5)),)}


# --- exact tables ---


def greedy(process: Process, values: np.ndarray, critic: str) -> np.ndarray:
    """The best action for every state and goal, (S, S): by the mean over outcomes, or by the best outcome."""
    following = values[process.successors]  # (S, A, K, S)
    if critic == "optimal":
        return np.einsum("sak,sakg->sag", process.probabilities, following).argmax(1)
    return np.where((process.probabilities > 0)[..., None], following, 0).max(2).argmax(1)


def policy_values(process: Process, actions: np.ndarray, gamma: float) -> np.ndarray:
    """E[gamma^T] of a policy given by an action for every state and goal, by one linear system per goal."""
    states = np.arange(process.states)
    values = np.empty((process.states, process.states))
    for g in states:
        chain = process.dense[states, actions[:, g]] * (states != g)[:, None]
        values[:, g] = np.linalg.solve(np.eye(len(states)) - gamma * chain, states == g)
    return values


@cache
def tables(name: str, critic: str) -> tuple[np.ndarray, np.ndarray]:
    """The critic's values V(s, g) and the actions of its greedy policy, by state of the process."""
    process = MAZES[name].process
    values = (optimal_values if critic == "optimal" else divide_and_conquer_values)(process, GAMMA)
    return values, greedy(process, values, critic)


# --- the environment ---


class CellMaze(gymnasium.Env):
    """Moves by one cell in the direction of the action's larger component; T leads to a random capital letter."""

    def __init__(self, name: str) -> None:
        symbols = np.array([list(row) for row in MAZES[name].rows])
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,))
        self.observation_space = gymnasium.spaces.Box(-100, 100, (2,))
        self.maze_map = (symbols == "#").astype(int)
        self._maze_unit, self._offset_x = UNIT, OFFSET
        self.task_infos = [{"init_ij": start, "goal_ij": goal} for start, goal in ENDS[name]]
        self.entrances = [tuple(cell) for cell in np.argwhere(symbols == "T").tolist()]
        self.exits = [tuple(cell) for cell in np.argwhere(np.char.isupper(symbols) & (symbols != "T")).tolist()]
        self._teleport_info = {
            "teleport_in_xys": [self.ij_to_xy(cell) for cell in self.entrances],
            "teleport_out_xys": [self.ij_to_xy(cell) for cell in self.exits],
        }

    def ij_to_xy(self, cell: Any) -> tuple[float, float]:
        return cell[1] * UNIT - OFFSET, cell[0] * UNIT - OFFSET

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        info = self.task_infos[(options or {"task_id": 1})["task_id"] - 1]
        self.cell, self.goal = info["init_ij"], info["goal_ij"]
        return self._observation(), {"goal": np.array(self.ij_to_xy(self.goal))}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        column = abs(action[0]) > abs(action[1])
        move = (0, int(np.sign(action[0]))) if column else (int(np.sign(action[1])), 0)
        to = (self.cell[0] + move[0], self.cell[1] + move[1])
        if to in self.entrances:
            to = self.exits[int(self.np_random.integers(len(self.exits)))]
        self.cell = to if not self.maze_map[to] else self.cell
        return self._observation(), 0.0, False, False, {"success": self.cell == self.goal}

    def _observation(self) -> np.ndarray:
        return np.array(self.ij_to_xy(self.cell), np.float32)


def make_plain() -> CellMaze:
    return CellMaze("plain")


def make_teleport() -> CellMaze:
    return CellMaze("teleport")


TASKS = {
    name: Task(f"cells-{name}", f"cell_maze:make_{name}", len(ENDS[name]), (0, 1), episode_length=60, scale=False)
    for name in MAZES
}
PLAIN, TELEPORT = TASKS["plain"], TASKS["teleport"]


def write_data(path: Path, name: str, trajectories: int = 6, length: int = 9) -> Path:
    """Random walks from random cells."""
    env, rng = CellMaze(name), np.random.default_rng(0)
    env.reset(seed=0)
    rows = []
    for _ in range(trajectories):
        env.cell = tuple(rng.choice(MAZES[name].cells).tolist())
        for step in range(length):
            di, dj = FOUR_MOVES[int(rng.integers(4))]
            action = np.array([dj, di], np.float32)
            rows.append((env._observation(), action, step == length - 1))
            env.step(action)
    observations, actions, terminals = map(np.array, zip(*rows, strict=True))
    np.savez(path, observations=observations, actions=actions, terminals=terminals)
    return path


# --- the method ---


class Tables(eqx.Module):
    """Values (K, K) and directions (K, K, 2) for every pair of cells, walls included, numbered row by row."""

    values: Array
    directions: Array
    columns: int = eqx.field(static=True)

    def number(self, xy: Any, xp: Any = jnp) -> Any:
        cells = xp.round((xy + OFFSET) / UNIT).astype(int)
        return cells[..., 1] * self.columns + cells[..., 0]

    def act(self, observation: Array, goal: Array, key: Array) -> Array:
        return self.directions[self.number(observation), self.number(goal)]

    def export(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {"directions": np.asarray(self.directions)}, {"kind": "cell-table", "columns": self.columns}


class CellTable(Policy):
    """The policy file of `Tables`."""

    name = "cell-table"

    def __init__(self, arrays: Any, header: Any, seed: int = 0) -> None:
        super().__init__(arrays, header, seed)
        self.tables = Tables(np.zeros(0), arrays["directions"], header["columns"])  # pyright: ignore[reportArgumentType]

    def act(self, observation: np.ndarray, goal: np.ndarray, noise: np.ndarray) -> np.ndarray:
        pair = self.tables.number(observation, np), self.tables.number(goal, np)
        return np.asarray(self.tables.directions)[pair]


@dataclass(frozen=True)
class TableMethod(Algorithm):
    """A critic set to V* or to V_DC, with its greedy policy. Training changes nothing."""

    name: ClassVar = "tables"
    title: ClassVar = "Tables"
    family: ClassVar = "triangle inequality"
    idea: ClassVar = "known answers"
    reference: ClassVar = ""

    maze: Literal["plain", "teleport"] = "plain"
    critic: Literal["optimal", "lucky"] = "optimal"

    def __post_init__(self) -> None:
        super().__post_init__()
        tables(self.maze, self.critic)  # cached: they cannot be computed while `init` is traced

    def init(self, key: Array, spec: Any) -> Tables:
        layout = MAZES[self.maze]
        values, actions = tables(self.maze, self.critic)
        rows, columns = len(layout.rows), len(layout.rows[0])
        numbers = layout.cells[:, 0] * columns + layout.cells[:, 1]
        all_values, directions = np.zeros((rows * columns,) * 2), np.zeros((*(rows * columns,) * 2, 2))
        all_values[numbers[:, None], numbers] = values
        directions[numbers[:, None], numbers] = np.array(FOUR_MOVES)[actions][..., ::-1]
        return Tables(jnp.asarray(all_values, jnp.float32), jnp.asarray(directions, jnp.float32), columns)

    def loss(self, nets: Tables, _: None, batch: Any, __: Array) -> tuple[Array, dict]:
        return 0 * (nets.values.sum() + nets.directions.sum()), {}

    def policy(self, nets: Tables) -> Tables:
        return nets

    def value(self, nets: Tables, observation: Array, goal: Array) -> Array:
        return nets.values[nets.number(observation), nets.number(goal)]

    def action_value(self, nets: Tables, observation: Array, action: Array, goal: Array) -> Array:
        """1 for the policy's own action, 0 or -1 for the others."""
        return (jnp.round(action) * nets.act(observation, goal, action)).sum(-1)
