"""transformers' UPerNet and SegFormer are read and written with the same logits, or refused by name."""

import json

import pytest
import torch
import transformers
from residual_networks import random_weights
from safetensors.torch import load_file, save_file

import vitrail
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.registry import build, model_config
from vitrail.tasks.segmentation.weights import TrainedSegmenter
from vitrail.weights.reference import from_pretrained

NAMES = ["sky", "tree", "car"]
LABELS = {"num_labels": 3, "id2label": dict(enumerate(NAMES)), "label2id": {name: i for i, name in enumerate(NAMES)}}
STAGES = ["stage1", "stage2", "stage3", "stage4"]
SWIN = {"embed_dim": 8, "depths": [1, 2, 2, 2], "num_heads": [1, 2, 2, 4], "window_size": 3, "drop_path_rate": 0.2}
PVT = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1], "num_attention_heads": [1, 2, 2, 4], "mlp_ratios": [2, 2, 3, 2]}
RESNET = {"embedding_size": 8, "hidden_sizes": [32, 64, 128, 256], "depths": [1, 2, 1, 1], "layer_type": "bottleneck"}
BASIC = {"embedding_size": 8, "hidden_sizes": [8, 16, 32, 64], "depths": [1, 2, 1, 1], "layer_type": "basic"}
SIZE = (128, 160)
UPERNETS = {
    "swin": (transformers.SwinConfig, SWIN, {}),
    "swin of one channel": (transformers.SwinConfig, {**SWIN, "num_channels": 1, "qkv_bias": False}, {"hidden_size": 12}),
    "no auxiliary head": (transformers.SwinConfig, SWIN, {"use_auxiliary_head": False}),
    "pvt_v2": (transformers.PvtV2Config, PVT, {}),
    "pvt_v2 of pooled keys": (transformers.PvtV2Config, {**PVT, "linear_attention": True, "layer_norm_eps": 1e-5}, {}),
    "resnet": (transformers.ResNetConfig, RESNET, {}),
    "resnet of basic blocks": (transformers.ResNetConfig, BASIC, {}),
}


def upernet(kind: str) -> transformers.UperNetForSemanticSegmentation:
    """A small model of theirs with random weights and statistics."""
    config, fields, more = UPERNETS[kind]
    own = {"hidden_size": 16, "auxiliary_channels": 8, **more, **LABELS}
    whole = transformers.UperNetConfig(backbone_config=config(**fields, out_features=STAGES), **own)
    return random_weights(transformers.UperNetForSemanticSegmentation(whole))


def segformer(**fields) -> transformers.SegformerForSemanticSegmentation:
    own = {**PVT, "decoder_hidden_size": 16, **LABELS, **fields}
    return random_weights(transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(**own)))


def save(theirs, folder, channels: int = 3) -> None:
    theirs.save_pretrained(folder)
    colours = {"image_mean": [0.4] * channels, "image_std": [0.3] * channels}
    transformers.SegformerImageProcessor(size={"height": SIZE[0], "width": SIZE[1]}, **colours).save_pretrained(folder)


def images(channels: int = 3, size: tuple[int, int] = SIZE) -> torch.Tensor:
    return torch.randn(2, channels, *size, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def alike(ours: TrainedSegmenter, theirs, seen: torch.Tensor) -> bool:
    """Whether logits and those of the auxiliary head agree, each at its own stride and at the images' size."""
    model, expected = ours.model, theirs(seen).logits
    logits, second = model(seen, separate=True)
    if expected.shape[2:] == seen.shape[2:]:
        logits = model.enlarged(logits, *seen.shape[2:])
    largest = expected.abs().max()
    close = (logits - expected).abs().max() <= 1e-5 * largest and largest > 1e-2
    if (head := getattr(theirs, "auxiliary_head", None)) is None:
        return bool(close) and second is None
    expected = head(theirs.backbone(seen).feature_maps)
    return bool(close) and bool((second - expected).abs().max() <= 1e-5 * expected.abs().max())


@pytest.mark.parametrize("kind", [*UPERNETS, "segformer"])
def test_a_folder_of_transformers_is_read_and_written_and_read_by_transformers(kind, tmp_path):
    theirs = segformer() if kind.startswith("segformer") else upernet(kind)
    channels = 1 if "one channel" in kind else 3
    save(theirs, tmp_path / "theirs", channels)
    ours = from_pretrained(tmp_path / "theirs")
    assert isinstance(ours, TrainedSegmenter) and ours.labels == NAMES and ours.config.image_size == SIZE
    assert ours.preparation.image_size == SIZE and ours.preparation.mean == (0.4,) * channels
    for size in (SIZE, (160, 128), (192, 256)):
        assert alike(ours, theirs, images(channels, size))
    ours.colors = ((1, 2, 3), (4, 5, 6), (7, 8, 9))
    ours.save_pretrained(tmp_path / "ours")
    again, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    assert again.config.id2label == LABELS["id2label"] and alike(ours, again.eval(), images(channels))
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "ours")
    assert type(processor).__name__.startswith("SegformerImageProcessor")
    assert processor.size == {"height": SIZE[0], "width": SIZE[1]} and list(processor.image_mean) == [0.4] * channels
    found = from_pretrained(tmp_path / "ours")
    assert found.config == ours.config and found.colors == ours.colors and found.preparation == ours.preparation
    torch.testing.assert_close(found(images(channels)), ours(images(channels)))


