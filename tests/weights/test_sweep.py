"""A sample of ``make layouts``: models of other libraries are read right or refused, and ours are written so that they are."""

import pytest
from sweep import written
from sweep.judging import FAULTS
from sweep.running import judge

from vitrail.models.configs.vit import ViTConfig

pytestmark = pytest.mark.soak
READ = {
    "from_timm": (
        "vit_tiny_patch16_224",
        "vit_small_patch32_384",
        "vit_small_patch14_reg4_dinov2",
        "vit_xsmall_patch16_clip_224",
        "deit_tiny_distilled_patch16_224",
        "vit_tiny_patch16_224 in_chans=1",
        "vit_tiny_patch16_224 qk_norm=True",
        "vit_tiny_patch16_224 num_classes=0,global_pool=avg",
        "vit_tiny_patch16_224 scale_mlp_norm=True",
        "vit_tiny_r_s16_p8_224",
        "resnet18",
        "resnetv2_50x1_bit",
        "resnet50 in_chans=1",
        "test_vit2",
    ),
    "from_transformers": (
        "ViTForImageClassification",
        "DeiTForImageClassificationWithTeacher",
        "ViTMAEModel",
        "Dinov2WithRegistersModel use_swiglu_ffn=True",
        "SiglipVisionModel",
        "CLIPVisionModelWithProjection projection_dim=16",
        "Dinov2ForImageClassification",
    ),
    "from_vit_pytorch": ("vit ViT", "vit ViT pool=mean", "vit 0.16.13"),
}
"""Models that must be read, to the same answers."""
REFUSED = {
    "from_timm": ("naflexvit_base_patch16_gap", "vitamin_small_224", "resnet50d", "seresnet18", "resnetv2_50"),
    "from_transformers": ("GroupViTVisionModel", "VideoMAEModel", "Owlv2VisionModel"),
    "from_vit_pytorch": ("cvt CvT", "rvt RvT", "vit_for_small_dataset ViT", "simple_vit SimpleViT"),
}
"""Models that have parts which we have not."""
WRITTEN = written.names(20)


def cases(table: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(source, name) for source, names in table.items() for name in names]


def faults(found: list[dict]) -> list[dict]:
    return [finding for finding in found if finding["status"] in FAULTS]


@pytest.mark.parametrize(("source", "name"), cases(READ))
def test_answers_are_theirs(source, name):
    found = judge(source, name)
    assert found[0]["status"] == "right", found[0]
    assert not faults(found)


@pytest.mark.parametrize(("source", "name"), cases(REFUSED))
def test_what_we_cannot_compute_is_refused(source, name):
    assert {finding["status"] for finding in judge(source, name)} == {"refused"}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_is_loaded_by_its_library_or_refused(name):
    found = judge("written", name)
    assert not faults(found)
    assert any(finding["step"] == "to vitrail" and finding["status"] == "right" for finding in found)


def test_every_field_of_the_configuration_is_drawn():
    assert ViTConfig.model_fields.keys() == written.CHOICES.keys()
