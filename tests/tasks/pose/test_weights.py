"""Model folders that find joints: ours, transformers', and what is refused."""

import json

import pytest
import torch
from transformers import VitPoseConfig, VitPoseForPoseEstimation, VitPoseImageProcessor
from transformers.models.vitpose_backbone import VitPoseBackboneConfig

from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.errors import ModelFileError
from vitrail.models.registry import build, model_config
from vitrail.tasks.pose.people.skeleton import COCO, Skeleton
from vitrail.tasks.pose.weights import TrainedPose
from vitrail.weights.reference import open_model

FIELDS = {"image_size": (32, 16), "patch_size": 8, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 16}
SKELETON = Skeleton.of(("head", "left hand", "right hand"), [(0, 1), (0, 2)])


def ours(**fields) -> TrainedPose:
    torch.manual_seed(0)
    model = build(model_config("ViTPose-Ti-simple", **{**FIELDS, "patch_padding": 0, "num_classes": 3, **fields})).eval()
    return TrainedPose(model, SKELETON.complete, BoxPreparation.of_size((32, 16), box_scale=1.5))


def theirs(**config) -> VitPoseForPoseEstimation:
    torch.manual_seed(0)
    backbone = VitPoseBackboneConfig(
        image_size=[32, 16], patch_size=[8, 8], hidden_size=16, num_hidden_layers=1, num_attention_heads=2, mlp_ratio=2,
        layer_norm_eps=1e-6,
    )  # fmt: skip
    return VitPoseForPoseEstimation(VitPoseConfig(backbone_config=backbone, use_simple_decoder=True, **config)).eval()


@pytest.mark.parametrize("padding", [0, 2])  # transformers has one of them alone
def test_a_folder_gives_back_model_skeleton_and_preparation(tmp_path, padding):
    trained = ours(patch_padding=padding)
    trained.save_pretrained(tmp_path / "saved")
    found, images = open_model(tmp_path / "saved"), torch.randn(2, 3, 32, 16)
    assert isinstance(found, TrainedPose) and found.skeleton == trained.skeleton
    assert found.preparation == trained.preparation and type(found.preparation) is BoxPreparation
    assert torch.equal(found(images), trained(images))


def test_transformers_folders_are_opened_with_their_joints_and_edges(tmp_path):
    names, edges = {0: "Head", 1: "L_Hand", 2: "R_Hand"}, [[0, 1], [0, 2]]
    model = theirs(id2label=names, label2id={name: i for i, name in names.items()}, edges=edges)
    model.save_pretrained(tmp_path)
    VitPoseImageProcessor(size={"height": 32, "width": 16}).save_pretrained(tmp_path)
    found, images = open_model(tmp_path), torch.randn(2, 3, 32, 16)
    assert isinstance(found, TrainedPose)
    assert found.skeleton.joints == ("Head", "L_Hand", "R_Hand") and found.skeleton.pairs == (("L_Hand", "R_Hand"),)
    assert found.skeleton.limb_indices == [(0, 1), (0, 2)]
    assert found.preparation == BoxPreparation.of_size((32, 16))
    expected = model(images).heatmaps
    torch.testing.assert_close(found(images), expected, atol=1e-5 * expected.abs().max().item(), rtol=0)


def test_17_joints_without_names_are_cocos(tmp_path):
    theirs(id2label={i: f"LABEL_{i}" for i in range(17)}).save_pretrained(tmp_path)
    VitPoseImageProcessor(size={"height": 32, "width": 16}).save_pretrained(tmp_path)
    assert open_model(tmp_path).skeleton == COCO.complete


def test_transformers_opens_what_we_write_where_it_has_the_architecture(tmp_path):
    trained = ours(patch_padding=2, shared_position=True)
    trained.save_pretrained(tmp_path)
    model, images = VitPoseForPoseEstimation.from_pretrained(tmp_path).eval(), torch.randn(2, 3, 32, 16)
    assert model.config.id2label == dict(enumerate(SKELETON.joints)) and model.config.edges == [[0, 1], [0, 2]]
    assert VitPoseImageProcessor.from_pretrained(tmp_path).size == {"height": 32, "width": 16}
    expected = trained(images)
    torch.testing.assert_close(model(images).heatmaps, expected, atol=1e-5 * expected.abs().max().item(), rtol=0)


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("config.json", {"skeleton": 3}, "skeleton"),
        ("config.json", {"skeleton": {"joints": ["one"]}}, "1 joints and 3 heatmaps"),
        ("config.json", {"skeleton": {"joints": ["a", "b", "c"], "limbs": [["a", "z"]]}}, "'z'"),
        ("config.json", {"skeleton": None, "edges": [[0, 9]]}, "skeleton"),
        ("config.json", {"skeleton": None, "edges": "no"}, "skeleton"),
        ("preprocessor_config.json", {"image_processor_type": "ViTImageProcessor"}, "ViTImageProcessor"),
        ("preprocessor_config.json", {"do_affine_transform": False}, "do_affine_transform"),
        ("preprocessor_config.json", {"crop_size": 3}, "crop_size"),
        ("preprocessor_config.json", {"size": 3}, "damaged"),
        ("preprocessor_config.json", {"box_scale": 0.1}, "box_scale"),
        ("preprocessor_config.json", {"image_mean": [0.5], "image_std": [0.5]}, "another number of channels"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(tmp_path, file, change, said):
    ours().save_pretrained(tmp_path)
    (tmp_path / "SHA256SUMS").unlink(missing_ok=True)
    values = json.loads((tmp_path / file).read_text())
    (tmp_path / file).write_text(json.dumps({**values, **change}))
    with pytest.raises(ModelFileError, match=said):
        open_model(tmp_path)
