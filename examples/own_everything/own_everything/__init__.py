"""An environment, a task, a method with its own sampler and optimiser, and a callback, in a separate package."""
