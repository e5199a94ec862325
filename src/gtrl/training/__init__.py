"""Training: the compiled loop, checkpoints and resuming, callbacks, and checks of the trained values."""
