"""Settings that all tasks of the paper share: hyperparameters (table 4) and evaluation protocol."""

from typing import Literal

Goals = tuple[
    float, float, float
]  # probabilities that a goal is drawn from (current state, same trajectory, whole dataset)

# Where the waypoint of a goal that is not ahead comes from: the rest of the state's trajectory, the past of the goal's,
# each of them half of the time, or all transitions.
WaypointSource = Literal["none", "state", "goal", "both", "random"]
# Which of these rows: any; one that is a geometric number of steps away, as goals are, but at most the last one; or the
# last one, which is the end of the state's trajectory or the start of the goal's.
WaypointDraw = Literal["uniform", "geometric", "farthest"]

GRADIENT_STEPS = 1_000_000
LEARNING_RATE = 3e-4
BATCH_SIZE = 1024
HIDDEN = (512, 512, 512)  # widths of the hidden layers
TARGET_RATE = 0.005  # eta, of the moving average of the target network
SUBGOAL_EXPECTILE = 0.7  # kappa where m = 1
ONE_STEP_EXPECTILE = 0.5  # kappa where m = 0
HINDSIGHT_CLIP = 1.0  # c: hindsight weights are clipped to [1 / (1 + c), 1 + c]
VALUE_GOALS: Goals = (0.0, 0.5, 0.5)
TRAJECTORY_GOALS: Goals = (0.0, 1.0, 0.0)
RANDOM_GOALS: Goals = (0.0, 0.0, 1.0)
STITCH_ACTOR_GOALS: Goals = (0.0, 0.5, 0.5)  # GTRL: the five tasks of the stitch group
ACTOR_GOALS = TRAJECTORY_GOALS
VALIDATION_RATIO = 10  # training episodes per validation episode
SEEDS = (0, 1, 2, 3)
EPISODES_PER_GOAL = 50
GOALS_PER_TASK = 5
SCORED_STEPS = (800_000, 900_000, 1_000_000)  # steps whose checkpoints are evaluated