@pytest.mark.parametrize("kind", ["swin", "resnet", "segformer"])
def test_tensors_alone_are_recognised(kind, tmp_path, capsys):
    published = {"hidden_sizes": [32, 64, 160, 256], "num_attention_heads": [1, 2, 5, 8], "sr_ratios": [4, 2, 2, 1]}
    theirs = segformer(**published) if kind == "segformer" else upernet(kind)
    theirs.save_pretrained(tmp_path / "theirs")
    save_file(load_file(tmp_path / "theirs" / "model.safetensors"), tmp_path / "alone.safetensors")
    ours = from_pretrained(tmp_path / "alone.safetensors")
    assert "guessed, as the file does not say: " in capsys.readouterr().err
    assert ours.config.image_size == (512, 512) and ours.labels == ["0", "1", "2"] and alike(ours, theirs, images())


def test_heads_that_nothing_states_are_refused(tmp_path):
    segformer().save_pretrained(tmp_path / "theirs")
    save_file(load_file(tmp_path / "theirs" / "model.safetensors"), tmp_path / "alone.safetensors")
    with pytest.raises(ModelFileError, match=r"(?s)do not show the number of heads.*config\.json beside the weights"):
        from_pretrained(tmp_path / "alone.safetensors")


CHANGES = [
    ("swin", {"backbone_config": {"model_type": "convnext"}}, "unsupported model_type of the backbone: 'convnext'"),
    ("swin", {"backbone_config": {"model_type": "swinv2"}}, "give a UPerNet with one of swin, pvt_v2, resnet"),
    ("swin", {"backbone_config": None}, "backbone_config is None"),
    ("swin", {"backbone_config": {**SWIN, "model_type": "swin", "out_features": STAGES[:2]}}, "maps \\['stage1', 'stage2'\\]"),
    (
        "swin",
        {"backbone_config": {**SWIN, "model_type": "swin", "out_features": STAGES, "hidden_act": "relu"}},
        "hidden_act 'relu'",
    ),
    ("swin", {"backbone_config": {**SWIN, "model_type": "swin", "out_features": STAGES, "strange": 1}}, "unknown entry strange"),
    ("swin", {"pool_scales": [1, 2]}, "pool_scales \\[1, 2\\] is not supported"),
    ("swin", {"auxiliary_num_convs": 2}, "auxiliary_num_convs 2 is not supported"),
    ("swin", {"auxiliary_concat_input": True}, "auxiliary_concat_input True is not supported"),
    ("swin", {"hidden_size": 32}, "head_dim is 16, not 32"),
    ("swin", {"use_auxiliary_head": False}, "auxiliary is True, not False"),
    ("swin", {"strange": 1}, "unknown entry strange"),
    (
        "pvt_v2",
        {"backbone_config": {**PVT, "depths": [2, 1, 1, 1], "model_type": "pvt_v2", "out_features": STAGES}},
        "contradict",
    ),
    ("segformer", {"reshape_last_stage": False}, "reshape_last_stage False is not supported"),
    ("segformer", {"hidden_act": "relu"}, "hidden_act 'relu' is not supported"),
    (
        "segformer",
        {"sr_ratios": [8, 8, 2, 1]},
        r"contradict config.json: backbone.reductions is \(8, 4, 2, 1\), not \(8, 8, 2, 1\)",
    ),
    ("segformer", {"decoder_hidden_size": 32}, "head_dim is 16, not 32"),
    ("segformer", {"strange": 1}, "unknown entry strange"),
]


@pytest.mark.parametrize(("kind", "change", "words"), CHANGES, ids=str)
def test_what_a_description_says_otherwise_is_refused(kind, change, words, tmp_path):
    save(segformer() if kind == "segformer" else upernet(kind), tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ModelFileError, match=words):
        from_pretrained(tmp_path)


def test_patches_of_even_sides_are_refused(tmp_path):
    save(segformer(patch_sizes=[7, 3, 2, 3]), tmp_path)
    with pytest.raises(ModelFileError, match="overlapping patches of 7-3-2-3"):
        from_pretrained(tmp_path)


@pytest.mark.parametrize("kind", ["swin", "segformer"])
def test_a_tensor_more_or_less_is_refused_by_its_name(kind, tmp_path):
    save(segformer() if kind == "segformer" else upernet(kind), tmp_path)
    file = tmp_path / "model.safetensors"
    state = load_file(file)
    save_file({**state, "decode_head.other.weight": torch.zeros(3)}, file)
    with pytest.raises(ModelFileError, match=r"unexpected: decode_head\.other\.weight"):
        from_pretrained(tmp_path)
    for name in (
        "decode_head.classifier.weight",
        next(name for name in state if "norms.stage2" in name or "layer_norm.1" in name),
    ):
        save_file({own: tensor for own, tensor in state.items() if own != name}, file)
        with pytest.raises(ModelFileError, match=name.replace(".", r"\.")):
            from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("size", "words"), [((100, 128), "images of 100×128"), ((96, 128), "grids of 3×4 and windows of 3×3"), (32, "grids of 1×1")]
)
def test_images_to_which_transformers_answers_otherwise_are_refused(size, words, tmp_path):
    save(upernet("swin"), tmp_path)
    with pytest.raises(ModelFileError, match=words):
        from_pretrained(tmp_path, image_size=size)


