"""The Transformer for translation (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762): an encoder and a decoder."""

from torch import Tensor, nn

from vitrail.models.configs.texts import TransformerConfig
from vitrail.models.text.transformer_decoder import Encoded, TransformerDecoder, block_of, last_norm


class Transformer(TransformerDecoder):
    """The Transformer: sources (B, S) and targets (B, T) to logits (B, T, vocabulary). Equations are the paper's."""

    config: TransformerConfig

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = c = config
        self.add_embedding(separate=not c.tied)
        self.encoder = nn.ModuleList(block_of(c) for _ in range(c.depth))
        self.encoder_norm = last_norm(c)
        self.add_decoder(c.dim)
        self.initialize()

    def layers(self) -> list[nn.Module]:
        return [*self.encoder, *self.decoder]

    def encode(self, source: Tensor) -> Encoded:
        mask = _tokens(source, self.config.pad)  # (B, 1, 1, S)
        x = self.embed(source, self.embedding)  #  (B, S, D)
        for block in self.encoder:
            x = block(x, mask=mask)  #             (B, S, D)
        return Encoded(self.encoder_norm(x), mask)


def _tokens(source: Tensor, pad: int) -> Tensor | None:
    """Return the attention mask of sources (B, S), (B, 1, 1, S), False for padding; None without padding."""
    mask = source != pad
    return None if source.is_meta or bool(mask.all()) else mask[:, None, None]
