"""Configurations of sequence-to-sequence models, Transformer and LSTM, and the names of their sizes."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from vitrail.checks import refuse_given, require_divisible
from vitrail.models.configs.base import Depth, ModelConfig, Positive, Probability, Width

COUNTED = 16
"""Text length, in tokens, for which multiply-adds are counted."""
CAPTION_BEAMS, CAPTION_NO_REPEAT, LONGEST_CAPTION = 3, 2, 64
"""Defaults of captioning: the number of beams, the length of token n-grams that must not repeat, and the most tokens of a
caption."""


class TextConfig(ModelConfig):
    """Base configuration of a model that reads a text and writes another; both are token numbers below ``vocabulary``."""

    vocabulary: Positive = 8000
    """Number of tokens, the same for both texts."""
    pad: Annotated[int, Field(ge=0)] = 0
    """The token that pads rows to a common length."""
    start: Annotated[int, Field(ge=0)] = 1
    """The token that a written text begins with."""
    end: Annotated[int, Field(ge=0)] = 2
    """The token that ends a text."""
    max_tokens: Annotated[int, Field(ge=2, le=1 << 24)] = 1024
    """Tokens of the longest text that is read or written; for Marian, the number of its positions."""
    dim: Width = 512
    """Width D of a token."""
    dropout: Probability = 0.1
    """Dropout on embeddings and on the result of every branch or layer."""

    training_only: ClassVar[frozenset[str]] = frozenset(("dropout",))
    reads: ClassVar[Literal["images", "texts"]] = "texts"
    """Kind of the sources."""
    answer: ClassVar[Literal["vector", "heatmaps", "text"]] = "text"

    @model_validator(mode="after")
    def _tokens_are_in_the_vocabulary(self) -> "TextConfig":
        if max(self.pad, self.start, self.end) >= self.vocabulary:
            raise ValueError("pad, start and end must be below vocabulary")
        return self


class DecoderConfig(TextConfig):
    """Configuration of the Transformer's decoder (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762)."""

    decoder_depth: Depth = 6
    """Blocks of the decoder."""
    heads: Positive = 8
    """Attention heads of every block."""
    mlp_dim: Positive = 2048
    """Hidden width of the MLP."""
    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu"] = "relu"
    """Activation of the MLP; Marian's is "silu", also called Swish."""
    norm: Literal["pre", "post"] = "post"
    """Position of a branch's norm: post, after the sum, as in the paper; or pre, before the branch, with a norm at the end."""
    norm_eps: Annotated[float, Field(gt=0, le=1)] = 1e-5
    """Epsilon of the norms."""
    attention_dropout: Probability = 0.0
    """Dropout on attention weights."""
    hidden_dropout: Probability = 0.0
    """Dropout after the activation of the MLP."""
    position: Literal["sincos", "sincos-halves", "learned"] = "sincos"
    """Positions: sines and cosines that alternate, as in the paper; sines first, as in Marian; or learned, as in GPT-2."""
    scale_embedding: bool = True
    """Multiply embeddings by √D."""
    tied: bool = True
    """Use the embedding table as the output layer, and for both texts."""
    output_bias: bool = False
    """Bias of the logits."""

    training_only: ClassVar[frozenset[str]] = frozenset(("dropout", "attention_dropout", "hidden_dropout"))

    @model_validator(mode="after")
    def _heads_fit(self) -> "DecoderConfig":
        require_divisible("dim", self.dim, "heads", self.heads)
        return self


class TransformerConfig(DecoderConfig):
    """Configuration of the Transformer (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762)."""

    depth: Depth = 6
    """Blocks of the encoder."""

    @property
    def summary(self) -> str:
        """The architecture in one line."""
        return (
            f"{self.depth} + {self.decoder_depth} blocks {self.dim} wide, {self.heads} heads, MLP {self.mlp_dim}, "
            f"{self.norm}-norm, {self.vocabulary:,} tokens"
        )


class RecurrentConfig(TextConfig):
    """Configuration of the recurrent sequence-to-sequence model (Sutskever et al. 2014, https://arxiv.org/abs/1409.3215)."""

    depth: Depth = 1
    """Layers of the encoder and of the decoder."""
    hidden_dim: Width = 512
    """Width of each decoder layer's state, and of both encoder directions together."""
    attention: Literal["none", "additive", "dot"] = "dot"
    """Input of the decoder from the source. none: the last state; additive: all states, weighed by a small network (Bahdanau et
    al. 2014, https://arxiv.org/abs/1409.0473); dot: all states, weighed by products (Luong et al. 2015,
    https://arxiv.org/abs/1508.04025)."""
    alignment_dim: Width | None = None
    """Hidden width of the network of additive attention, n' in the paper; ``hidden_dim`` by default."""

    @model_validator(mode="after")
    def _alignment_has_a_network(self) -> "RecurrentConfig":
        given = self.alignment_dim is not None and self.attention != "additive"
        refuse_given(f"alignment_dim is for the attention 'additive', not for '{self.attention}'", {"alignment_dim": given})
        return self

    @model_validator(mode="after")
    def _directions_fit(self) -> "RecurrentConfig":
        require_divisible("hidden_dim", self.hidden_dim, "directions", 2)
        return self

    @property
    def inputs(self) -> list[int]:
        """Input width of each layer."""
        return [self.dim, *[self.hidden_dim] * (self.depth - 1)]

    @property
    def looks(self) -> str:
        """The attention in words."""
        return f"{self.attention} attention" + (f" {self.alignment_dim} wide" if self.alignment_dim else "")

    @property
    def family(self) -> str:
        return f"LSTM, {self.attention} attention" if self.attention != "none" else "LSTM"

    @property
    def summary(self) -> str:
        """The architecture in one line."""
        layers = f"{self.depth} + {self.depth} layers {self.hidden_dim} wide"
        return f"{layers}, {self.looks}, embeddings {self.dim} wide, {self.vocabulary:,} tokens"


TRANSFORMERS: dict[str, dict[str, Any]] = {
    f"Transformer-{size}": dict(zip(("dim", "depth", "decoder_depth", "heads", "mlp_dim"), numbers, strict=True))
    for size, numbers in {
        "tiny": (128, 4, 4, 4, 256),
        "small": (256, 3, 3, 4, 512),
        "base": (512, 6, 6, 8, 2048),
        "big": (1024, 6, 6, 16, 4096),
    }.items()
}
"""Base and big are the paper's; tiny and small are for tens of thousands of sentences."""

RECURRENT: dict[str, dict[str, Any]] = {
    "LSTM": {"attention": "none"},
    "LSTM-additive": {"attention": "additive"},
    "LSTM-dot": {"attention": "dot"},
}
