"""Runs the command line with `python -m gtrl`."""

import sys

from gtrl.cli import main

sys.exit(main())
