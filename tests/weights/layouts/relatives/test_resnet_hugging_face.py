"""ResNet and BiT of transformers are read and written with the same logits, or refused by name."""

import json

import pytest
import transformers
from residual_networks import alike, batches, images, random_weights
from safetensors.torch import load_file, save_file
from sweep.writing import Answering
from torch import nn

import vitrail
from vitrail.errors import ModelFileError
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained

TRANSFORMERS = [
    ("ResNetForImageClassification", {}),
    ("ResNetModel", {}),
    ("ResNetForImageClassification", {"layer_type": "basic", "hidden_sizes": [32, 64, 128], "num_channels": 1}),
    ("ResNetForImageClassification", {"layer_type": "basic", "hidden_sizes": [32, 64, 128], "depths": [2, 2, 2]}),
    ("BitForImageClassification", {}),
    ("BitModel", {"num_channels": 1}),
]
DEEP = {"embedding_size": 32, "hidden_sizes": [128, 256, 512], "depths": [1, 2, 1]}
NAMES = {"id2label": {0: "ant", 1: "bee", 2: "cat"}, "label2id": {"ant": 0, "bee": 1, "cat": 2}}


def of_transformers(kind: str, fields: dict) -> nn.Module:
    made = getattr(transformers, kind)
    return random_weights(made(made.config_class(**{**DEEP, **NAMES, **fields})))


@pytest.mark.parametrize(("kind", "fields"), TRANSFORMERS)
def test_a_folder_of_transformers_is_read_and_written_and_read_by_transformers(kind, fields, tmp_path):
    theirs = of_transformers(kind, fields)
    theirs.save_pretrained(tmp_path / "theirs")
    seen = images(fields.get("num_channels", 3))
    ours = from_pretrained(tmp_path / "theirs")
    assert alike(ours, Answering(theirs), seen)
    assert ours.labels == (["ant", "bee", "cat"] if "Classification" in kind else [])
    ours.save_pretrained(tmp_path / "ours")
    again, report = getattr(transformers, kind).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    assert alike(Answering(again.eval()), Answering(theirs), seen)
    assert batches(again.state_dict()) == batches(theirs.state_dict())
    assert alike(from_pretrained(tmp_path / "ours"), Answering(theirs), seen)
    save_file(load_file(tmp_path / "theirs" / "model.safetensors"), tmp_path / "alone.safetensors")
    assert alike(from_pretrained(tmp_path / "alone.safetensors"), Answering(theirs), seen)


@pytest.mark.parametrize("name", ["ResNet-18", "BiT-R50x3"])
def test_a_size_of_ours_is_a_folder_of_transformers(name, tmp_path):
    """Wide BiT, too, which transformers' own ``width_factor`` makes with a narrow stem."""
    fields = {} if name == "ResNet-18" else {"width": 96, "depths": (1, 1, 1, 1)}
    model = random_weights(vitrail.create_model(name, num_classes=3, image_size=64, **fields))
    trained = TrainedModel(model, ["ant", "bee", "cat"], vitrail.Preparation.standard((64, 64), 3))
    trained.save_pretrained(tmp_path / "ours")
    again = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "ours").eval()
    assert alike(Answering(again), trained, images())


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("ResNetModel", {"downsample_in_bottleneck": True}),
        ("ResNetModel", {"downsample_in_first_stage": True}),
        ("ResNetModel", {"hidden_act": "gelu"}),
        ("BitModel", {"global_padding": "SAME"}),
        ("BitModel", {"num_groups": 16}),
        ("BitModel", {"layer_type": "bottleneck"}),
        ("BitModel", {"output_stride": 8}),
        ("BitModel", {"embedding_dynamic_padding": True}),
        ("BitModel", {"width_factor": 2}),
    ],
)
def test_a_field_of_transformers_that_changes_the_answer_is_refused_by_name(kind, fields, tmp_path):
    of_transformers(kind, fields).save_pretrained(tmp_path / "theirs")
    with pytest.raises(ModelFileError, match=f"{next(iter(fields))} .*is not known here"):
        from_pretrained(tmp_path / "theirs")


@pytest.mark.parametrize(
    ("kind", "processor", "expected"),
    [
        ("ResNetModel", {"size": 96, "crop_pct": 0.875, "resample": 3, "feature_extractor_type": "ConvNextFeatureExtractor"}, 96),
        ("BitModel", {"size": {"shortest_edge": 64}, "crop_size": {"height": 48, "width": 48}}, 48),
    ],
)
def test_the_size_of_images_is_that_of_their_preparation(kind, processor, expected, tmp_path):
    of_transformers(kind, {}).save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "preprocessor_config.json").write_text(json.dumps(processor))
    ours = from_pretrained(tmp_path / "theirs")
    assert ours.config.image_size == ours.preparation.image_size == (expected, expected)
    assert from_pretrained(tmp_path / "theirs", image_size=32).preparation.image_size == (32, 32)
