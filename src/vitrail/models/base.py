"""The contract of every model, by which it is trained, studied and exported."""

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
"""All patches of the image; the others in a window of it; or the whole image, of which keys and values know a coarser grid."""


class Model(nn.Module):
    """A model of anything.

    Parameters are registered in the order in which the forward pass comes to them: what stands before the first of `layers`
    is nearest to the input, what stands behind the last nearest to the answer.
    """

    config: ModelConfig

    def layers(self) -> list[nn.Module]:
        """Return the blocks, from input to output.

        Learning rates that fall towards the input, Muon, FSDP, adapters and int8 go by them.
        """
        raise NotImplementedError

    def heads(self) -> dict[str, nn.Module]:
        """Return the parts that give the answer, by name in the model; they are replaced for other classes."""
        raise NotImplementedError

    def readout(self) -> dict[str, nn.Module]:
        """Return the parts behind the encoder, by name in the model: ``training.tune: head`` trains no others.

        These are the heads, or the whole decoder of a model that writes about an image.
        """
        return self.heads()

    def inputs(self) -> dict[str, Shape]:
        """Return the shapes of the inputs of `forward`, by their names."""
        raise NotImplementedError

    def outputs(self) -> dict[str, Shape]:
        """Return the shape of the result of `forward`, by its name in an exported graph."""
        raise NotImplementedError

    def dummy_inputs(self, **lengths: int) -> dict[str, Tensor]:
        """Return inputs of `forward` by name, on "meta"; ``lengths`` are of free sides, ``batch=5``."""
        return {name: shape.zeros("meta", **lengths) for name, shape in self.inputs().items()}

    @contextmanager
    def every_token(self) -> Iterator[None]:
        """Compute every token inside the ``with``, those that the answer does not need among them, to study or count them."""
        yield

    fresh: ClassVar[frozenset[str]] = frozenset()
    """Parts beside the heads that may start anew where a model starts from another's weights."""

    @classmethod
    def starts_from(cls, kind: type["Model"]) -> bool:
        """Return whether `adapted` takes the parameters of a model of this kind; by default of its own kind alone."""
        return kind is cls

    @classmethod
    def adapted(cls, tensors: Mapping[str, Tensor], source: Any, target: Any, interpolation: Interpolation) -> dict[str, Tensor]:
        """Return the parameters of a model of ``source`` for a model of ``target``, fitted to its sizes and channels."""
        return dict(tensors)

    @classmethod
    def may_differ(cls, source: Any, target: Any, *, keep_head: bool) -> Set[str]:
        """Return the fields of two configurations that change no result, or for which `adapted` fits the weights."""
        return target.training_only

    @classmethod
    def differences(cls, source: Any, target: Any, *, keep_head: bool) -> list[str]:
        """Return the fields that change a result and that `adapted` cannot fit: ``dim 192 → 384``."""
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
    """Vectors (B, D) to logits (B, classes), or without classes the vectors as they are."""
    vector_dim: int
    """Width D of `vectors`."""
    sight: ClassVar[Sight | None] = None
    """The tokens that a token can look at, in every layer; None where no layer attends."""
    tokens_read: int | None = None
    """Number of the first tokens that the answer is read from; the last layer may leave out the others. None for all."""

    @contextmanager
    def every_token(self) -> Iterator[None]:
        read, self.tokens_read = self.tokens_read, None
        try:
            yield
        finally:
            self.tokens_read = read

    def initialize(self) -> None:
        """Draw fresh weights: LeCun's normal for matrices, a deviation of 0.02 for the last layer of every head, no biases."""
        self.apply(_lecun_normal)
        for head in self.heads().values():
            if self.config.num_classes:
                nn.init.normal_(last_layer(head).weight, std=0.02)

    def require_images(self, images: Tensor) -> None:
        """Refuse images of another shape than the configuration's; raises `ConfigError`."""
        require_shape(images, self.config)

    def require_channels(self, images: Tensor) -> None:
        """Refuse images of other channels than the configuration's, whatever their size; raises `ConfigError`."""
        if images.ndim != 4 or images.shape[1] != self.config.channels:
            raise ConfigError(
                f"images have shape {tuple(images.shape)}, the model takes (batch, {self.config.channels}, height, width)",
                where="model input",
                hint="give the images these channels, or build the model with theirs",
            )

    def filters(self) -> Tensor:
        """Return the weights that pixels are multiplied by first, by default those of the first convolution: (D, C, h, w)."""
        first = next(module for module in self.modules() if isinstance(module, nn.Conv2d))
        return first.standardized() if isinstance(first, StandardizedConv2d) else first.weight

    def heads(self) -> dict[str, nn.Module]:
        return {"head": self.head}

    def forward(self, images: Tensor) -> Any:
        """Return the logits (B, classes) of images (B, C, H, W), or without classes the vectors (B, D)."""
        return self.head(self.vectors(images))

    def vectors(self, images: Tensor) -> Tensor:
        """Return the vectors that the heads read of images (B, C, H, W): (B, D)."""
        raise NotImplementedError

    def add_head(self, dim: int) -> None:
        """Add a linear layer from vectors (B, dim) to logits; nothing without classes."""
        self.vector_dim = dim
        self.head = linear_head(dim, self.config.num_classes)

    def feature_maps(self, images: Tensor) -> list[Tensor]:
        """Return the maps of images (B, C, H, W), fine ones first: (B, D, H / stride, W / stride) each, see `strides`.

        A model of stages has one for each. A model of patches has a single one: its patches' tokens behind the last norm.
        """
        network: Any = self
        grid = network.config.grid_of(images.shape[2], images.shape[3])
        return [on_grid(network.encode(images)[:, network.config.prefix :], grid)]

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
        """Return the model for images of other sizes, with the same parameters; with unknown sides for a ``graph``.

        Raises:
            ConfigError: it is made for one size.
        """
        what = f"a {type(self).__name__} takes images of {self.config.image_size[0]}×{self.config.image_size[1]} alone"
        raise ConfigError(what, where="image size", hint="build it for the size that the images have")

    @property
    def graph_multiple(self) -> tuple[int, int]:
        """Heights and widths of a graph for images of any size are multiples of these, two or more."""
        return self.config.size_multiple

    @classmethod
    def may_differ(cls, source: Any, target: Any, *, keep_head: bool) -> Set[str]:
        return target.training_only | {"num_classes"}


