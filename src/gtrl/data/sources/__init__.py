"""Sources of a task's dataset: the cache, a download, or a collection on this machine."""
