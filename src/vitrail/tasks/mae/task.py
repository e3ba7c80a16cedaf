"""Masked autoencoding (He et al. 2021, https://arxiv.org/abs/2111.06377): drawing the patches that the encoder does not see."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.checks import refuse_given
from vitrail.data.images.plan import Plan
from vitrail.data.images.preparation import Preparation
from vitrail.data.items import ImageData, Item
from vitrail.data.loading.batches import Batch
from vitrail.data.loading.sampler import spread
from vitrail.data.targets import Arrays, Targets
from vitrail.errors import ConfigError
from vitrail.models.base import ImageModel
from vitrail.tasks.features.masking import require_maskable
from vitrail.tasks.floor import Floor
from vitrail.tasks.image_task import ImageTask
from vitrail.tasks.mae.settings import ReconstructionSettings
from vitrail.tasks.task import Answers, Means, Metrics, Options
from vitrail.weights.model_folder.folder import TrainedModel

SOME = 64
"""Images that the floor is measured on."""
EPSILON = 1e-6
"""Number added to the variance of a patch."""


class Reconstruction(ImageTask):
    """An encoder sees some patches of an image; from them a small decoder draws the others.

    The encoder is a ViT, which is kept; the decoder is thrown away.

    Args:
        model: the encoder, a ViT without a head and with a final norm on all tokens.
        preparation: normalizes the pixels.
        settings: how much is masked, and the size of the decoder.
    """

    name = "mae"

    def __init__(self, model: ImageModel, preparation: Preparation, settings: ReconstructionSettings):
        super().__init__(model, preparation)
        self.settings, self.config = settings, require_maskable(model, "masked autoencoding")
        _require_deviation(self.config, settings)
        self.decoder = Decoder(self.config, settings)

    @classmethod
    def create(cls, model: ImageModel, preparation: Preparation, data: ImageData, options: Options) -> Self:
        assert isinstance(options.task, ReconstructionSettings)
        others = {"--balance": options.balance != "none", "--tune": options.tune == "head"}
        given = {"--teacher": options.teacher is not None, **others}
        refuse_given("masked autoencoding has no classes, no teacher and no head", given)
        return cls(model, preparation, options.task)

    def targets(self, *, mixed: bool = False) -> Targets:
        return Noise(self.config.grid[0] * self.config.grid[1])

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return {"loss": self.loss(self.images(batch), batch["noise"]).mean()}

    def answer(self, batch: Batch) -> Answers:
        """Return the loss of each image, (B,)."""
        return {"loss": self.loss(self.images(batch), batch["noise"])}

    def metrics(self, *, keep: bool = False) -> Means:
        return Means(lambda answers, batch: {"loss": answers["loss"].cpu()})

    @torch.no_grad()
    def floor(self, metrics: Metrics, items: Sequence[Item], known: Sequence[Item]) -> Floor | None:
        """Return the loss of the mean colour, zero, for every patch, on some of the ``items``."""
        some = [items[place] for place in spread(len(items), SOME)]
        pixels = self.dataset(some).batch([(0, number) for number in range(len(some))])["images"]
        wanted = self._wanted(self.preparation.normalize(pixels))
        return Floor("one colour for every patch", {"loss": wanted.square().mean().item()})

    def trained(self, model: ImageModel) -> TrainedModel:
        return TrainedModel(model, [], self.preparation)

    def allow_any_size(self) -> None:
        hint = "leave first_image_size and last_image_size out"
        raise ConfigError("masked autoencoding takes images of one size", where="schedule", hint=hint)

    def loss(self, images: Tensor, noise: Tensor) -> Tensor:
        """Return the mean squared error of the masked patches of normalized images (B, C, H, W), for each image: (B,)."""
        drawn, masked = self.reconstruct(images, noise)
        true = self._wanted(images)
        errors = (drawn.float() - true).square().mean(dim=2)  # (B, N)
        return (errors * masked).sum(dim=1) / masked.sum(dim=1)

    def _wanted(self, images: Tensor) -> Tensor:
        """Return what the decoder is to draw of normalized images (B, C, H, W): (B, N, P² C)."""
        true = self.patches_of(images)
        if self.settings.normalize_patches:
            mean, std = patch_statistics(true)
            true = (true - mean) / std
        return true

    def reconstruct(self, images: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the decoder's pixels of every patch, (B, N, P² C), and 1 for each masked patch, (B, N).

        The patches of the smallest ``noise`` (B, N) are seen, see `seen_of`.
        """
        c, count = self.config, noise.shape[1]
        kept = noise.argsort(dim=1)[:, : self.seen_of(count)]  # (B, K)
        prefix = torch.arange(c.prefix, device=noise.device).expand(len(noise), -1)
        model: Any = self.model
        z = model.encode(images, kept=torch.cat([prefix, kept + c.prefix], dim=1))  # (B, prefix + K, D)
        masked = torch.ones_like(noise).scatter(1, kept, 0.0)
        return self.decoder(z, kept, count), masked

    def seen_of(self, count: int) -> int:
        """Return how many of ``count`` patches the encoder sees: ``1 - mask_ratio`` of them, rounded down, but at least one."""
        return min(count - 1, max(1, int(count * (1 - self.settings.mask_ratio))))

    @torch.no_grad()
    def drawn(self, images: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return normalized images (B, C, H, W) with masked patches at zero, and with masked patches as the decoder draws them.

        Where patches were normalized, each gets its own mean and deviation back: without them a reconstruction is noise.
        """
        true = self.patches_of(images)
        patches, masked = self.reconstruct(images, noise)
        if self.settings.normalize_patches:
            mean, std = patch_statistics(true)
            patches = patches * std + mean
        masked = masked[..., None]
        seen = true * (1 - masked)
        return self.images_of(seen), self.images_of(seen + patches * masked)

    def patches_of(self, images: Tensor) -> Tensor:
        """Cut images (B, C, H, W) into the pixels of their patches, channels last as the authors have them: (B, N, P² C)."""
        return parts.patchify(images, self.config.patch_size, channels_last=True)

    def images_of(self, patches: Tensor) -> Tensor:
        """Put patches (B, N, P² C) together to images (B, C, H, W)."""
        return parts.unpatchify(patches, self.config.patch_size, self.config.grid, channels_last=True)


@dataclass(frozen=True)
class Noise:
    """A random number for each patch of an image, which say what the encoder sees: ``noise``, float32 (N,)."""

    patches: int
    mixable = False

    def __call__(self, item: Item, plan: Plan | None, random: np.random.Generator) -> Arrays:
        return {"noise": random.random(self.patches, dtype=np.float32)}


class Decoder(nn.Module):
    """A small transformer from tokens of the seen patches to the pixels of all."""

    def __init__(self, config: Any, settings: ReconstructionSettings):
        super().__init__()
        dim, heads = settings.decoder_dim, settings.decoder_heads
        self.prefix = config.prefix
        self.embedding = nn.Linear(config.dim, dim)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = parts.sincos_position_2d(config.grid, dim, prefix=config.prefix)
        self.blocks = nn.ModuleList(
            parts.Block(dim, parts.Attention(dim, heads), parts.FeedForward(dim, 4 * dim), norm_eps=config.norm_eps)
            for _ in range(settings.decoder_depth)
        )
        self.norm = parts.norm_layer(dim, eps=config.norm_eps)
        self.head = nn.Linear(dim, config.patch_size[0] * config.patch_size[1] * config.channels)
        self.apply(_initialize)
        nn.init.normal_(self.mask_token, std=0.02)

    def forward(self, z: Tensor, kept: Tensor, count: int) -> Tensor:
        """Convert tokens (B, prefix + K, D) of the patches ``kept`` (B, K) to the pixels of all patches, (B, N, P² C)."""
        x = self.embedding(z).to(self.mask_token.dtype)  # as the encoder's, the sum of all branches keeps its precision
        first, seen = x[:, : self.prefix], x[:, self.prefix :]
        patches = self.mask_token.expand(len(x), count, -1)
        patches = patches.scatter(1, kept[..., None].expand_as(seen), seen)  # each seen patch at its place
        x = self.position(torch.cat([first, patches], dim=1))  # (B, prefix + N, D)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, self.prefix :]))


def patch_statistics(patches: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of the pixels of each patch, (B, N, 1); the variance is the unbiased one."""
    return patches.mean(dim=2, keepdim=True), (patches.var(dim=2, keepdim=True) + EPSILON).sqrt()


def _require_deviation(config: Any, settings: ReconstructionSettings) -> None:
    """Refuse to divide a single number by its deviation; raises `ConfigError`."""
    if settings.normalize_patches and math.prod(config.patch_size) * config.channels == 1:
        hint = "add --task.normalize-patches false, or take larger patches"
        raise ConfigError("a patch of one number has no deviation to be divided by", where="task.normalize_patches", hint=hint)


def _initialize(module: nn.Module) -> None:
    """Initialize as the authors do: Xavier's uniform for matrices, no biases."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


create = Reconstruction.create
