"""The paper's numbers that hold on all of its tasks: shared hyperparameters (table 4) and evaluation."""

Goals = tuple[float, float, float]  # probabilities (current state, same trajectory, whole dataset)

GRADIENT_STEPS = 1_000_000
LEARNING_RATE = 3e-4
BATCH_SIZE = 1024
HIDDEN = (512, 512, 512)
TARGET_RATE = 0.005  # eta
SUBGOAL_EXPECTILE = 0.7  # kappa where m = 1
ONE_STEP_EXPECTILE = 0.5  # kappa where m = 0
HINDSIGHT_CLIP = 1.0  # c
VALUE_GOALS: Goals = (0.0, 0.5, 0.5)
TRAJECTORY_GOALS: Goals = (0.0, 1.0, 0.0)
RANDOM_GOALS: Goals = (0.0, 0.0, 1.0)
STITCH_ACTOR_GOALS: Goals = (0.0, 0.5, 0.5)  # the five tasks of the stitch group
ACTOR_GOALS = TRAJECTORY_GOALS
VALIDATION_SHARE = 10  # one validation episode for so many training episodes, at least one
EPISODES_PER_GOAL = 50
GOALS_PER_TASK = 5
SCORED_STEPS = (800_000, 900_000, 1_000_000)
