"""Short names of settings. This module imports nothing, since the help of commands needs it."""

SHORT_NAMES = {
    "data": "data.source",
    "model": "model.name",
    "task": "task.name",
    "source": "task.source",
    "target": "task.target",
    "text": "task.text",
    "epochs": "training.epochs",
    "batch_size": "training.batch_size",
    "tune": "training.tune",
    "teacher": "distillation.teacher",
    "lr": "optimizer.lr",
    "time_limit": "training.time_limit",
    "patience": "training.patience",
    "seed": "training.seed",
    "image_size": "model.image_size",
    "precision": "training.precision",
    "checkpoint_every_steps": "training.checkpoint_every_steps",
    "checkpoint_every_seconds": "training.checkpoint_every_seconds",
    "parallel": "training.parallel",
    "bad_images": "data.bad_images",
    "bad_lines": "task.bad_lines",
    "fast_dev_run": "training.fast_dev_run",
    "balance": "data.balance",
    "track": "training.track",
}
"""Frequently used settings, whose flags need no section: ``--epochs`` for ``--training.epochs``."""
