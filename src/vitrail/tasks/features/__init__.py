"""Shared parts of tasks without labels: features, their metrics, and the check of models whose patches are masked."""
