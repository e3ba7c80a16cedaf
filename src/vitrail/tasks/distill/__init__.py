"""Distillation of a teacher's features."""
