"""Command lines: `python -m experiments.X` heeds signals from its first moment on."""

import sys

if sys.argv[:1] == ["-m"]:  # Python looks up the command, whose imports take seconds
    from experiments.running.interrupt import hush_ctrl_c
    from experiments.running.preemption import heed_sigterm

    heed_sigterm()
    hush_ctrl_c()
