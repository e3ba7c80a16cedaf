"""A ViT of any shape, built by every library that has one."""

from dataclasses import dataclass

from torch import nn

from vitrail.models.configs.vit import ViTConfig
from vitrail.models.vision.vit import ViT


@dataclass(frozen=True)
class Shape:
    """A model, its MLP four times as wide as its tokens."""

    image_size: int
    patch_size: int
    dim: int
    depth: int
    heads: int
    classes: int

    @property
    def tokens(self) -> int:
        """Patches and the class token."""
        return (self.image_size // self.patch_size) ** 2 + 1

    @property
    def operations(self) -> int:
        """Operations of the matrix products of a forward pass over one image, two per multiply-add; without the head's."""
        d, n = self.dim, self.tokens
        return 2 * (self.depth * (12 * d * d * n + 2 * n**2 * d) + (n - 1) * 3 * self.patch_size**2 * d)


TINY = Shape(image_size=224, patch_size=16, dim=192, depth=12, heads=3, classes=1000)
BASE = Shape(image_size=224, patch_size=16, dim=768, depth=12, heads=12, classes=1000)


def vitrail(s: Shape) -> ViT:
    fields = {"image_size": s.image_size, "patch_size": s.patch_size, "num_classes": s.classes}
    return ViT(ViTConfig(**fields, dim=s.dim, depth=s.depth, heads=s.heads, mlp_dim=4 * s.dim))


def timm(s: Shape) -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    fields = {"img_size": s.image_size, "patch_size": s.patch_size, "num_classes": s.classes}
    return VisionTransformer(**fields, embed_dim=s.dim, depth=s.depth, num_heads=s.heads)


def torchvision(s: Shape) -> nn.Module:
    from torchvision.models import VisionTransformer

    fields = {"image_size": s.image_size, "patch_size": s.patch_size, "num_classes": s.classes}
    return VisionTransformer(**fields, num_layers=s.depth, num_heads=s.heads, hidden_dim=s.dim, mlp_dim=4 * s.dim)


def transformers(s: Shape) -> nn.Module:
    from transformers import ViTConfig as Config
    from transformers import ViTForImageClassification

    fields = {"image_size": s.image_size, "patch_size": s.patch_size, "num_labels": s.classes}
    widths = {"hidden_size": s.dim, "intermediate_size": 4 * s.dim}
    return ViTForImageClassification(Config(**fields, **widths, num_hidden_layers=s.depth, num_attention_heads=s.heads))


def vit_pytorch(s: Shape) -> nn.Module:
    from vit_pytorch import ViT as Theirs

    fields = {"image_size": s.image_size, "patch_size": s.patch_size, "num_classes": s.classes}
    return Theirs(**fields, dim=s.dim, depth=s.depth, heads=s.heads, mlp_dim=4 * s.dim, dim_head=s.dim // s.heads)
