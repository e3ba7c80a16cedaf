"""Heads, which map the pooled vector to logits: (B, D) to (B, classes)."""

from collections import OrderedDict

from torch import nn


def linear_head(dim: int, classes: int, *, dropout: float = 0.0) -> nn.Module:
    """Build one linear layer, or the identity for 0 classes."""
    if not classes:
        return nn.Identity()
    return _named(dropout=nn.Dropout(dropout), linear=nn.Linear(dim, classes))


def projection_head(dim: int, classes: int, *, dropout: float = 0.0) -> nn.Sequential:
    """Build a linear layer without bias, as CLIP's projection into the embedding space of images and texts."""
    return _named(dropout=nn.Dropout(dropout), linear=nn.Linear(dim, classes, bias=False))


def mlp_head(dim: int, classes: int, *, dropout: float = 0.0) -> nn.Sequential:
    """Build ``Linear → tanh → Linear``, the head of the paper's pre-training."""
    hidden = nn.Linear(dim, dim)
    return _named(hidden=hidden, tanh=nn.Tanh(), dropout=nn.Dropout(dropout), linear=nn.Linear(dim, classes))


def lecture_head(dim: int, classes: int, *, dropout: float = 0.0) -> nn.Sequential:
    """Build ``Linear → GELU → Dropout → LayerNorm`` of the CIFAR-10 lecture notes.

    The notes apply the first three layers to every token and then take the class token. Each layer acts on one token at a
    time, so taking the class token first gives the same logits with less work.
    """
    return _named(linear=nn.Linear(dim, classes), gelu=nn.GELU(), dropout=nn.Dropout(dropout), norm=nn.LayerNorm(classes))


def _named(**layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layers))


def last_layer(head: nn.Module) -> nn.Linear | nn.Conv2d:
    """Return the last linear or 1×1 layer of a head, whose output width is the number of classes."""
    return [module for module in head.modules() if isinstance(module, nn.Linear | nn.Conv2d)][-1]
