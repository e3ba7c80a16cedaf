"""The interface of every model, by which it is trained, studied and exported."""

import math
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from vitrail.errors import ConfigError
from vitrail.models.configs.base import ImageConfig, ModelConfig
from vitrail.models.signature import BATCH, Free, Shape
from vitrail.parts import Grid, Interpolation, StandardizedConv2d, adapt_channels, last_layer, linear_head

Stride = int | tuple[int, int]
"""Pixels from one position to the next, the same down and across, or (down, across)."""
Sight = Literal["image", "windows", "coarser grid"]
"""What a patch attends to: every patch of the image; patches of a window; or the image, whose keys are on a coarser grid."""


class Model(nn.Module):
    """Base class of all models.

    Parameters must be registered in the order of the forward pass: modules registered before the first of `layers` count as
    nearest to the input, modules after the last as nearest to the output.
    """

    config: ModelConfig

    def layers(self) -> list[nn.Module]:
        """Return the blocks, from input to output.

        Layer-wise learning rates, Muon, FSDP, adapters and int8 use this list.
        """
        raise NotImplementedError

    def heads(self) -> dict[str, nn.Module]:
        """Return the modules that compute the output, by name in the model; they are replaced for other classes."""
        raise NotImplementedError

    def readout(self) -> dict[str, nn.Module]:
        """Return the modules after the encoder, by name in the model: ``training.tune: head`` trains only these.

        These are the heads, or the whole decoder of a captioner.
        """
        return self.heads()

    def inputs(self) -> dict[str, Shape]:
        """Return the shapes of `forward`'s inputs, by argument name."""
        raise NotImplementedError

    def outputs(self) -> dict[str, Shape]:
        """Return the shape of `forward`'s result, by its name in an exported graph."""
        raise NotImplementedError

    def dummy_inputs(self, **lengths: int) -> dict[str, Tensor]:
        """Return inputs of `forward` by name, on "meta"; ``lengths`` are the lengths of free sides, for example ``batch=5``."""
        return {name: shape.zeros("meta", **lengths) for name, shape in self.inputs().items()}

    @contextmanager
    def every_token(self) -> Iterator[None]:
        """Compute every token inside the ``with``, also those that the output does not need, to study or count them."""
        yield

    def at_full_size(self) -> nn.Module:
        """Return the model with an output for every pixel, with the same parameters; raises `ConfigError` where it has none."""
        what = f"a {type(self).__name__} gives no class for every pixel"
        raise ConfigError(what, where="--full-size", hint="leave it out")

    fresh: ClassVar[frozenset[str]] = frozenset()
    """Parts besides the heads that may be reinitialized when a model starts from another model's weights."""

    @classmethod
    def starts_from(cls, kind: type["Model"]) -> bool:
        """Return whether `adapted` accepts the parameters of a model of this kind; by default only of the same kind."""
        return kind is cls

    @classmethod
    def adapted(cls, tensors: Mapping[str, Tensor], source: Any, target: Any, interpolation: Interpolation) -> dict[str, Tensor]:
        """Return the parameters of a model of ``source`` converted for one of ``target``: its sizes and channels."""
        return dict(tensors)

    @classmethod
    def may_differ(cls, source: Any, target: Any, *, keep_head: bool) -> Set[str]:
        """Return the fields in which two configurations may differ: no output changes, or `adapted` converts the weights."""
        return target.training_only

    @classmethod
    def differences(cls, source: Any, target: Any, *, keep_head: bool) -> list[str]:
        """Return the fields that differ but must not: they change the output and `adapted` cannot convert, ``dim 192 → 384``."""
        allowed = cls.may_differ(source, target, keep_head=keep_head)
        return [
            f"{name} {getattr(source, name)} → {getattr(target, name)}"
            for name in type(target).model_fields
            if name not in allowed and getattr(source, name) != getattr(target, name)
        ]


