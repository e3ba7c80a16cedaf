"""Peak memory of a forward pass of a ViT-Ti/16 over large images, beside timm, transformers, torchvision and vit-pytorch.

python benchmarks/long_sequences.py
"""

import multiprocessing
import re
from pathlib import Path

import side_by_side
import torch
from torch import nn

SIDES = (512, 1024, 2048)
CONTENDERS = ("Vitrail", "Vitrail bf16", "timm", "torchvision", "transformers", "vit-pytorch")


def build(contender: str, side: int) -> nn.Module:
    """A ViT-Ti/16 of 1,000 classes for images of this side."""
    if contender == "timm":
        from timm.models.vision_transformer import VisionTransformer

        return VisionTransformer(img_size=side, embed_dim=192, depth=12, num_heads=3)
    if contender == "torchvision":
        from torchvision.models import VisionTransformer as Theirs

        return Theirs(image_size=side, patch_size=16, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768)
    if contender == "transformers":
        from transformers import ViTConfig, ViTForImageClassification

        widths = {"hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 12, "num_attention_heads": 3}
        return ViTForImageClassification(ViTConfig(image_size=side, num_labels=1000, **widths))
    if contender == "vit-pytorch":
        from vit_pytorch import ViT

        return ViT(image_size=side, patch_size=16, num_classes=1000, dim=192, depth=12, heads=3, mlp_dim=768)
    from vitrail import create_model

    return create_model("ViT-Ti/16", image_size=side)


def megabytes(field: str) -> float:
    """Of this process, as the system counts them."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


def peak(contender: str, side: int) -> float:
    """Megabytes that a forward pass of one image takes at its height, beyond the model and the image."""
    model, image = build(contender, side).eval(), torch.randn(1, 3, side, side)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16, enabled="bf16" in contender):
        Path("/proc/self/clear_refs").write_text("5")  # the height so far is forgotten
        before = megabytes("VmRSS")
        model(image)
    return megabytes("VmHWM") - before


def main(*, quick: bool) -> str:
    """The table, in Markdown; every figure is from a process of its own."""
    sides = SIDES[:2] if quick else SIDES
    context = multiprocessing.get_context("spawn")
    rows = []
    for contender in CONTENDERS:
        found = []
        for side in sides:
            if contender == "vit-pytorch" and side > 1024:
                found.append("–")  # a matrix of 16,385 by 16,385 for every head: tens of gigabytes
                continue
            with context.Pool(1) as pool:
                found.append(f"{pool.apply(peak, (contender, side)):.0f} MB")
        rows.append([contender, *found])
    return side_by_side.table(["ViT-Ti/16, one image", *(f"{s} px, {(s // 16) ** 2 + 1:,} tokens" for s in sides)], rows)


if __name__ == "__main__":
    print(main(quick=False))
