"""Configurations of models, as data. Nothing here imports torch, so that commands can check them at once."""
