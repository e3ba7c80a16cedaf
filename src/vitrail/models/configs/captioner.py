"""Configuration of a captioner (a ViT and a decoder), and the names of its sizes."""

from typing import Any, ClassVar, Literal, Self

from pydantic import field_validator, model_validator

from vitrail.checks import require_divisible
from vitrail.models.configs.base import OF_IMAGES, ModelConfig, Positive, Probability, Size
from vitrail.models.configs.texts import DecoderConfig, RecurrentConfig
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.configs.vit_names import SIZES

FOR_A_HEAD = ("num_classes", "pool", "head", "head_dropout", "pool_heads", "pool_mlp_dim", "token_merging", "patch_dropout")
"""Fields of a ViT that configure its pooled vector and head, or drop patches: a caption may need any patch."""
ENCODER = {"num_classes": 0, "pool": "mean"}
"""Values of an encoder's fields: all tokens are read, and there is no head."""


class OfImages(ModelConfig):
    """Base of configurations for text about an image: an encoder makes tokens of the image, and the decoder attends to them."""

    encoder: ViTConfig = ViTConfig(num_classes=0, pool="mean", class_token=True)
    """The ViT that encodes the image, without a head."""
    patches_behind: Literal["last", "second-last"] = "last"
    """Block of the ViT after which patches are read; the class token is always read after the last block. In a ViT trained by its
    class token alone, the last block leaves patches without local content, so the second-last is better. Liu et al. 2023
    (https://arxiv.org/abs/2304.08485) do so with CLIP."""

    reads: ClassVar[Literal["images", "texts"]] = "images"
    parts: ClassVar[frozenset[str]] = frozenset({"encoder"})

    @classmethod
    def taken_from(cls, start: ModelConfig) -> dict[str, Any]:
        """Return the encoder's configuration, if ``start`` is a ViT."""
        return {"encoder": encoder_config(start).model_dump()} if isinstance(start, ViTConfig) else {}

    @model_validator(mode="before")
    @classmethod
    def _images_are_the_encoders(cls, values: Any) -> Any:
        """Move ``image_size`` and ``channels``, if they are next to the encoder, into it."""
        if not isinstance(values, dict):
            return values
        given = {name: values[name] for name in OF_IMAGES if name in values}
        encoder = values.get("encoder", {})
        if isinstance(encoder, ViTConfig):
            encoder = encoder.changed(**given) if given else encoder
        elif isinstance(encoder, dict):
            encoder = {**ENCODER, "class_token": True, **encoder, **given}
        return {**{name: value for name, value in values.items() if name not in given}, "encoder": encoder}

    @field_validator("encoder")
    @classmethod
    def _without_a_head(cls, encoder: ViTConfig) -> ViTConfig:
        plain = {name: ViTConfig.model_fields[name].default for name in FOR_A_HEAD} | ENCODER
        for name, wanted in plain.items():
            if getattr(encoder, name) != wanted and not (name == "pool" and encoder.distillation_token):
                raise ValueError(f"the encoder of a captioner gives all of its tokens: leave out {name}")
        if encoder.final_norm == "pooled":
            raise ValueError("the encoder of a captioner has no pooled vector for its norm: give final_norm tokens or none")
        return encoder

    @model_validator(mode="after")
    def _last_block_is_read(self) -> Self:
        if self.patches_behind != "last" and not self.encoder.prefix:
            raise ValueError(
                "patches_behind second-last needs a ViT with a class token, since nothing else is read after its last block"
            )
        return self

    @property
    def image_size(self) -> Size:
        """Height and width of the images."""
        return self.encoder.image_size

    @property
    def channels(self) -> int:
        """Colour channels of the images."""
        return self.encoder.channels

    @property
    def size_multiple(self) -> tuple[int, int]:
        """Divisors of the heights and widths that the images may have."""
        return self.encoder.size_multiple

    @property
    def seen(self) -> str:
        """The encoder in one line."""
        return self.encoder.summary + ", patches of the second last block" * (self.patches_behind == "second-last")


