"""Masked autoencoding (He et al. 2021, https://arxiv.org/abs/2111.06377): drawing the patches that the encoder does not see."""

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from vitrail import parts
from vitrail.data.dataset import Batch
from vitrail.data.items import ImageData
from vitrail.data.preparation import Preparation
from vitrail.data.targets import NoTargets
from vitrail.errors import ConfigError
from vitrail.models.base import Model
from vitrail.tasks.settings import ReconstructionSettings
from vitrail.tasks.task import Answers, Means, Options, Task
from vitrail.weights.folder import TrainedModel

EPSILON = 1e-6
"""Added to the variance of a patch before its root is taken."""
MASK = 4  # separates this randomness from the order's and the samples'


class Reconstruction(Task):
    """An encoder sees some patches of an image; from them a small decoder draws the others.

    The encoder is a ViT, which is kept; the decoder is thrown away.

    Args:
        model: the encoder, a ViT without a head and with a final norm on all tokens.
        preparation: normalizes the pixels.
        settings: how much is masked, and the size of the decoder.
    """

    name = "mae"

    def __init__(self, model: Model, preparation: Preparation, settings: ReconstructionSettings):
        super().__init__(model, preparation)
        self.settings, self.config = settings, _require_encoder(model)
        self.decoder = Decoder(self.config, settings)

    @classmethod
    def create(cls, model: Model, preparation: Preparation, data: ImageData, options: Options) -> Self:
        assert isinstance(options.task, ReconstructionSettings)
        if options.teacher is not None or options.balance:
            where, what = ("--teacher", "teachers") if options.teacher is not None else ("--balance", "classes to balance")
            raise ConfigError(f"masked autoencoding has no {what}", where=where, hint="leave it out")
        return cls(model, preparation, options.task)

    def targets(self, *, mixed: bool = False) -> NoTargets:
        return NoTargets()

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        count, patches = len(batch["images"]), self.config.grid[0] * self.config.grid[1]
        noise = torch.rand(count, patches, device=batch["images"].device)
        return {"loss": self.loss(self.images(batch), noise).mean()}

    def answer(self, batch: Batch) -> Answers:
        """The loss of each image, (B,); every image is masked in the same way."""
        noise = self.fixed_noise(len(batch["images"])).to(batch["images"].device)
        return {"loss": self.loss(self.images(batch), noise)}

    def metrics(self, *, keep: bool = False) -> Means:
        return Means(lambda answers, batch: {"loss": answers["loss"].cpu()})

    def trained(self, model: Model) -> TrainedModel:
        return TrainedModel(model, [], self.preparation)

    def allow_any_size(self) -> None:
        hint = "leave schedule.first_image_size out"
        raise ConfigError("masked autoencoding takes images of one size", where="schedule.first_image_size", hint=hint)

    def fixed_noise(self, count: int) -> Tensor:
        """The same random numbers (count, N) for every image: which patches an evaluation and a report mask."""
        random = np.random.default_rng(MASK).random(self.config.grid[0] * self.config.grid[1], dtype=np.float32)
        return torch.from_numpy(random).expand(count, -1)

    def loss(self, images: Tensor, noise: Tensor) -> Tensor:
        """The mean squared error of the masked patches of normalized images (B, C, H, W), for each image: (B,)."""
        drawn, masked = self.reconstruct(images, noise)
        true = patches_of(images, self.config.patch_size)
        if self.settings.normalize_patches:
            mean, std = patch_statistics(true)
            true = (true - mean) / std
        errors = (drawn.float() - true).square().mean(dim=2)  # (B, N)
        return (errors * masked).sum(dim=1) / masked.sum(dim=1)

    def reconstruct(self, images: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """What the decoder draws of every patch, (B, N, P² C), and which of them the encoder has not seen, (B, N).

        The patches of the smallest ``noise`` (B, N) are seen, as many as ``1 - mask_ratio`` of them.
        """
        c, count = self.config, noise.shape[1]
        seen = max(1, int(count * (1 - self.settings.mask_ratio)))
        kept = noise.argsort(dim=1)[:, :seen]  # (B, K)
        prefix = torch.arange(c.prefix, device=noise.device).expand(len(noise), -1)
        model: Any = self.model
        z = model.encode(images, kept=torch.cat([prefix, kept + c.prefix], dim=1))  # (B, prefix + K, D)
        masked = torch.ones_like(noise).scatter(1, kept, 0.0)
        return self.decoder(z, kept, count), masked

    @torch.no_grad()
    def drawn(self, images: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Normalized images (B, C, H, W) as the encoder sees them, masked patches at zero, and with these as they are drawn.

        Where patches were normalized, each gets its own mean and deviation back: without them a reconstruction is noise.
        """
        true = patches_of(images, self.config.patch_size)
        patches, masked = self.reconstruct(images, noise)
        if self.settings.normalize_patches:
            mean, std = patch_statistics(true)
            patches = patches * std + mean
        masked = masked[..., None]
        seen = true * (1 - masked)
        return self._images_of(seen), self._images_of(seen + patches * masked)

    def _images_of(self, patches: Tensor) -> Tensor:
        """The images (B, C, H, W) that patches (B, N, P² C) make up."""
        rows, columns = self.config.grid
        height, width = self.config.patch_size
        x = patches.unflatten(2, (height, width, -1)).unflatten(1, (rows, columns))  # (B, rows, columns, P, P, C)
        return x.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)


class Decoder(nn.Module):
    """Tokens of the seen patches to the pixels of all.

    Args:
        config: of the encoder.
        settings: width, depth and heads.
    """

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
        """Tokens (B, prefix + K, D) of the patches ``kept`` (B, K) to the pixels of all ``count`` patches, (B, N, P² C)."""
        x = self.embedding(z)
        first, seen = x[:, : self.prefix], x[:, self.prefix :]
        patches = self.mask_token.to(x.dtype).expand(len(x), count, -1)
        patches = patches.scatter(1, kept[..., None].expand_as(seen), seen)  # each seen patch at its place
        x = self.position(torch.cat([first, patches], dim=1))  # (B, prefix + N, D)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, self.prefix :]))


def patches_of(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Images (B, C, H, W) as patches of their pixels, row by row, channels last: (B, N, P² C)."""
    x = images.unflatten(3, (-1, size[1])).unflatten(2, (-1, size[0]))  # (B, C, rows, P, columns, P)
    return x.permute(0, 2, 4, 3, 5, 1).flatten(3, 5).flatten(1, 2)


def patch_statistics(patches: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of the pixels of each patch, (B, N, 1); the variance is the unbiased one."""
    return patches.mean(dim=2, keepdim=True), (patches.var(dim=2, keepdim=True) + EPSILON).sqrt()


def _require_encoder(model: Model) -> Any:
    """The configuration of a model that can be an encoder; raises `ConfigError`."""
    config: Any = model.config
    faults = {
        "a model whose patches can be left out": not hasattr(model, "encode"),
        "patches that are embedded one by one": getattr(config, "embedding", "conv") not in ("conv", "linear"),
        "a size of images that is whole patches": getattr(config, "crop_remainder", False),
        "a final norm on all tokens": getattr(config, "final_norm", "") == "pooled",
        "no attention pooling": str(getattr(config, "pool", "")).startswith("attention"),
        "no distillation token": getattr(config, "distillation_token", False),
        "no patch dropout": bool(getattr(config, "patch_dropout", 0)),
        "no token merging": any(config.merged),
    }
    missing = [what for what, fault in faults.items() if fault]
    if missing:
        raise ConfigError(f"masked autoencoding needs {missing[0]}", where="model", hint="take a ViT such as ViT-Ti/16")
    return config


def _initialize(module: nn.Module) -> None:
    """As the authors: Xavier's uniform for matrices, no biases."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
