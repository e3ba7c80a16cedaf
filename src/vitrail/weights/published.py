"""Short names of pretrained models on the Hugging Face hub, with their size and licence. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A pretrained model on the Hugging Face hub. Our tests compare its layout with the library that wrote it."""

    name: str
    """Short name, in the spelling of the paper."""
    repository: str
    """Id on the hub (``org/name``)."""
    megabytes: int
    """Size of the weights file, including a text encoder if the file has one."""
    licence: str
    """Licence in the model card."""
    about: str
    """The data that it was trained on, and its output."""

    @property
    def address(self) -> str:
        """Return the web address of the model's list of files."""
        return f"https://huggingface.co/{self.repository}/tree/main"

    def __str__(self) -> str:
        return f"{self.name}: {self.repository}, {self.megabytes:,} MB, licence {self.licence}"


AUGREG = "ImageNet-21k, then ImageNet: 1000 classes"
PUBLISHED = {
    row[0]: Published(*row)
    for row in (
        ("ViT-Ti/16", "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k", 23, "Apache-2.0", AUGREG),
        ("ViT-S/16", "timm/vit_small_patch16_224.augreg_in21k_ft_in1k", 88, "Apache-2.0", AUGREG),
        ("ViT-B/16", "timm/vit_base_patch16_224.augreg2_in21k_ft_in1k", 346, "Apache-2.0", AUGREG),
        ("ViT-B/32", "timm/vit_base_patch32_224.augreg_in21k_ft_in1k", 353, "Apache-2.0", AUGREG),
        ("ViT-L/16", "timm/vit_large_patch16_224.augreg_in21k_ft_in1k", 1220, "Apache-2.0", AUGREG),
        ("DeiT-Ti/16", "timm/deit_tiny_patch16_224.fb_in1k", 23, "Apache-2.0", "ImageNet: 1000 classes"),
        ("DeiT-S/16", "timm/deit_small_patch16_224.fb_in1k", 88, "Apache-2.0", "ImageNet: 1000 classes"),
        ("DeiT-B/16", "timm/deit_base_patch16_224.fb_in1k", 346, "Apache-2.0", "ImageNet: 1000 classes"),
        ("DINO-S/16", "timm/vit_small_patch16_224.dino", 87, "Apache-2.0", "ImageNet without labels: vectors"),
        ("DINO-B/16", "timm/vit_base_patch16_224.dino", 343, "Apache-2.0", "ImageNet without labels: vectors"),
        ("DINOv2-S/14", "facebook/dinov2-small", 88, "Apache-2.0", "142 million images without labels: vectors"),
        ("DINOv2-B/14", "facebook/dinov2-base", 346, "Apache-2.0", "142 million images without labels: vectors"),
        ("MAE-B/16", "timm/vit_base_patch16_224.mae", 343, "CC-BY-NC-4.0", "ImageNet without labels: vectors"),
        ("CLIP-B/32", "timm/vit_base_patch32_clip_224.openai_ft_in1k", 353, "Apache-2.0", "texts, then ImageNet: 1000 classes"),
        ("SigLIP-B/16", "google/siglip-base-patch16-224", 813, "Apache-2.0", "texts: vectors"),
        ("Mixer-B/16", "timm/mixer_b16_224.goog_in21k_ft_in1k", 240, "Apache-2.0", AUGREG),
        ("ResNet-50", "timm/resnet50.a1_in1k", 102, "Apache-2.0", "ImageNet: 1000 classes"),
        ("BiT-R50x1", "timm/resnetv2_50x1_bit.goog_in21k_ft_in1k", 102, "Apache-2.0", AUGREG),
    )
}
"""Published models by name, the smallest first. Sizes and licences are those of the hub in 2025."""
SMALLEST = next(iter(PUBLISHED))


def published(name: str) -> Published | None:
    """Return the model with a short name or a timm name, whose tag may be left out; None if it is not in `PUBLISHED`.

    >>> published("vit_tiny_patch16_224").repository
    'timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k'
    """
    return PUBLISHED.get(name) or _BY_TIMM.get(name)


def _by_timm() -> dict[str, Published]:
    found: dict[str, Published] = {}
    for model in PUBLISHED.values():
        owner, _, tagged = model.repository.partition("/")
        if owner == "timm":
            found[tagged] = model
            found.setdefault(tagged.partition(".")[0], model)
    return found


_BY_TIMM = _by_timm()