class CaptionerConfig(OfImages, DecoderConfig):
    """Configuration of a captioner: a ViT, and the decoder of the Transformer."""

    cross_heads: Positive | None = None
    """Heads of the attention to the image; ``heads`` if None. With 1 head, the attention map shows all that a word reads."""
    class_token_dropout: Probability = 0.0
    """Fraction of training images whose class token is hidden from the decoder. The class token describes the whole image: a
    decoder that always sees it need not attend to the object that a word names."""

    training_only: ClassVar[frozenset[str]] = DecoderConfig.training_only | {"class_token_dropout"}

    @model_validator(mode="after")
    def _cross_heads_fit(self) -> "CaptionerConfig":
        if self.cross_heads is not None:
            require_divisible("dim", self.dim, "cross_heads", self.cross_heads)
        return self

    @field_validator("output_bias")
    @classmethod
    def _without_a_bias(cls, bias: bool) -> bool:
        if bias:
            raise ValueError("the logits of a captioner have no bias: remove output_bias")
        return bias

    @property
    def summary(self) -> str:
        """The architecture in one line."""
        looks = "" if self.cross_heads in (None, self.heads) else f" ({self.cross_heads} for the image)"
        heads = f"{self.heads} heads{looks}"
        decoder = f"{self.decoder_depth} blocks {self.dim} wide, {heads}, {self.norm}-norm, {self.vocabulary:,} tokens"
        return f"{self.seen}; {decoder}"


class RecurrentCaptionerConfig(OfImages, RecurrentConfig):
    """Configuration of a captioner whose decoder is an LSTM (Xu et al. 2015, https://arxiv.org/abs/1502.03044)."""

    @property
    def summary(self) -> str:
        """The architecture in one line."""
        decoder = f"{self.depth} LSTM layers {self.hidden_dim} wide, {self.looks}, {self.vocabulary:,} tokens"
        return f"{self.seen}; {decoder}"


SMALL_DECODER: dict[str, Any] = {"dim": 256, "decoder_depth": 2, "heads": 4, "mlp_dim": 1024, "norm": "pre", "dropout": 0.2}
"""Decoder for thousands of captions."""
BASE_DECODER: dict[str, Any] = {**SMALL_DECODER, "dim": 512, "decoder_depth": 6, "heads": 8, "mlp_dim": 2048, "dropout": 0.1}
"""Decoder for hundreds of thousands of captions."""


def encoder_config(start: ViTConfig) -> ViTConfig:
    """Return the configuration of a ViT without its head; a norm on the pooled vector becomes one on all tokens."""
    kept = {name: value for name, value in start.model_dump().items() if name not in FOR_A_HEAD}
    norm = "none" if start.final_norm == "none" else "tokens"
    pool = {"pool": "class"} if start.distillation_token else {}  # a distillation token requires this pool
    own = {**kept, **ENCODER, **pool, "class_token": start.has_class_token, "final_norm": norm}
    return ViTConfig.read(own, where="model.encoder")


def caption_config(start: ViTConfig) -> CaptionerConfig:
    """Return the configuration of a captioner with this ViT as encoder, and a small decoder.

    If the ViT is pooled by its class token, patches are read after the second-last block.
    """
    behind = "second-last" if start.pool == "class" else "last"
    return CaptionerConfig.read({**SMALL_DECODER, "patches_behind": behind, **CaptionerConfig.taken_from(start)}, where="model")


_DECODERS = {"Ti": SMALL_DECODER, "S": SMALL_DECODER, "B": BASE_DECODER, "L": BASE_DECODER}
CAPTIONERS: dict[str, dict[str, Any]] = {
    f"Captioner-{size}/16": {**decoder, "encoder": {**SIZES[size], "patch_size": 16}} for size, decoder in _DECODERS.items()
}
RECURRENT_CAPTIONERS: dict[str, dict[str, Any]] = {
    name.replace("Captioner-", "Captioner-LSTM-"): {
        "dim": 256, "hidden_dim": 512, "attention": "additive", "dropout": 0.2, "encoder": fields["encoder"],
    }
    for name, fields in CAPTIONERS.items()
}  # fmt: skip
