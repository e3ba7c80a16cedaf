"""The command line. What is imported first remembers signals for commands that hear them once they have begun."""

import sys

from vitrail.runtime.signals import remember_early

if next((word for word in sys.argv[1:] if word != "--debug"), "") in ("train", "resume", "sweep", "demo"):
    remember_early()
