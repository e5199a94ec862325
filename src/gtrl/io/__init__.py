"""File access: atomic writes, locks, JSON lines, npz files, and the file format of multilayer perceptrons."""
