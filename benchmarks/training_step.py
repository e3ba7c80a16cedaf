"""Images per second of a whole training step (forward, backward, AdamW), beside timm, transformers and vit-pytorch.

python benchmarks/training_step.py [--quick]
"""

import argparse
import contextlib
from dataclasses import dataclass

import side_by_side
import torch
import torch.nn.functional as F
from torch import nn

from vitrail.data.preparation import Preparation
from vitrail.models.config import ViTConfig
from vitrail.models.vit import ViT
from vitrail.training.learner import Learner
from vitrail.training.memory import kept_memory
from vitrail.training.settings import RunSettings
from vitrail.training.task import Task


@dataclass(frozen=True)
class Shape:
    """A model and a batch."""

    image_size: int
    patch_size: int
    dim: int
    depth: int
    heads: int
    batch: int
    classes: int

    @property
    def operations(self) -> float:
        """Of the matrix products of a step with one image: two per multiply-add, three times those of a forward pass."""
        patches, d = (self.image_size // self.patch_size) ** 2, self.dim
        tokens = patches + 1
        return 6 * (self.depth * (12 * d * d * tokens + 2 * tokens**2 * d) + patches * 3 * self.patch_size**2 * d)


SHAPES = {
    "32 px, patch 4, 192/9/3, batch 128": Shape(32, 4, 192, 9, 3, 128, 10),
    "ViT-Ti/16, 224 px, batch 16": Shape(224, 16, 192, 12, 3, 16, 1000),
}


def vitrail_step(shape: Shape, precision: str, *, compiled: bool = False) -> side_by_side.Work:
    """A step as `vitrail train` makes it, the counting of right answers and the check for NaN included."""
    s = shape
    fields = {"image_size": s.image_size, "patch_size": s.patch_size, "num_classes": s.classes}
    config = ViTConfig(**fields, dim=s.dim, depth=s.depth, heads=s.heads, mlp_dim=4 * s.dim)
    settings = RunSettings.read(
        {
            "data": {"source": "noise"},
            "model": {"name": "ViT-Ti/16", **config.model_dump(mode="json")},
            "training": {"precision": precision, "compile": compiled, "device": "cpu"},
        }
    )
    preparation = Preparation.standard(config.image_size)
    learner = Learner(settings, ViT(config).train(), preparation, Task(), total=10**6, warmup=0)
    pixels = torch.randint(0, 256, (s.batch, 3, s.image_size, s.image_size), dtype=torch.uint8)
    labels = torch.randint(0, s.classes, (s.batch,))
    return lambda: learner.step(pixels, labels, done=0, size=s.batch, own=s.batch)


def step(model: nn.Module, shape: Shape, *, bf16: bool, compiled: bool = False) -> side_by_side.Work:
    """A peer's step, without anything that a step does not need."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model) if compiled else model
    images = torch.randn(shape.batch, 3, shape.image_size, shape.image_size)
    labels = torch.randint(0, shape.classes, (shape.batch,))

    def work() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            answers = forward(images)
        loss = F.cross_entropy(getattr(answers, "logits", answers).float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return work


def timm_model(s: Shape) -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=s.image_size,
        patch_size=s.patch_size,
        embed_dim=s.dim,
        depth=s.depth,
        num_heads=s.heads,
        num_classes=s.classes,
    )


def hugging_face_model(s: Shape) -> nn.Module:
    from transformers import ViTConfig as Config
    from transformers import ViTForImageClassification

    fields = {"image_size": s.image_size, "patch_size": s.patch_size, "num_labels": s.classes}
    widths = {"hidden_size": s.dim, "intermediate_size": 4 * s.dim}
    return ViTForImageClassification(
        Config(**fields, **widths, num_hidden_layers=s.depth, num_attention_heads=s.heads, hidden_act="gelu")
    )


def vit_pytorch_model(s: Shape) -> nn.Module:
    from vit_pytorch import ViT as Theirs

    return Theirs(
        image_size=s.image_size,
        patch_size=s.patch_size,
        num_classes=s.classes,
        dim=s.dim,
        depth=s.depth,
        heads=s.heads,
        mlp_dim=4 * s.dim,
        dim_head=s.dim // s.heads,
    )


def contenders(s: Shape, *, quick: bool) -> dict[str, side_by_side.Work]:
    """Everybody's step, the slowest to compile left out where it must be quick."""
    found = {
        "Vitrail fp32": vitrail_step(s, "fp32"),
        "Vitrail bf16": vitrail_step(s, "bf16"),
        "timm fp32": step(timm_model(s), s, bf16=False),
        "timm bf16": step(timm_model(s), s, bf16=True),
        "transformers bf16": step(hugging_face_model(s), s, bf16=True),
        "vit-pytorch bf16": step(vit_pytorch_model(s), s, bf16=True),
    }
    if not quick:
        found |= {
            "Vitrail bf16, compiled": vitrail_step(s, "bf16", compiled=True),
            "timm bf16, compiled": step(timm_model(s), s, bf16=True, compiled=True),
            "vit-pytorch bf16, compiled": step(vit_pytorch_model(s), s, bf16=True, compiled=True),
        }
    return found


def around(name: str) -> contextlib.AbstractContextManager[None]:
    """A run of Vitrail's has its steps in memory that stays."""
    return kept_memory() if "Vitrail" in name else contextlib.nullcontext()


def main(*, quick: bool) -> str:
    """The table for every shape, in Markdown."""
    parts = []
    for name, shape in SHAPES.items():
        torch.manual_seed(0)
        times = side_by_side.seconds(
            contenders(shape, quick=quick), rounds=2 if quick else 7, at_least=2.0 if quick else 4.0, around=around
        )
        rate = side_by_side.product_rate(torch.bfloat16)
        base = times["timm fp32"]
        rows = []
        for contender, took in sorted(times.items(), key=lambda pair: pair[1]):
            share = shape.operations * shape.batch / took / rate
            rows.append(
                [contender, f"{shape.batch / took:.1f}", f"{base / took:.2f}", f"{share:.0%}" if "bf16" in contender else ""]
            )
        head = [name, "images/s", "× timm fp32", f"of the bf16 product rate, {rate / 1e9:.0f} GFLOP/s"]
        parts.append(side_by_side.table(head, rows))
    return "\n".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    print(main(quick=parser.parse_args().quick))
