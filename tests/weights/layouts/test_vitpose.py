"""ViTPose of its authors, of MMPose and of transformers is read and written with the same heatmaps, or refused by name."""

import json

import pytest
import torch
import transformers
from residual_networks import authors_file, random_weights
from safetensors.torch import load_file, save_file

import vitrail
from vitrail.data.images.box_preparation import SMOOTHING, BoxPreparation
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.vitpose import PRESETS, ViTPoseConfig
from vitrail.models.vision.vitpose import ViTPose
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.weights import TrainedPose
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained
from vitrail.weights.state_dict import meta_shapes, recognise

SMALL = {"image_size": (64, 48), "dim": 32, "depth": 2, "heads": 4, "mlp_dim": 64, "patch_padding": 2, "shared_position": True,
         "num_classes": 3}  # fmt: skip
EXPERTS = {"experts": 3, "expert_dim": 8}
THEIRS = {"image_size": [64, 48], "patch_size": [16, 16], "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
          "mlp_ratio": 2}  # fmt: skip
JOINTS = ["nose", "left eye", "right eye"]
NAMES = {"num_labels": 3, "id2label": dict(enumerate(JOINTS)), "label2id": {name: i for i, name in enumerate(JOINTS)}}


def trained(**fields) -> TrainedPose:
    config = ViTPoseConfig(**{**SMALL, **fields})
    preparation = BoxPreparation.of_size(config.image_size, config.channels)
    return TrainedPose(random_weights(ViTPose(config)), Skeleton.of(JOINTS).complete, preparation)


def images(size=(64, 48), channels: int = 3) -> torch.Tensor:
    return torch.randn(2, channels, *size, generator=torch.Generator().manual_seed(0))


def of_transformers(simple: bool, **backbone) -> transformers.VitPoseForPoseEstimation:
    """A small model of theirs with random weights and statistics."""
    section = transformers.VitPoseBackboneConfig(**{**THEIRS, "out_indices": [2], **backbone})
    config = transformers.VitPoseConfig(backbone_config=section, use_simple_decoder=simple, **NAMES)
    return random_weights(transformers.VitPoseForPoseEstimation(config))


