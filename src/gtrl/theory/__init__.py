"""The paper's example and propositions, computed exactly on finite processes.

- `process`: finite decision processes and logs of trajectories in them.
- `values`: their exact values.
- `transitive`: the update of equation 3.
- `draws`: all draws of the training sampler, with their probabilities.
- `anchored`: fits of the losses (equations 5 to 10) and their fixed points.
- `checks` and `counterexamples`: the propositions, and the assumptions they need.
"""
