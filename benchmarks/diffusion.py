"""Training and sampling of diffusion beside diffusers, and beside the authors' model made of timm's parts, in turns.

    python benchmarks/diffusion.py [--quick]

All have the same size and random weights. Needs the peers that the extra dev installs.
"""

import argparse
import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import side_by_side
import torch
from side_by_side import PRECISION, PRECISIONS, Work
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent / "tests/models/vision"))
from diffusers import DDIMScheduler, DiTTransformer2DModel
from test_dit import in_diffusers, randomized
from timm.layers import Mlp
from timm.models.vision_transformer import Attention

from vitrail.config.settings import RunSettings
from vitrail.data.images.preparation import Preparation
from vitrail.models.registry import create_model
from vitrail.parts import sincos_position_2d, time_frequencies
from vitrail.runtime.device import TYPES
from vitrail.tasks.diffusion.sampling.making import sample_batches
from vitrail.tasks.diffusion.sampling.options import Sampling
from vitrail.tasks.diffusion.settings import DiffusionSettings
from vitrail.tasks.diffusion.task import Diffusion
from vitrail.tasks.diffusion.weights import TrainedDiffusion
from vitrail.training.loop.learner import Learner

SIZES = {
    "32 px, patch 4, 192/9/3": {
        "image_size": 32, "channels": 3, "patch_size": 4, "dim": 192, "depth": 9, "heads": 3, "mlp_dim": 768, "num_classes": 10,
        "learned_variance": False,
    },
    "DiT-S/4, 32×32×3": {"channels": 3, "patch_size": 4, "num_classes": 1000},
}  # fmt: skip
BATCHES = (128, 16)
"""Images of a training step, for each size."""
STEPS = 10
"""Steps of sampling, each with guidance."""


class Reference(nn.Module):
    """DiT of timm's attention and MLP, in eager mode, block by block as in the authors' code."""

    def __init__(self, config: Any):
        super().__init__()
        self.config = c = config
        self.patch = nn.Conv2d(c.channels, c.dim, c.patch_size, c.patch_size)
        self.register_buffer("table", sincos_position_2d(c.grid, c.dim, prefix=0)(torch.zeros(1, c.grid[0] * c.grid[1], c.dim)))
        self.time = nn.Sequential(nn.Linear(c.time_dim, c.dim), nn.SiLU(), nn.Linear(c.dim, c.dim))
        self.label = nn.Embedding(c.labels, c.dim)
        self.blocks = nn.ModuleList(ReferenceBlock(c) for _ in range(c.depth))
        self.norm = nn.LayerNorm(c.dim, elementwise_affine=False, eps=1e-6)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(c.dim, 2 * c.dim))
        self.linear = nn.Linear(c.dim, c.patch_size[0] * c.patch_size[1] * c.output_channels)

    def forward(self, images: Tensor, times: Tensor, labels: Tensor) -> Tensor:
        """(B, C, H, W), (B,) and (B,) to (B, C, H, W), or (B, 2C, H, W) with a learned variance."""
        c = self.config
        z = self.patch(images).flatten(2).mT + self.table
        condition = self.time(time_frequencies(times, c.time_dim)) + self.label(labels)
        for block in self.blocks:
            z = block(z, condition)
        shift, scale = self.modulation(condition)[:, None].chunk(2, dim=-1)
        z = self.linear(self.norm(z) * (1 + scale) + shift)
        z = z.view(-1, *c.grid, *c.patch_size, c.output_channels)
        return torch.einsum("nhwpqc->nchpwq", z).reshape(-1, c.output_channels, *c.image_size)


