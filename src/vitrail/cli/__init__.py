"""The command line. What is imported first remembers signals for commands that hear them once they have begun."""

import sys

from vitrail.runtime.signals import remember_early

if sys.argv[1:2] and sys.argv[1] in ("train", "resume", "sweep", "demo"):
    remember_early()