class AnySizeModel(ImageModel):
    """A model of images (B, C, H, W) of any size, which no pass changes."""

    first_filters: ClassVar[str]
    """Name of the parameter that multiplies the image's channels."""

    def inputs(self) -> dict[str, Shape]:
        height, width = self.config.image_size
        return {"images": Shape((BATCH, self.config.channels, Free("height", height), Free("width", width)))}

    def require_images(self, images: Tensor) -> None:
        """Refuse images of other channels; raises `ConfigError`."""
        self.require_channels(images)

    def at_any_size(self, *, graph: bool = False) -> nn.Module:
        """Return the model itself.

        Raises:
            ConfigError: a ``graph`` for images of any size, which this kind of model has none for.
        """
        if graph:
            raise ConfigError(
                f"there is no graph of a {type(self).__name__} for images of any size",
                where="--image-size",
                hint="export one graph for each size: --image-size 384",
            )
        return self

    @classmethod
    def may_differ(cls, source: Any, target: Any, *, keep_head: bool) -> Set[str]:
        return super().may_differ(source, target, keep_head=keep_head) | {"image_size", "channels"}

    @classmethod
    def adapted(cls, tensors: Mapping[str, Tensor], source: Any, target: Any, interpolation: Interpolation) -> dict[str, Tensor]:
        """Return the parameters for other channels, as `vitrail.parts.adapt_channels`."""
        return {**tensors, cls.first_filters: adapt_channels(tensors[cls.first_filters], target.channels)}


def require_shape(images: Tensor, config: ImageConfig) -> None:
    """Refuse images of another shape than (B, C, H, W) with a model's channels and size; raises `ConfigError`."""
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
    """Draw the weights of a linear layer or convolution; norms keep torch's 1 and 0."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.normal_(module.weight, std=1 / math.sqrt(module.weight[0].numel()))
        if module.bias is not None:
            nn.init.zeros_(module.bias)