@torch.no_grad()
def alike(ours: TrainedModel, theirs, seen: torch.Tensor, **options) -> bool:
    expected = theirs(seen, **options).heatmaps
    return (ours(seen) - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize(
    ("simple", "backbone"),
    [
        (False, {}),
        (True, {"layer_norm_eps": 1e-6}),
        (True, {"qkv_bias": False, "num_channels": 1}),
        (False, {"hidden_act": "gelu_pytorch_tanh", "image_size": [64, 64]}),
        (False, {"num_experts": 3, "part_features": 8}),
    ],
    ids=str,
)
def test_a_folder_of_transformers_is_read_and_written_and_read_by_transformers(simple, backbone, tmp_path):
    theirs = of_transformers(simple, **backbone)
    theirs.save_pretrained(tmp_path / "theirs")
    seen = images(backbone.get("image_size", (64, 48)), backbone.get("num_channels", 3))
    experts = range(backbone.get("num_experts", 1))
    for expert in experts:
        ours = from_pretrained(tmp_path / "theirs", **({"expert": expert} if expert else {}))
        assert alike(ours, theirs, seen, **({"dataset_index": torch.tensor([expert])} if len(experts) > 1 else {}))
    assert ours.labels == JOINTS and ours.config.norm_eps == backbone.get("layer_norm_eps", 1e-12)
    assert ours.preparation.smoothing == SMOOTHING  # as in its authors' evaluation, and not transformers' 0.8
    first = from_pretrained(tmp_path / "theirs")
    first.save_pretrained(tmp_path / "ours")
    again, report = transformers.VitPoseForPoseEstimation.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    assert again.config.id2label == NAMES["id2label"]
    options = {"dataset_index": torch.tensor([0])} if len(experts) > 1 else {}
    assert alike(first, again.eval(), seen, **options)
    found = from_pretrained(tmp_path / "ours")
    assert found.config == first.config and torch.equal(found(seen), first(seen))


@pytest.mark.parametrize("expert", range(3))
def test_whatever_expert_answers_transformers_has_it_by_its_number(expert, tmp_path):
    model = trained(**EXPERTS, expert=expert)
    model.save_pretrained(tmp_path / "model")
    theirs, report = transformers.VitPoseForPoseEstimation.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(report.values()), report
    assert alike(model, theirs.eval(), images(), dataset_index=torch.tensor([expert]))
    again = from_pretrained(tmp_path / "model")
    assert again.config == model.config and torch.equal(again(images()), model(images()))
    other = from_pretrained(tmp_path / "model", expert=(expert + 1) % 3)
    assert alike(other, theirs, images(), dataset_index=torch.tensor([(expert + 1) % 3]))
    with pytest.raises(ValueError, match="dataset_index must be provided"):
        theirs(images())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scale_factor": 8}, "scale_factor 8 is not supported"),
        ({"use_simple_decoder": True}, "decoder is classic, not simple"),
        ({"backbone_config": {"model_type": "swin"}}, "unsupported model_type of the backbone: 'swin'"),
        ({"backbone_config": None}, "backbone_config is None"),
        ({"backbone_config": {**THEIRS, "out_indices": [1]}}, "the decoder reads [1], not the last of 2 blocks"),
        ({"backbone_config": {**THEIRS, "strange": 1}}, "unknown entry strange"),
    ],
    ids=str,
)
def test_what_a_description_says_otherwise_is_refused(change, words, tmp_path):
    trained().save_pretrained(tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    (tmp_path / "model" / "SHA256SUMS").unlink()
    with pytest.raises(ModelFileError) as error:
        from_pretrained(tmp_path / "model")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("layout", "fields", "words"),
    [
        ("vitpose", {"class_token": True, "shared_position": False}, "cannot hold class_token"),
        ("vitpose", {"registers": 2}, "cannot hold registers"),
        ("vitpose", {"patch_padding": 0}, "patch_padding is 0, would be read as 2"),
        ("vitpose", {"mlp_dim": 48}, "a multiple of dim 32, not 48"),
        ("vitpose", {"decoder_dim": 24}, "256 channels in its decoder, not 24"),
        ("vitpose", {"final_norm": "none"}, "the layout requires norm.weight"),
        ("vitpose", {"experts": 1, "expert_dim": 8}, "single expert"),
        ("vitpose-original", {}, "can be read but not written"),
        ("mmpose", EXPERTS, "cannot hold blocks.0.mlp.layer.experts.0.weight"),
        ("mmpose", {"norm_kind": "rms"}, "norms other than pre-LayerNorm"),
    ],
    ids=str,
)
def test_what_a_layout_cannot_say_is_refused(layout, fields, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        vitrail.convert(trained(**fields), tmp_path / "out.safetensors", layout=layout)


def test_a_model_that_transformers_has_not_is_kept_as_our_own(tmp_path):
    model = trained(patch_padding=0, class_token=True, shared_position=False)
    model.save_pretrained(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["architectures"] == ["ViTPose"]
    assert torch.equal(from_pretrained(tmp_path / "model")(images()), model(images()))


@pytest.mark.parametrize("fields", [{}, {"decoder": "simple"}, EXPERTS], ids=str)
def test_a_file_of_the_authors_is_written_and_read(fields, tmp_path, capsys):
    model = trained(**fields)
    state = authors_file(model, "vitpose-original", tmp_path / "out.safetensors")
    last = "deconv_layers.4.running_var" if "decoder" not in fields else "final_layer.bias"
    assert {"backbone.pos_embed", "backbone.last_norm.weight", f"keypoint_head.{last}"} <= state.keys()
    assert state["backbone.pos_embed"].shape == (1, 13, 32)
    again = from_pretrained(tmp_path / "out.safetensors", heads=4, image_size=(64, 48))
    assert torch.equal(again(images()), model(images())) and again.config == model.config
    others = {f"associate_keypoint_heads.0.{last}": torch.zeros(5), "backbone.cls_token": torch.zeros(1, 1, 32)}
    torch.save({"state_dict": {**state, **others}, "meta": {"epoch": 210}}, tmp_path / "theirs.pth")
    capsys.readouterr()
    found = from_pretrained(tmp_path / "theirs.pth", trust_pickle=True, heads=4, image_size=(64, 48))
    assert torch.equal(found(images()), model(images()))
    told = "keypoints and expert of the first of 3 data sets"
    assert (told in capsys.readouterr().err) == ("experts" in fields)
    if "experts" in fields:
        with pytest.raises(ModelFileError, match="no keypoint_head for expert 2"):
            from_pretrained(tmp_path / "theirs.pth", trust_pickle=True, heads=4, image_size=(64, 48), expert=2)


def test_a_file_that_the_authors_split_has_the_expert_in_the_mlp_and_all_experts_beside_it(tmp_path):
    model = trained(**EXPERTS)
    state = authors_file(model, "vitpose-original", tmp_path / "out.safetensors")
    for block in range(2):
        for part in ("weight", "bias"):
            shared, own = (f"backbone.blocks.{block}.mlp.{name}.{part}" for name in ("fc2", "experts.0"))
            state[shared] = torch.cat([state[shared], state[own]])
    save_file(state, tmp_path / "coco.safetensors")
    again = from_pretrained(tmp_path / "coco.safetensors", heads=4, image_size=(64, 48))
    assert again.config.experts == 0
    torch.testing.assert_close(again(images()), model(images()))


@pytest.mark.parametrize("fields", [{}, {"decoder_dim": 24}, {"decoder": "simple", "shared_position": False}], ids=str)
def test_a_file_of_mmpose_is_written_and_read(fields, tmp_path):
    model = trained(**fields)
    vitrail.convert(model, tmp_path / "out.safetensors", layout="mmpose")
    state = load_file(tmp_path / "out.safetensors")
    assert {"backbone.layers.1.ffn.layers.0.0.weight", "backbone.ln1.bias", "head.final_layer.weight"} <= state.keys()
    assert state["backbone.pos_embed"].shape == (1, 12, 32)
    again = from_pretrained(tmp_path / "out.safetensors", heads=4, image_size=(64, 48))
    torch.testing.assert_close(again(images()), model(images()))
    assert not again.config.shared_position
    torch.save({"state_dict": state}, tmp_path / "out.pth")  # as MMPose's own
    again = from_pretrained(tmp_path / "out.pth", trust_pickle=True, heads=4, image_size=(64, 48))
    torch.testing.assert_close(again(images()), model(images()))


@pytest.mark.parametrize("name", PRESETS)
def test_a_published_model_is_told_by_its_shapes_alone(name):
    """Each size has the heads that its authors gave it, of which no shape tells."""
    config = ViTPoseConfig(**PRESETS[name])
    layout = LAYOUTS["vitpose-original"]
    empty = {ours: torch.empty(shape, device="meta") for ours, shape in meta_shapes(config).items()}
    shapes = {key: tuple(t.shape) for key, t in layout.write(layout.reading.share_out(empty, config, layout), config).items()}
    assert recognise(shapes, lambda layout: {}, layouts=list(LAYOUTS.values()), where="x").config == config


def test_weights_without_a_decoder_are_no_model_of_poses(tmp_path):
    state = authors_file(trained(), "vitpose-original", tmp_path / "out.safetensors")
    state = {name: t for name, t in state.items() if "final_layer" not in name}
    save_file(state, tmp_path / "cut.safetensors")
    with pytest.raises(ModelFileError, match=r"no keypoint_head\.final_layer\.weight"):
        from_pretrained(tmp_path / "cut.safetensors")