class ImageModel(Model):
    """A model of images (B, C, H, W)."""

    config: ImageConfig
    head: Any
    """Module that maps vectors (B, D) to logits (B, classes); the identity without classes."""
    vector_dim: int
    """Width D of `vectors`."""
    sight: ClassVar[Sight | None] = None
    """What a patch attends to in every layer; None for a model without attention."""
    tokens_read: int | None = None
    """Number of first tokens that the output depends on, so that the last layer may skip the others; None for all."""

    @contextmanager
    def every_token(self) -> Iterator[None]:
        read, self.tokens_read = self.tokens_read, None
        try:
            yield
        finally:
            self.tokens_read = read

    def initialize(self) -> None:
        """Sample new weights: LeCun's normal for matrices, a deviation of 0.02 for each head's last layer, zeros for biases."""
        self.apply(_lecun_normal)
        for head in self.heads().values():
            if self.config.num_classes:
                nn.init.normal_(last_layer(head).weight, std=0.02)

    def require_images(self, images: Tensor) -> None:
        """Raise `ConfigError` for images of another shape than the configuration's."""
        require_shape(images, self.config)

    def require_channels(self, images: Tensor) -> None:
        """Raise `ConfigError` for images with another number of channels than the configuration's; sizes are not checked."""
        if images.ndim != 4 or images.shape[1] != self.config.channels:
            raise ConfigError(
                f"images have shape {tuple(images.shape)}, the model takes (batch, {self.config.channels}, height, width)",
                where="model input",
                hint="give images with these channels, or build the model for the channels of the images",
            )

    def filters(self) -> Tensor:
        """Return the weights that pixels are multiplied by, by default those of the first convolution: (D, C, h, w)."""
        first = next(module for module in self.modules() if isinstance(module, nn.Conv2d))
        return first.standardized() if isinstance(first, StandardizedConv2d) else first.weight

    def heads(self) -> dict[str, nn.Module]:
        return {"head": self.head}

    def forward(self, images: Tensor) -> Any:
        """Return the logits (B, classes) of images (B, C, H, W), or the vectors (B, D) of a model without classes."""
        return self.head(self.vectors(images))

    def vectors(self, images: Tensor) -> Tensor:
        """Return the vectors (B, D) that the heads read, for images (B, C, H, W)."""
        raise NotImplementedError

    def add_head(self, dim: int) -> None:
        """Add a linear layer from vectors (B, dim) to logits; the identity without classes."""
        self.vector_dim = dim
        self.head = linear_head(dim, self.config.num_classes)

    def feature_maps(self, images: Tensor) -> list[Tensor]:
        """Return the feature maps of images (B, C, H, W), finest first: (B, D, H / stride, W / stride) each; see `strides`.

        A model of stages has one map per stage. A ViT has one map: the patch tokens after the last norm.
        """
        network: Any = self
        grid = network.config.grid_of(images.shape[2], images.shape[3])
        return [on_grid(network.encode(images)[:, network.config.prefix :], grid)]

    def vectors_and_map(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the `vectors` (B, D) of images, and the last of their `feature_maps`, (B, D', h, w)."""
        return self.vectors(images), self.feature_maps(images)[-1]

    @property
    def strides(self) -> tuple[Stride, ...]:
        """Pixels of the image from one position of a feature map to the next, for every map."""
        network: Any = self
        down, across = network.config.patch_size
        return (down if down == across else (down, across),)

    def inputs(self) -> dict[str, Shape]:
        return {"images": Shape((BATCH, self.config.channels, *self.config.image_size))}

    def outputs(self) -> dict[str, Shape]:
        classes = self.config.num_classes
        return {"logits": Shape((BATCH, classes))} if classes else {"vectors": Shape((BATCH, self.vector_dim))}

    def at_any_size(self, *, graph: bool = False) -> nn.Module:
        """Return the model for images of other sizes, with the same parameters; with symbolic sides for a ``graph``.

        Raises:
            ConfigError: the model is made for one size.
        """
        what = f"a {type(self).__name__} takes only images of {self.config.image_size[0]}×{self.config.image_size[1]}"
        raise ConfigError(what, where="image size", hint="build it for the size that the images have")

    @property
    def graph_multiple(self) -> tuple[int, int]:
        """Divisors of the heights and widths that a graph for images of any size takes; there are two multiples at least."""
        return self.config.size_multiple

    @classmethod
    def may_differ(cls, source: Any, target: Any, *, keep_head: bool) -> Set[str]:
        return target.training_only | {"num_classes"}


class AnySizeModel(ImageModel):
    """A model of images (B, C, H, W) of any size, without conversion of its weights."""

    first_filters: ClassVar[str]
    """Name of the parameter whose second dimension is the image's channels."""

    def inputs(self) -> dict[str, Shape]:
        height, width = self.config.image_size
        return {"images": Shape((BATCH, self.config.channels, Free("height", height), Free("width", width)))}

    def require_images(self, images: Tensor) -> None:
        """Raise `ConfigError` for images with another number of channels; any size is accepted."""
        self.require_channels(images)

    def at_any_size(self, *, graph: bool = False) -> nn.Module:
        """Return the model itself.

        Raises:
            ConfigError: a ``graph`` is requested, which this kind of model cannot be exported to for any size.
        """
        if graph:
            raise ConfigError(
                f"a {type(self).__name__} cannot be exported for images of any size",
                where="--image-size",
                hint="export one graph for each size: --image-size 384",
            )
        return self

    @classmethod
    def may_differ(cls, source: Any, target: Any, *, keep_head: bool) -> Set[str]:
        return super().may_differ(source, target, keep_head=keep_head) | {"image_size", "channels"}

    @classmethod
    def adapted(cls, tensors: Mapping[str, Tensor], source: Any, target: Any, interpolation: Interpolation) -> dict[str, Tensor]:
        """Return the parameters converted for other channels, by `vitrail.parts.adapt_channels`."""
        return {**tensors, cls.first_filters: adapt_channels(tensors[cls.first_filters], target.channels)}


def require_shape(images: Tensor, config: ImageConfig) -> None:
    """Raise `ConfigError` for images of another shape than (B, C, H, W) with a model's channels and size."""
    expected = (config.channels, *config.image_size)
    if images.ndim != 4 or tuple(images.shape[1:]) != expected:
        raise ConfigError(
            f"images have shape {tuple(images.shape)}, the model takes (batch, {', '.join(map(str, expected))})",
            where="model input",
            hint="resize the images, or build the model with their image_size and channels",
        )


def on_grid(tokens: Tensor, grid: Grid) -> Tensor:
    """Return the tokens (B, N, D) of N patches, row by row, as a map (B, D, rows, columns)."""
    return tokens.transpose(1, 2).unflatten(2, grid)


def _lecun_normal(module: nn.Module) -> None:
    """Sample the weights of a linear layer or convolution; norms keep torch's 1 and 0."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.normal_(module.weight, std=1 / math.sqrt(module.weight[0].numel()))
        if module.bias is not None:
            nn.init.zeros_(module.bias)
