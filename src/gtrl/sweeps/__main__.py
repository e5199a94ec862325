"""Runs one job of a sweep: `python -m gtrl.sweeps JOB`; see `gtrl.sweeps.job`."""

import sys

from gtrl.sweeps.job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
