"""The tasks, each in its own folder (its room), and their common parts."""
