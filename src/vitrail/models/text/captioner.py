"""Captioners: a ViT encodes an image, and the decoder of the Transformer writes a sentence about it."""

from collections.abc import Mapping, Set
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.models.base import Model
from vitrail.models.configs.captioner import FOR_A_HEAD, CaptionerConfig
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.signature import Shape
from vitrail.models.text.text_model import TextModel
from vitrail.models.text.transformer_decoder import Encoded, TransformerDecoder
from vitrail.models.vision.vit import ViT, of_each_block
from vitrail.parts import Interpolation


class Encoder(ViT):
    """A ViT without a head, all of whose tokens are read.

    Args:
        config: configuration of the ViT.
        patches_behind: the block after which patches are read; see `OfImages`.
    """

    def __init__(self, config: ViTConfig, patches_behind: str = "last"):
        super().__init__(config)
        self.patches_behind = patches_behind

    def transform(self, z: Tensor, attention: dict[str, Any], *, first: int | None = None) -> Tensor:
        if self.patches_behind == "last":
            return super().transform(z, attention, first=first)
        prefix = self.config.prefix
        for block, options in zip(self.blocks, of_each_block(attention, self.config.depth, first=prefix), strict=True):
            patches, z = z[:, prefix:], block(z, **options)  # the last block gives (B, prefix, D)
        return self.norm(torch.cat([z, patches], dim=1))  # (B, prefix + N, D)

    @classmethod
    def starts_from(cls, kind: type[Model]) -> bool:
        return issubclass(kind, ViT)

    @classmethod
    def adapted(cls, tensors: Mapping[str, Tensor], source: Any, target: Any, interpolation: Interpolation) -> dict[str, Tensor]:
        kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("pool.")}
        return super().adapted(kept, source, target, interpolation)

    @classmethod
    def may_differ(cls, source: Any, target: Any, *, keep_head: bool) -> Set[str]:
        norms = {"final_norm"} if (source.final_norm == "none") == (target.final_norm == "none") else set()
        return super().may_differ(source, target, keep_head=keep_head) | {*FOR_A_HEAD, "class_token"} | norms


class WritesOfImages(TextModel):
    """Base of text models whose sources are images, encoded by ``encoder``."""

    config: Any
    encoder: Encoder
    embedding: nn.Embedding
    decoder: nn.ModuleList

    def read(self, tokens: Tensor) -> Any:
        """Convert tokens of the ViT, (B, N, D of the ViT), to the decoder's input."""
        raise NotImplementedError

    def encode(self, source: Tensor) -> Any:
        return self.read(self.encoder.encode(source))  # encode: (B, prefix + N, D of the ViT)

    def of_nothing(self, count: int) -> Any:
        """Return the decoder's input for ``count`` sources without an image: one token of zeros each."""
        return self.read(self.embedding.weight.new_zeros(count, 1, self.config.encoder.dim))

    def layers(self) -> list[nn.Module]:
        return [*self.encoder.layers(), *self.decoder]

    def readout(self) -> dict[str, nn.Module]:
        return {name: part for name, part in self.named_children() if name != "encoder"}

    def inputs(self) -> dict[str, Shape]:
        return {**super().inputs(), "source": self.encoder.inputs()["images"]}


class Captioner(WritesOfImages, TransformerDecoder):
    """A captioner: images (B, C, H, W) and captions (B, T), or K per image (B, K, T), to logits of the next token.

    Each decoder block attends to all tokens of the image, after the ViT's last norm. Their keys and values are computed once
    per image, for all its captions and all beams.
    """

    config: CaptionerConfig
    shown = slice(None)  # which block attends to the named object differs from training to training

    def __init__(self, config: CaptionerConfig):
        super().__init__()
        self.config = c = config
        self.encoder = Encoder(c.encoder, c.patches_behind)
        self.add_embedding()
        self.add_decoder(c.encoder.dim, c.cross_heads)
        self.initialize(self.encoder)

    def read(self, tokens: Tensor) -> Encoded:
        return Encoded(tokens)

    def encode(self, source: Tensor) -> Encoded:
        memory = self.encoder.encode(source)  # (B, prefix + N, D of the ViT)
        return Encoded(memory, self._mask(memory))

    def _mask(self, memory: Tensor) -> Tensor | None:
        """Return a training mask, (B, 1, 1, prefix + N), False for dropped class tokens; None if none can be dropped."""
        share, prefix = self.config.class_token_dropout, self.config.encoder.prefix
        if not share or not prefix or not self.decoder.training:  # with a frozen ViT, only the decoder is in training mode
            return None
        kept = torch.ones(memory.shape[:2], dtype=torch.bool, device=memory.device)
        kept[:, :prefix] = torch.rand(len(memory), 1, device=memory.device) >= share
        return kept[:, None, None]
