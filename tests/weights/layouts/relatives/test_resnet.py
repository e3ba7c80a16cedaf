"""ResNet and BiT: files of torchvision and Google, sizes of ours for transformers, and preparations beside weights."""

import json

import pytest
import timm
import torchvision
import transformers
from residual_networks import NARROW, alike, images, random_weights, small
from safetensors.torch import load_file, save_file
from sweep.writing import Answering
from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck

import vitrail
from vitrail.errors import ModelFileError
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained


@pytest.mark.parametrize("fields", [{}, {"num_classes": 0, "channels": 1}], ids=str)
def test_a_file_of_googles_is_read_by_timm_and_by_us(fields, tmp_path):
    ours = small(block="pre-activation", depths=(3, 4, 6, 3), **fields)
    vitrail.convert(ours, tmp_path / "bit.npz", layout="google")
    theirs = timm.create_model(
        "resnetv2_50x1_bit", num_classes=ours.config.num_classes, in_chans=ours.config.channels, **NARROW
    ).eval()
    theirs.load_pretrained(str(tmp_path / "bit.npz"))
    seen = images(ours.config.channels)
    assert alike(ours, theirs, seen)
    again = from_pretrained(tmp_path / "bit.npz")
    assert alike(again, theirs, seen) and again.config == ours.config  # the file tells of its size beside it


DEEP = {"embedding_size": 32, "hidden_sizes": [128, 256, 512], "depths": [1, 2, 1]}
NAMES = {"id2label": {0: "ant", 1: "bee", 2: "cat"}, "label2id": {"ant": 0, "bee": 1, "cat": 2}}


def of_transformers(kind: str, fields: dict) -> nn.Module:
    made = getattr(transformers, kind)
    return random_weights(made(made.config_class(**{**DEEP, **NAMES, **fields})))


@pytest.mark.parametrize("name", ["ResNet-18", "BiT-R50x3"])
def test_a_size_of_ours_is_a_folder_of_transformers(name, tmp_path):
    """Wide BiT, too, which transformers' own ``width_factor`` makes with a narrow stem."""
    fields = {"depths": (1, 1, 1, 1), **({} if name == "ResNet-18" else {"width": 96})}
    model = random_weights(vitrail.create_model(name, num_classes=3, image_size=64, **fields))
    trained = TrainedModel(model, ["ant", "bee", "cat"], vitrail.Preparation.standard((64, 64), 3))
    trained.save_pretrained(tmp_path / "ours")
    again = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "ours").eval()
    assert alike(Answering(again), trained, images())


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


@pytest.mark.parametrize(("block", "layers"), [(BasicBlock, (1, 2, 1, 1)), (Bottleneck, (1, 1, 1, 1))])
def test_a_file_of_torchvisions_is_read_and_written(block, layers, tmp_path, capsys):
    theirs = random_weights(torchvision.models.ResNet(block, layers, num_classes=7))
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    ours = from_pretrained(tmp_path / "theirs.safetensors")
    assert "guessed, as the file does not say: ReLU, strides without blurring" in capsys.readouterr().err
    assert alike(ours, theirs, images())
    vitrail.convert(ours, tmp_path / "ours.safetensors", layout="torchvision")
    again = torchvision.models.ResNet(block, layers, num_classes=7).eval()
    again.load_state_dict(load_file(tmp_path / "ours.safetensors"))
    assert alike(again, theirs, images())


def test_a_file_from_before_batches_were_counted_is_read(tmp_path):
    theirs = random_weights(torchvision.models.resnet18(num_classes=7))
    older = {name: tensor for name, tensor in theirs.state_dict().items() if not name.endswith("num_batches_tracked")}
    save_file(older, tmp_path / "theirs.safetensors")
    assert alike(from_pretrained(tmp_path / "theirs.safetensors"), theirs, images())
    save_file({name: older[name] for name in older if name != "bn1.running_var"}, tmp_path / "less.safetensors")
    with pytest.raises(ModelFileError, match=r"missing: bn1\.running_var"):
        from_pretrained(tmp_path / "less.safetensors")
