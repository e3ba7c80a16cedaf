"""Sequence-to-sequence models before the Transformer: an LSTM reads a text, another writes one (Sutskever et al. 2014,
https://arxiv.org/abs/1409.3215), with or without attention (Bahdanau et al. 2014, Luong et al. 2015)."""

from torch import Tensor, nn

from vitrail import parts
from vitrail.models.configs.texts import RecurrentConfig
from vitrail.models.text.recurrent_decoder import Reading, RecurrentDecoder


class Recurrent(RecurrentDecoder):
    """A recurrent sequence-to-sequence model: sources (B, S) and targets (B, T) to logits (B, T, vocabulary)."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.config = c = config
        self.add_embedding()
        self.encoder = nn.ModuleList(parts.BidirectionalLSTM(dim, c.hidden_dim) for dim in c.inputs)
        self.starts = nn.ModuleList(nn.Linear(c.hidden_dim, 2 * c.hidden_dim) for _ in c.inputs)
        self.add_decoder()
        self.initialize()

    def layers(self) -> list[nn.Module]:
        return [*self.encoder, *self.decoder]

    def encode(self, source: Tensor) -> Reading:
        tokens = source != self.config.pad
        lengths = tokens.sum(dim=1).clamp(min=1)  # (B,)
        x, last = self.embed(source), []
        for layer, start in zip(self.encoder, self.starts, strict=True):
            x = layer(self.dropout(x), lengths)  #  (B, S, H)
            last.append(start(parts.BidirectionalLSTM.last(x, lengths)))
        return self.reading(x, last, tokens[:, None])
