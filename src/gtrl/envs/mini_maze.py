"""The demo's small teleport maze."""

from typing import Any

import numpy as np

# The demo's maze: a ring around two cells without a way out. Stepping on the teleporter (T) leads to one of
# the three exits (x) with equal probability: the middle of the opposite corridor, or one of the two dead ends.
# The first row has the smallest y, so pictures, with y up, show these rows from the bottom to the top.
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


def make_mini_maze() -> Any:
    """A small teleport maze on OGBench's own maze class, which builds its walls from `maze_map` in `update_tree`."""
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

    return MiniMaze(use_oracle_rep=True)
