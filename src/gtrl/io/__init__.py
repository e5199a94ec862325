"""Files: atomic writes, locks, npz, multilayer perceptrons."""
