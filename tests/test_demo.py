"""A small version of the demo: every part runs, the table has every seed's number, the picture is drawn."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

import gtrl.demo as demonstration
from gtrl.data.collect import files
from gtrl.runs.run import Run

pytestmark = pytest.mark.usefixtures("in_process_file")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A demo with less data and narrower networks."""
    out = tmp_path_factory.mktemp("demo") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "collect", partial(files.collect, episodes=20))
        patch.setitem(demonstration.METHOD_FIELDS, "hidden", (8,))
        return demonstration.demo(out, seed=3, steps=4, episodes=1, show=False)


def test_both_methods_get_the_same_fields_and_data(folder: Path) -> None:
    gtrl, trl = (Run.open(folder / method).config for method in demonstration.METHODS)
    assert gtrl["data"] == trl["data"]
    assert gtrl["training"] == trl["training"]
    assert gtrl["seeds"] == trl["seeds"] == [9, 10, 11]
    for field in ("lambda_", "alpha", "gamma", "hidden", "target_rate", "actor_goals", "distill"):
        assert gtrl["algorithm"][field] == trl["algorithm"][field]
    # Each method averages its target as its own source does.
    assert (gtrl["algorithm"]["target_from"], trl["algorithm"]["target_from"]) == ("updated", "previous")


def test_table_shows_every_seed(folder: Path) -> None:
    rows = [row for method in demonstration.METHODS for row in Run.open(folder / method).evaluations()]
    assert len(rows) == 2 * 3 * 5
    table = demonstration.comparison(rows, episodes=1)
    columns = [list(column.cells) for column in table.columns]
    assert columns[0] == ["GTRL"] * 4 + ["TRL"] * 4
    assert columns[1] == ["9", "10", "11", "mean"] * 2
    selected = [row["successes"] for row in rows if row["algorithm"] == "gtrl" and row["seed"] == 10]
    assert columns[-1][1] == f"{100 * np.mean(selected):.0f}"


def test_picture_shows_walls_and_values(folder: Path) -> None:
    picture = imread(folder / "demo.png")
    assert picture.shape[0] > 600
    assert picture.shape[1] > 900
    # More than one panel's worth of colours: the value maps are not blank.
    assert len(np.unique((picture[..., :3] * 15).astype(int).reshape(-1, 3), axis=0)) > 40


def test_exact_values_prefer_the_certain_path(folder: Path) -> None:
    """By hand, for goal 2, in steps of 0.2 along an axis (diagonal moves count one, so corners save some).

    The certain path from the start is 7 cells of 20 steps, less at two corners; the teleporter reaches the goal in a
    third of the cases. So V* at the start is that of the certain path, and above a third of the lucky path's.
    """
    exact, layout = np.load(folder / "exact.npz"), np.load(folder / "gtrl" / "values.npz")
    start = layout["starts"][demonstration.PICTURED_GOAL - 1]
    index = np.linalg.norm(exact["points"] - start, axis=-1).argmin()
    value = exact["values"].flat[index]
    gamma = 0.995
    assert gamma ** (7 * 20) <= value <= gamma ** (7 * 20 - 4 * 13)
    assert value > gamma ** (2 * 20 - 7) / 3
