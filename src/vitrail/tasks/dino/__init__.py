"""Self-distillation without labels."""
