"""The command line. For commands that handle signals, signals during the imports are remembered."""

import sys

from vitrail.runtime.signals import remember_early

if next((word for word in sys.argv[1:] if word != "--debug"), "") in ("train", "resume", "sweep", "demo"):
    remember_early()