def trained(name: str, **fields) -> TrainedSegmenter:
    config = model_config(name, num_classes=3, image_size=SIZE, head_dim=8).changed(**fields)
    return TrainedSegmenter(
        random_weights(build(config)), NAMES, [(0, 0, 0)] * 3, Preparation.standard(config.image_size, fit="cover")
    )


TRAINING = {"dropout": 0.1, "attention_dropout": 0.2, "stochastic_depth": 0.3}
OURS = {"architecture": "Swin", "dim": 8, "depths": (1, 1, 1, 1), "heads": (1, 2, 2, 4), "window_size": 3}
MIT = {"architecture": "PVTv2", "dims": (8, 16, 24, 32), "depths": (1, 1, 1, 1), "heads": (1, 1, 1, 1), "norm_eps": 1e-5}


@pytest.mark.parametrize(
    ("layout", "name", "fields", "words"),
    [
        ("upernet", "UPerNet-Swin-T", {"backbone": OURS, "norm": "group"}, "norm is group, would be read as batch"),
        (
            "upernet",
            "UPerNet-Swin-T",
            {"backbone": OURS, "head": "mlp"},
            "the layout cannot hold a Segmenter",
        ),
        ("upernet", "UPerNet-Swin-T", {"backbone": OURS, "image_size": (100, 128)}, "images of 100×128"),
        ("upernet", "UPerNet-Swin-T", {"backbone": OURS, "image_size": 96}, "grids of 3×3 and windows of 3×3"),
        (
            "upernet",
            "UPerNet-Swin-T",
            {"backbone": {**OURS, "norm_eps": 1e-6}},
            "backbone.norm_eps is 1e-06, would be read as 1e-05",
        ),
        ("upernet", "UPerNet-Swin-T", {"backbone": {**OURS, "depths": (1, 1, 1), "heads": (1, 2, 2)}}, "no decoder of 3 stages"),
        (
            "segformer",
            "MLP-PVTv2-b0",
            {"backbone": {**MIT, "norm_eps": 1e-6}},
            "backbone.norm_eps is 1e-06, would be read as 1e-05",
        ),
        ("segformer", "MLP-PVTv2-b0", {"backbone": {**MIT, "pooled": True}}, "has no pooled keys"),
        ("segformer", "MLP-PVTv2-b0", {"backbone": MIT, "maps": "last"}, "maps is last, would be read as stages"),
        ("segformer", "MLP-PVTv2-b0", {"backbone": MIT, "auxiliary": True}, "cannot hold auxiliary.convolution.weight"),
        ("segformer", "MLP-PVTv2-b0", {"backbone": {**MIT, "qkv_bias": False}}, "queries and keys without a bias"),
    ],
    ids=str,
)
def test_what_a_layout_cannot_say_is_refused_and_kept_as_our_own(layout, name, fields, words, tmp_path):
    model = trained(name, **fields)
    with pytest.raises(ConfigError, match=words):
        vitrail.convert(model, tmp_path / "out.safetensors", layout=layout)
    model.save_pretrained(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["architectures"] == ["Segmenter"]
    torch.testing.assert_close(from_pretrained(tmp_path / "model")(images()), model(images()))


@pytest.mark.parametrize(("name", "start"), [("UPerNet-Swin-T", OURS), ("MLP-PVTv2-b0", MIT)])
def test_a_model_of_ours_is_written_for_transformers_with_all_that_training_needs(name, start, tmp_path):
    model = trained(name, backbone={**start, **TRAINING}, head_dropout=0.4)
    vitrail.convert(model, tmp_path / "out.safetensors", layout="segformer" if name.startswith("MLP") else "upernet")
    model.save_pretrained(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model_type"] in ("upernet", "segformer")
    for written in ("model", "out.safetensors"):
        again = from_pretrained(tmp_path / written)
        assert again.config == model.config and again.preparation == model.preparation
        torch.testing.assert_close(again(images()), model(images()))


@pytest.mark.parametrize("kind", ["swin", "segformer"])
def test_other_classes_get_new_heads_and_keep_the_rest(kind, tmp_path):
    save(segformer() if kind == "segformer" else upernet(kind), tmp_path)
    ours, other = from_pretrained(tmp_path), from_pretrained(tmp_path, num_classes=5)
    old, new = ours.model.state_dict(), other.model.state_dict()
    changed = {name.partition(".")[0] for name in new if not torch.equal(old[name], new[name])}
    assert changed == ({"classifier"} if kind == "segformer" else {"classifier", "auxiliary_classifier"})
    assert new["classifier.weight"].shape[0] == 5 and not new["classifier.weight"].any()
