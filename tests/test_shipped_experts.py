"""The experts of the package: their cards, how well they walk and dribble, and that data collection uses them."""

import re
from pathlib import Path

import pytest
from test_experts import seed_of, shortened

from gtrl.cli import main
from gtrl.data.collect import make_collector
from gtrl.data.collect.expert import NO_EXPERTS, SHIPPED, Expert, Experts, roles_of
from gtrl.data.origin import digest_of, read_origin
from gtrl.experts.card import TASKS, figures_of
from gtrl.experts.measure import measure
from gtrl.experts.settings import SKILL_NAMES
from gtrl.experts.skills import Ant, Humanoid, make_skill
from gtrl.tasks import TASKS as ALL_TASKS
from gtrl.tasks import ogbench_task

FILES = sorted(SHIPPED.glob("*.npz"))


def test_every_expert_has_a_card_of_its_own() -> None:
    assert {"ant", "dribble", "humanoid"} == {path.stem for path in FILES}
    assert sum(path.stat().st_size for path in FILES) < 2**20
    assert {path.stem for path in SHIPPED.glob("*.md")} == {path.stem for path in FILES}
    for path in FILES:
        header, card = Expert(path).header, path.with_suffix(".md").read_text()
        assert header["skill"] == path.stem in SKILL_NAMES
        assert card.startswith(f"# Expert: {path.stem}\n")
        assert f"{header['step']:,} simulator steps" in card
        for name, value in header["training"].items():
            assert f"- {name.replace('_', ' ')}: {value}\n" in card


def test_which_tasks_they_collect() -> None:
    """Each task has all of its experts or says which one is missing; an expert of the user's own comes first."""
    there = {path.stem for path in FILES}
    for task in ALL_TASKS.values():
        needed = {"walk": "humanoid" if task.family == "humanoidmaze" else "ant", "dribble": "dribble"}
        found = NO_EXPERTS.for_task(task)
        for role, path in found._asdict().items():
            wanted = role in roles_of(task) and needed[role] in there
            assert path == (SHIPPED / f"{needed[role]}.npz" if wanted else None)
        if all(needed[role] in there for role in roles_of(task)):
            found.check(task)
    own = Path("own.npz")
    assert Experts(walk=own).for_task(ogbench_task("antmaze-large-navigate")).walk == own


def test_the_ant_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short version of its card, in 20 directions."""
    monkeypatch.setattr(Ant, "episode_steps", 201)
    figures = figures_of(SHIPPED / "ant.npz", episodes=1, threads=2, show=False)
    for column in figures.values():
        assert column["episodes with a fall"] == 0
        assert (column["slowest direction, m per 100 steps"] or 0) > 15
        assert (column["mean error of direction in degrees"] or 90) < 15


def test_the_humanoid_gets_up_and_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short version of its card: from a random pose, in 20 directions, with and without noise."""
    monkeypatch.setattr(Humanoid, "episode_steps", 251)
    figures = figures_of(SHIPPED / "humanoid.npz", episodes=1, threads=2, show=False)
    for column in figures.values():
        assert column["episodes in which it stands"] == 1
        assert (column["steps until it stands"] or 999) < 120
        assert (column["falls per 1,000 steps"] or 0) <= 1
        assert (column["m per 100 steps in the direction"] or 0) > 3
        assert (column["mean error of direction in degrees"] or 90) < 30


def test_the_ant_dribbles() -> None:
    skill, network = make_skill("dribble"), Expert(SHIPPED / "dribble.npz").network
    figures = measure(skill, network, directions=20, episodes=1, threads=2)
    assert (figures["ball within 0.5 m of its goal"] or 0) >= 0.15  # of which 0.4 is expected
    assert (figures["ball's smallest distance in m"] or 9) < 3  # it starts about 10 m away
    assert (figures["episodes with a fall"] or 0) <= 0.1


def test_the_ant_reaches_the_goals_of_its_mazes() -> None:
    collector = make_collector(shortened(TASKS["ant"], 201), NO_EXPERTS.for_task(ogbench_task(TASKS["ant"])))
    episodes = [collector.episode(seed_of(11, number)) for number in range(12)]
    assert sum(episode["arrivals"].any() for episode in episodes) >= 9  # of which 0.92 is expected


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("task", "expert"), [("antmaze-large-navigate", "ant.npz"), ("humanoidmaze-medium-navigate", "humanoid.npz")]
)
def test_data_of_walkers_needs_no_flags(
    task: str, expert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{task}-v0.npz"
    assert main(["data", "collect", task, "--episodes", "1", "--out", str(path)]) == 0
    assert read_origin(path)["experts"] == {"walk": digest_of(SHIPPED / expert)}
    capsys.readouterr()
    assert main(["data", "check", str(path)]) == 0
    shown = capsys.readouterr().out
    reached = re.search(r"goals reached per episode\D+([\d.]+)", shown)
    assert reached is not None
    assert float(reached[1]) >= 1
    covered = re.search(r"m covered per 100 steps\D+([\d.]+)", shown)
    assert covered is not None
    assert 3 < float(covered[1]) < 40
