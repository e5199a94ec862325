"""Files: atomic writes, locks, JSON lines, npz, multilayer perceptrons."""
