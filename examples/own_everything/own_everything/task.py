"""The task: the environment, the components of a state that form a goal, and the goals to evaluate."""

import gtrl
from own_everything.environment import Glider

GLIDER = gtrl.Task(
    "glider",
    environment=Glider,
    goal=(0, 1),  # the position
    goals=[(3.0, 3.0), (-3.0, 3.0), (0.0, -3.0)],
    episode_length=80,
    defaults={"gamma": 0.97},
)
gtrl.register(GLIDER)
