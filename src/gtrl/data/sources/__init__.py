"""Where a task's dataset comes from: OGBench's cache, a download, or our own collectors."""
