"""The small teleport maze of `gtrl demo`."""

from typing import Any

import numpy as np

# A ring-shaped corridor around two closed cells. The teleporter (T) moves the agent to one of the three exits (x) with
# equal probability: the middle of the opposite corridor, or one of the two closed cells.
# The first row has the smallest y, so plots, in which y points up, show the rows from bottom to top.
MINI_MAZE = (
    "#########",
    "#...T...#",
    "#.#####.#",
    "#.#x#x#.#",
    "#.#####.#",
    "#...x...#",
    "#########",
)
# (start, goal) cells of the five evaluation goals. For the first four, the teleporter is the shorter path if it leads
# to the opposite corridor, and the left corridor is the path that always works. The fifth has no such choice.
MINI_GOALS = (((1, 1), (5, 3)), ((1, 2), (5, 3)), ((1, 2), (5, 2)), ((1, 3), (5, 1)), ((5, 1), (1, 3)))


def make_mini_maze() -> Any:
    """Makes the maze as a subclass of OGBench's maze, which builds its walls from `maze_map` in `update_tree`."""
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
