"""Settings that all tasks of the paper share: hyperparameters (table 4) and evaluation protocol."""

Goals = tuple[
    float, float, float
]  # probabilities that a goal is drawn from (current state, same trajectory, whole dataset)

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
