"""From the pooled vector to logits: (B, D) to (B, classes)."""

from collections import OrderedDict

from torch import nn


def linear_head(dim: int, classes: int, *, dropout: float = 0.0) -> nn.Module:
    """Build one linear layer; the identity without classes."""
    if not classes:
        return nn.Identity()
    return _named(dropout=nn.Dropout(dropout), linear=nn.Linear(dim, classes))


def projection_head(dim: int, classes: int, *, dropout: float = 0.0) -> nn.Sequential:
    """Build a linear layer without bias: CLIP's map into the space that it shares with texts."""
    return _named(dropout=nn.Dropout(dropout), linear=nn.Linear(dim, classes, bias=False))


def mlp_head(dim: int, classes: int, *, dropout: float = 0.0) -> nn.Sequential:
    """Build ``Linear → tanh → Linear``, the head of the paper's pre-training."""
    hidden = nn.Linear(dim, dim)
    return _named(hidden=hidden, tanh=nn.Tanh(), dropout=nn.Dropout(dropout), linear=nn.Linear(dim, classes))


def lecture_head(dim: int, classes: int, *, dropout: float = 0.0) -> nn.Sequential:
    """Build ``Linear → GELU → Dropout → LayerNorm`` of the CIFAR-10 lecture notes.

    The notes apply the first three to every token and then take the class token; each of them acts on one token at a
    time, so taking the class token first gives the same logits without the work.
    """
    return _named(linear=nn.Linear(dim, classes), gelu=nn.GELU(), dropout=nn.Dropout(dropout), norm=nn.LayerNorm(classes))


def _named(**layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layers))


def last_layer(head: nn.Module) -> nn.Linear | nn.Conv2d:
    """Return the layer of a head that decides how many classes there are."""
    return [module for module in head.modules() if isinstance(module, nn.Linear | nn.Conv2d)][-1]
