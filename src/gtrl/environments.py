"""Environments, and how each gets randomness of its own. Free of JAX."""

import contextlib
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from gtrl.tasks import Task


def make_environment(task: Task, **options: Any) -> Any:
    """The task's evaluation environment, with its step budget; goals in the task's own form.

    `options` go to the environment: manipulation tasks have a mode of their own for data collection.
    """
    with tempfile.TemporaryDirectory() as folder, _temporary_files_in(folder), quietly():
        import ogbench

        if not task.public:
            return _make_mini_maze(task)
        return ogbench.make_env_and_datasets(task.environment, env_only=True, **options)


# The demo's maze: a ring around two cells without a way out. Stepping on the teleporter (T) leads to one of
# the three exits (x) with equal probability: the middle of the lower corridor, or one of the two dead ends.
MINI_MAZE = (
    "#########",
    "#...T...#",
    "#.#####.#",
    "#.#x#x#.#",
    "#.#####.#",
    "#...x...#",
    "#########",
)
# (start, goal) cells of its five evaluation goals. To the first four the teleporter is the shorter way with
# luck and the left corridor the sure one; the fifth has no such choice.
MINI_GOALS = (((1, 1), (5, 3)), ((1, 2), (5, 3)), ((1, 2), (5, 2)), ((1, 3), (5, 1)), ((5, 1), (1, 3)))


def _make_mini_maze(task: Task) -> Any:
    """A small teleport maze on OGBench's own maze class, which builds its walls from `maze_map` in `update_tree`."""
    import gymnasium
    from ogbench.locomaze.maze import make_maze_env

    base: Any = type(make_maze_env("point", "maze", maze_type="medium"))
    symbols = np.array([list(row) for row in MINI_MAZE])

    class MiniMaze(base):
        def update_tree(self, tree: Any) -> None:
            self.maze_map = (symbols == "#").astype(int)
            self._teleport_info: dict[str, Any] = {"teleport_radius": 1}
            for name, symbol in (("in", "T"), ("out", "x")):
                cells = [(int(i), int(j)) for i, j in np.argwhere(symbols == symbol)]
                self._teleport_info[f"teleport_{name}_ijs"] = cells
                self._teleport_info[f"teleport_{name}_xys"] = [self.ij_to_xy(cell) for cell in cells]
            super().update_tree(tree)

        def set_tasks(self) -> None:
            self.task_infos = [
                {"task_name": f"task{number}", "init_ij": start, "goal_ij": goal}
                for number, (start, goal) in enumerate(MINI_GOALS, start=1)
            ]

    return gymnasium.wrappers.TimeLimit(MiniMaze(use_oracle_rep=True), task.episode_length)


def teleporters(maze: Any) -> tuple[np.ndarray, np.ndarray]:
    """(entrances, exits) of a maze, (n, 2) each in xy; empty where it has none."""
    info = maze._teleport_info or {}
    entrances, exits = (np.array(info.get(f"teleport_{key}_xys", []), np.float32) for key in ("in", "out"))
    return entrances.reshape(-1, 2), exits.reshape(-1, 2)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without what OGBench's imports and spaces warn of on every machine without a screen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _temporary_files_in(folder: str) -> Iterator[None]:
    """OGBench's mazes write their model to a temporary file and leave it; here it goes with `folder`."""
    before, tempfile.tempdir = tempfile.tempdir, folder
    try:
        yield
    finally:
        tempfile.tempdir = before


_global: Any = np.random  # its stubs do not know of the generator behind the global functions


def _keep_action_space(env: Any) -> None:
    """Manipulation environments make a fresh action space, seeded by chance, at each look; give them one to keep."""
    kind = type(env)
    if isinstance(getattr(kind, "action_space", None), property):
        with quietly():
            env.__class__ = type(kind.__name__, (kind,), {"action_space": env.action_space})


class Isolated:
    """An environment whose episodes depend on their seed alone.

    OGBench draws from three places: the global NumPy generator, `env.np_random` and `env.action_space`.
    All three are seeded at each reset, and the environment's own generator stands in for the global one
    while it runs, so that environments that share a process do not disturb each other.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        _keep_action_space(env.unwrapped)
        self._generator = np.random.MT19937(0)

    @contextlib.contextmanager
    def own_randomness(self) -> Iterator[None]:
        before = _global.get_bit_generator()
        _global.set_bit_generator(self._generator)
        try:
            yield
        finally:
            _global.set_bit_generator(before)

    def reset(self, seed: np.random.SeedSequence, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        for_global, for_env, for_actions = (int(word) for word in seed.generate_state(3))
        self._generator = np.random.MT19937(for_global)
        self.env.unwrapped.action_space.seed(for_actions)
        with self.own_randomness():
            return self.env.reset(seed=for_env, options=options)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        with self.own_randomness():
            return self.env.step(action)
