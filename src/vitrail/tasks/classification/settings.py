"""Settings of classification. Imports no torch."""

from vitrail.tasks.settings import TaskSettings

SETTINGS = TaskSettings
