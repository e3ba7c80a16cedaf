"""Start a model from another one's weights: fine-tuning, section 3.2 of the paper."""

import torch
from torch import nn

from vitrail.errors import ConfigError
from vitrail.models.vit import ViT, last_linear
from vitrail.parts.positions import resize_positions


@torch.no_grad()
def transfer(source: ViT, target: ViT, *, keep_head: bool) -> None:
    """Copy the weights of ``source`` into ``target``, which may differ in image size and number of classes.

    Learned 1-D positions are interpolated to the new grid. Unless ``keep_head``, the last linear layer of the target's
    head is set to zero, as in the paper.

    Raises:
        ConfigError: the two differ in anything else, with every difference listed.
    """
    tensors = source.state_dict()
    if source.config.position == target.config.position == "learned-1d":
        prefix = source.config.prefix - source.config.registers
        name = "position.embedding"
        tensors[name] = resize_positions(tensors[name], source.config.grid, target.config.grid, prefix=prefix)
    if not keep_head:
        tensors = {k: v for k, v in tensors.items() if not k.startswith("head.")}
    expected = {k: v for k, v in target.state_dict().items() if keep_head or not k.startswith("head.")}
    shapes = {k: tuple(v.shape) for k, v in tensors.items()}
    wrong = [
        f"{k} {shapes.get(k, 'missing')} → {tuple(expected[k].shape) if k in expected else 'missing'}"
        for k in sorted(shapes.keys() | expected.keys())
        if k not in expected or shapes.get(k) != tuple(expected[k].shape)
    ]
    wrong += [
        f"{k} {getattr(source.config, k)} → {getattr(target.config, k)}"
        for k in ("heads", "position")
        if getattr(source.config, k) != getattr(target.config, k)
    ]
    if wrong:
        raise ConfigError(
            f"the model to start from does not fit: {'; '.join(wrong[:6])}{'; …' if len(wrong) > 6 else ''}",
            where="--from",
            hint="leave out the model settings that change its shape",
        )
    target.load_state_dict(tensors, strict=False)
    if not keep_head:
        last = last_linear(target.head)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
