"""The commands of dpfl, run from a checkout as `python -m experiments.<name> --flags`."""

import sys

from dpfl.runtime import signals

if sys.argv[0] == '-m':  # Python looks for the command, whose imports take seconds.
    signals.begin_program()