class ReferenceBlock(nn.Module):
    """A block with adaLN-Zero."""

    def __init__(self, c: Any):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(c.dim, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.attention = Attention(c.dim, num_heads=c.heads, qkv_bias=True)
        self.mlp = Mlp(c.dim, c.mlp_dim, act_layer=lambda: nn.GELU(approximate="tanh"))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(c.dim, 6 * c.dim))

    def forward(self, z: Tensor, condition: Tensor) -> Tensor:
        """(B, N, D) and (B, D) to (B, N, D)."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition)[:, None].chunk(6, dim=-1)
        z = z + gate1 * self.attention(self.norm1(z) * (1 + scale1) + shift1)
        return z + gate2 * self.mlp(self.norm2(z) * (1 + scale2) + shift2)


def vitrail_step(fields: dict[str, Any], batch: int, precision: str, *, compiled: bool = False) -> Work:
    """Return a training step as `vitrail train` makes it."""
    model = create_model("DiT-S/2", **fields)
    settings = RunSettings.read(
        {
            "data": {"source": "noise"},
            "task": {"name": "diffusion"},
            "model": {"name": "DiT-S/2", **model.config.model_dump(mode="json")},
            "training": {"precision": precision, "device": "cpu", "compile": compiled},
        }
    )
    c: Any = model.config
    classes = [str(number) for number in range(c.num_classes)]
    preparation = Preparation.standard(c.image_size, 1 if c.channels == 1 else 3)
    learner = Learner(settings, Diffusion(model.train(), preparation, classes, DiffusionSettings()), total=10**6, warmup=0)
    arrays = {
        "images": torch.randn(batch, c.channels, *c.image_size),
        "noise": torch.randn(batch, c.channels, *c.image_size),
        "times": torch.rand(batch),
        "dropped": torch.rand(batch) < 0.1,
        "labels": torch.randint(0, c.num_classes, (batch,)),
    }
    return lambda: learner.step(arrays, done=0, size=batch, own=batch)


def reference_step(fields: dict[str, Any], batch: int, precision: str, *, compiled: bool = False) -> Work:
    """Return a training step of `Reference`: the squared error alone, and nothing else that a step does not need."""
    c: Any = create_model("DiT-S/2", **fields).config
    model = Reference(c).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model) if compiled else model
    images, noise = torch.randn(2, batch, c.channels, *c.image_size)
    times, labels = torch.randint(0, 1000, (batch,)), torch.randint(0, c.num_classes, (batch,))

    def work() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            output = forward(images, times, labels)
        (output[:, : c.channels].float() - noise).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return work


def samplers(fields: dict[str, Any], count: int) -> dict[str, Work]:
    """Return sampling with guidance by Vitrail, and by diffusers' model and scheduler of the same weights."""
    model = randomized(create_model("DiT-S/2", **fields))
    c: Any = model.config
    preparation = Preparation.standard(c.image_size, 1 if c.channels == 1 else 3)
    trained = TrainedDiffusion(model, [str(number) for number in range(c.num_classes)], preparation)
    labels = [number % c.num_classes for number in range(count)]
    peer = DiTTransformer2DModel(
        num_attention_heads=c.heads, attention_head_dim=c.dim // c.heads, in_channels=c.channels, out_channels=c.output_channels,
        num_layers=c.depth, sample_size=c.image_size[0], patch_size=c.patch_size[0], num_embeds_ada_norm=c.num_classes,
    ).eval()  # fmt: skip
    peer.load_state_dict({**peer.state_dict(), **in_diffusers(model)})
    sampling, works = Sampling(steps=STEPS, guidance=2.0), dict[str, Work]()
    for precision in PRECISIONS:
        fast = trained.for_sampling(precision)
        works[f"Vitrail {precision}"] = lambda fast=fast: list(sample_batches(fast, range(count), labels, sampling))
        works[f"diffusers {precision}"] = diffusers_sampling(peer, labels, TYPES[precision])
    return works


def diffusers_sampling(model: Any, labels: list[int], dtype: torch.dtype) -> Work:
    """Return sampling as diffusers' ``DiTPipeline`` does it, without its VAE."""
    model = copy.deepcopy(model).to(dtype)
    count, config = len(labels), model.config
    classes = torch.tensor([*labels, *[config.num_embeds_ada_norm] * count])
    shape = count, config.in_channels, config.sample_size, config.sample_size

    @torch.inference_mode()
    def work() -> Tensor:
        scheduler = DDIMScheduler(clip_sample=False)
        scheduler.set_timesteps(STEPS)
        x = torch.randn(shape, dtype=dtype)
        for time in scheduler.timesteps:
            output = model(torch.cat([x, x]), timestep=time.expand(2 * count), class_labels=classes).sample
            own, free = output[:, : config.in_channels].chunk(2)
            x = scheduler.step(free + 2.0 * (own - free), time, x).prev_sample
        return x

    return work


def tables(*, quick: bool) -> Iterator[str]:
    """Yield the tables of training and of sampling, in Markdown."""
    rounds = 4 if quick else 14
    for (name, fields), batch in zip(SIZES.items(), BATCHES, strict=True):
        torch.manual_seed(0)
        steps = {}
        for compiled in (False,) if quick else (False, True):
            ending = f"{PRECISION}, compiled" if compiled else PRECISION
            steps[f"Vitrail {ending}"] = vitrail_step(fields, batch, PRECISION, compiled=compiled)
            steps[f"reference {ending}"] = reference_step(fields, batch, PRECISION, compiled=compiled)
        yield side_by_side.beside(f"training step, {name}, batch {batch}", steps, batch, "reference", rounds=rounds)
        for count in (1, 16):
            title = f"{STEPS} steps of DDIM with guidance, {name}, {count} at once"
            yield side_by_side.beside(title, samplers(fields, count), count, "diffusers", rounds=rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="nothing compiled, and fewer rounds")
    for text in tables(quick=parser.parse_args().quick):
        print(text, flush=True)
