"""transformers' models with random weights: read to the same numbers, and saved so that transformers loads them."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file
from sweep.writing import Answering
from torch import nn

from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.vit import ViTConfig
from vitrail.models.vision.vit import ViT
from vitrail.weights.convert import convert
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import from_pretrained

SMALL = {
    "image_size": 32, "patch_size": 8, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 96,
}  # fmt: skip
LABELLED = {**SMALL, "id2label": {0: "ant", 1: "bee", 2: "cat"}, "label2id": {"ant": 0, "bee": 1, "cat": 2}}
WITHOUT_SIZE = {name: value for name, value in SMALL.items() if name != "image_size"}
DINO = {"mlp_ratio": 2, "layerscale_value": 0.5}
UNUSUAL_VIT = {"num_channels": 1, "hidden_act": "quick_gelu", "qkv_bias": False, "layer_norm_eps": 1e-3}
BARE_DINOV3 = {"num_register_tokens": 0, "query_bias": False, "value_bias": False, "proj_bias": False, "mlp_bias": False,
               "rope_theta": 50.0}  # fmt: skip
RELATIVE = {"use_relative_position_bias": True}
TABLE = {"use_shared_relative_position_bias": True, "use_mean_pooling": False, "use_mask_token": True}
MODELS = {
    "ViT": ("ViTForImageClassification", LABELLED, "ViT"),
    "ViT without a head": ("ViTModel", SMALL, "ViT"),
    "ViT, grey, of another activation": ("ViTForImageClassification", LABELLED | UNUSUAL_VIT, "ViT"),
    "DeiT": ("DeiTForImageClassificationWithTeacher", LABELLED, "DeiT"),
    "DeiT of one head": ("DeiTForImageClassification", LABELLED, "DeiT"),
    "Dinov2": ("Dinov2Model", SMALL | DINO, "Dinov2"),
    "Dinov2 with a head": ("Dinov2ForImageClassification", LABELLED | DINO, "Dinov2"),
    "Dinov2 with SwiGLU": ("Dinov2ForImageClassification", LABELLED | DINO | {"use_swiglu_ffn": True}, "Dinov2 with SwiGLU"),
    "Dinov2 with registers": ("Dinov2WithRegistersModel", SMALL | DINO | {"num_register_tokens": 3}, "Dinov2WithRegisters"),
    "Dinov2 with registers and a head": (
        "Dinov2WithRegistersForImageClassification",
        LABELLED | DINO | {"use_swiglu_ffn": True},
        "Dinov2WithRegisters with SwiGLU",
    ),
    "SigLIP": ("SiglipVisionModel", SMALL, "SiglipVisionModel"),
    "CLIP": ("CLIPVisionModel", SMALL, "CLIPVisionModel"),
    "CLIP with its projection": ("CLIPVisionModelWithProjection", SMALL | {"projection_dim": 48}, "CLIPVisionModel"),
    "CLIP of MetaCLIP 2": ("MetaClip2VisionModelWithProjection", SMALL | {"projection_dim": 48}, "CLIPVisionModel"),
    "CLIP of AltCLIP": ("AltCLIPVisionModel", SMALL, "CLIPVisionModel"),
    "CLIP in Chinese": ("ChineseCLIPVisionModel", SMALL, "CLIPVisionModel"),
    "MSN": ("ViTMSNForImageClassification", LABELLED, "ViTMSN"),
    "I-JEPA": ("IJepaModel", SMALL, "I-JEPA"),
    "I-JEPA with a head": ("IJepaForImageClassification", LABELLED, "I-JEPA"),
    "BEiT": ("BeitForImageClassification", LABELLED | RELATIVE, "BEiT"),
    "BEiT of one table and a class token": ("BeitModel", SMALL | TABLE, "BEiT"),
    "BEiT without LayerScale": ("BeitForImageClassification", LABELLED | RELATIVE | {"layer_scale_init_value": 0.0}, "BEiT"),
    "BEiT of added positions": ("BeitForImageClassification", LABELLED | {"use_absolute_position_embeddings": True}, "BEiT"),
    "data2vec": ("Data2VecVisionForImageClassification", LABELLED | RELATIVE, "data2vec"),
    "DINOv3": ("DINOv3ViTModel", SMALL | {"num_register_tokens": 3}, "DINOv3ViT"),
    "DINOv3 without registers and biases": ("DINOv3ViTModel", SMALL | BARE_DINOV3, "DINOv3ViT"),
    "DINOv3 with a gated MLP": (
        "DINOv3ViTModel",
        SMALL | {"num_register_tokens": 3, "use_gated_mlp": True, "hidden_act": "silu"},
        "DINOv3ViT with a gated MLP",
    ),
    "SigLIP2": ("Siglip2VisionModel", WITHOUT_SIZE | {"num_patches": 16}, "Siglip2VisionModel"),
    "AIMv2": ("Aimv2VisionModel", SMALL | {"use_head": False}, "Aimv2VisionModel"),
    "AIMv2 of any size": (
        "Aimv2VisionModel",
        SMALL | {"use_head": False, "is_native": True, "qkv_bias": True, "mlp_bias": True},
        "Aimv2VisionModel",
    ),
    "MAE": ("ViTMAEModel", SMALL, "ViTMAE"),
}
"""By name a class of transformers, its configuration, and whose it is called."""
every_model = pytest.mark.parametrize("name", MODELS)
SAVED = [name for name in MODELS if name not in ("DeiT of one head", "MSN", "BEiT of added positions")]


def build(name: str) -> nn.Module:
    kind, fields, _ = MODELS[name]
    made = getattr(transformers, kind)
    return made(made.config_class(**fields))


def about(name: str) -> str:
    return f"the encoder of transformers' {MODELS[name][2]}" if name == "MAE" else f"transformers' {MODELS[name][2]}"


def answers(model: nn.Module) -> Answering:
    return Answering(model, resized=True)


@every_model
def test_a_folder_gives_the_same_numbers(name, randomized, recognised, tmp_path, agree):
    theirs = randomized(build(name))
    theirs.save_pretrained(tmp_path)
    ours = recognised(tmp_path, about(name))
    agree(ours, answers(theirs), channels=ours.config.channels)
    assert ours.config.heads == 4
    if "id2label" in theirs.config.to_dict() and ours.config.num_classes == 3:
        assert ours.labels == ["ant", "bee", "cat"]


@pytest.mark.parametrize("name", [name for name in MODELS if name != "AIMv2"])  # which takes images of one size alone
@pytest.mark.parametrize("size", [(48, 48), (24, 24), (32, 64)], ids=str)
def test_at_another_resolution_too(name, size, randomized, recognised, tmp_path, agree):
    theirs = randomized(build(name))
    theirs.save_pretrained(tmp_path)
    ours = recognised(tmp_path, about(name), image_size=size)
    agree(ours, answers(theirs), size=size, channels=ours.config.channels)


@every_model
@pytest.mark.parametrize("kept_as", ["file", "in memory"])
def test_a_file_alone_tells_the_same(name, kept_as, randomized, kept, tmp_path, agree):
    theirs = randomized(build(name))
    if kept_as == "file":
        theirs.save_pretrained(tmp_path)
        state = load_file(tmp_path / "model.safetensors")
        (tmp_path / "config.json").unlink()
    else:
        state = theirs.state_dict()
    told = {"heads": 4}
    if "another activation" in name:
        told |= {"mlp": "quick-gelu", "norm_eps": 1e-3}
    if "without registers and biases" in name:
        told |= {"rotary_base": 50.0}
    if name == "MSN":  # whose keys are the ViT's
        told |= {"norm_eps": 1e-6}
    ours = from_pretrained(kept(state), image_size=(32, 32), **told)
    agree(ours, answers(theirs), channels=ours.config.channels)


@pytest.mark.parametrize("name", SAVED)
def test_what_is_saved_is_loaded_by_transformers(name, randomized, tmp_path, agree):
    theirs = randomized(build(name))
    theirs.save_pretrained(tmp_path / "theirs")
    from_pretrained(tmp_path / "theirs").save_pretrained(tmp_path / "ours")
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    kind = getattr(transformers, config["architectures"][0])
    again, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["unexpected_keys"] and not report["mismatched_keys"]
    assert all("pooler" in key or "mask_token" in key for key in report["missing_keys"])
    agree(answers(again.eval()), answers(theirs), channels=again.config.num_channels)


def test_labels_and_the_preparation_of_a_saved_model_are_transformers_too(randomized, tmp_path):
    theirs = randomized(build("ViT"))
    theirs.save_pretrained(tmp_path / "theirs")
    ours = from_pretrained(tmp_path / "theirs")
    ours.save_pretrained(tmp_path / "ours")
    assert transformers.ViTForImageClassification.from_pretrained(tmp_path / "ours").config.id2label == {
        0: "ant",
        1: "bee",
        2: "cat",
    }
    again = from_pretrained(tmp_path / "ours")
    assert again.config == ours.config and again.labels == ours.labels and again.preparation == ours.preparation


WORDS = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 64}
UNUSUAL = {"hidden_act": "gelu", "layer_norm_eps": 1e-3}


def test_a_whole_clip_gives_its_model_of_images(randomized, recognised, tmp_path, agree):
    text = {**WORDS, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    config = transformers.CLIPConfig(text_config=text, vision_config=SMALL, projection_dim=24)
    theirs = randomized(transformers.CLIPModel(config))
    theirs.save_pretrained(tmp_path)
    ours = recognised(tmp_path, about("CLIP"))
    agree(ours, lambda images: theirs.visual_projection(theirs.vision_model(images).pooler_output))
    assert ours.labels == []


@pytest.mark.parametrize(
    ("told", "older"),
    [
        (None, {**SMALL, **UNUSUAL}),
        ({**SMALL, "num_attention_heads": 2}, {**SMALL, **UNUSUAL}),
        ({**SMALL, **UNUSUAL}, SMALL),  # whose defaults stand before what the other says, too
        ({**SMALL, **UNUSUAL}, None),
    ],
    ids=["older alone", "older stands before", "defaults of older", "no older"],
)
def test_an_older_description_of_a_clips_tower_counts_as_in_transformers(told, older, randomized, recognised, tmp_path, agree):
    config = transformers.CLIPConfig(text_config=WORDS, vision_config=SMALL, projection_dim=24)
    randomized(transformers.CLIPModel(config)).save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    values |= {"vision_config": told, "vision_config_dict": older}
    (tmp_path / "config.json").write_text(json.dumps({name: value for name, value in values.items() if value is not None}))
    theirs = transformers.CLIPModel.from_pretrained(tmp_path).eval()
    ours = recognised(tmp_path, about("CLIP"))
    agree(ours, lambda images: theirs.visual_projection(theirs.vision_model(images).pooler_output))


def test_a_whole_siglip_gives_its_model_of_images(randomized, recognised, tmp_path, agree):
    text = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 64}
    theirs = randomized(transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=SMALL)))
    theirs.save_pretrained(tmp_path)
    agree(recognised(tmp_path, about("SigLIP")), lambda images: theirs.vision_model(images).pooler_output)


def test_another_model_of_transformers_is_refused_by_name(tmp_path):
    transformers.BertModel(transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2)).save_pretrained(
        tmp_path
    )
    with pytest.raises(Exception, match="bert") as error:
        from_pretrained(tmp_path)
    assert error.value.exit_code == 4


def test_an_image_that_its_patches_do_not_divide_is_cut_at_the_edge(randomized, recognised, tmp_path, agree):
    theirs = randomized(
        transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**{**SMALL, "image_size": 22, "patch_size": 4}))
    )
    theirs.save_pretrained(tmp_path)
    ours = recognised(tmp_path, about("SigLIP"))
    assert ours.config.image_size == (22, 22) and ours.config.grid == (5, 5)
    agree(ours, lambda images: theirs(images).pooler_output, size=(22, 22))


def test_what_a_config_leaves_out_is_the_default_of_its_class(randomized, tmp_path, agree):
    theirs = randomized(
        transformers.ViTForImageClassification(
            transformers.ViTConfig(**{**LABELLED, "hidden_size": 96, "num_attention_heads": 12})
        )
    )
    theirs.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    for name in ("num_attention_heads", "hidden_act", "layer_norm_eps", "image_size", "qkv_bias"):
        del values[name]
    (tmp_path / "config.json").write_text(json.dumps(values))
    ours = from_pretrained(tmp_path)
    assert ours.config.heads == 12
    agree(ours, answers(theirs))


@pytest.mark.parametrize(
    "name, field",
    [
        ("ViT", {"hidden_act": "relu"}),
        ("ViT", {"rope_theta": 10.0}),
        ("SigLIP", {"vision_use_head": False}),
        ("SigLIP", {"vision_config_dict": {"num_attention_heads": 2}}),
        ("DINOv3", {"key_bias": True}),
        ("DINOv3", {"hidden_act": "silu"}),
        ("DINOv3 with a gated MLP", {"hidden_act": "gelu"}),
        ("AIMv2", {"hidden_act": "gelu"}),
    ],
    ids=str,
)
def test_what_changes_the_answer_and_is_not_understood_is_refused_by_name(name, field, tmp_path):
    build(name).save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text()) | field
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ModelFileError, match=next(iter(field)) if field.get("hidden_act") is None else "activation"):
        from_pretrained(tmp_path)


@pytest.mark.parametrize("sizes", [{"image_size": (32, 48)}, {"image_size": (48, 32), "patch_size": 16}], ids=str)
@pytest.mark.parametrize("kind", [transformers.BeitForImageClassification, transformers.Data2VecVisionForImageClassification])
def test_images_that_are_not_square_are_refused_of_a_beit(kind, sizes, tmp_path):
    kind(kind.config_class(**{**LABELLED, **sizes}, use_relative_position_bias=True)).save_pretrained(tmp_path)
    with pytest.raises(ModelFileError, match="not square"):
        from_pretrained(tmp_path)


WITHOUT_A_CLASS = {
    "LayerScale and a class token": {"layer_scale": 0.1},
    "class token and mean": {"pool": "class+mean"},
    "the mean of the patches": {"pool": "mean"},
}


@pytest.mark.parametrize("name", WITHOUT_A_CLASS)
def test_a_head_that_no_class_of_transformers_has_is_kept_in_our_own_folder(name, tmp_path):
    config = ViTConfig(
        image_size=16,
        patch_size=8,
        dim=16,
        depth=1,
        heads=2,
        mlp_dim=64,
        num_classes=3,
        class_token=True,
        **WITHOUT_A_CLASS[name],
    )
    preparation = Preparation.standard((16, 16), 3)
    ours = TrainedModel(ViT(config).eval(), ["a", "b", "c"], preparation)
    ours.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "vitrail"
    images = torch.randn(1, 3, 16, 16)
    torch.testing.assert_close(from_pretrained(tmp_path)(images), ours(images))


@pytest.mark.parametrize(
    ("layout", "fields", "lacking"),
    [
        ("beit", {"position": "relative-per-block", "layer_scale": 0.1, "qkv_bias": False}, "projections without a bias"),
        ("beit", {"position": "relative-per-block", "layer_scale": 0.1, "image_size": (32, 48)}, "not square"),
        ("data2vec-vision", {"position": "relative", "layer_scale": 0.1, "image_size": (48, 32)}, "not square"),
        ("dinov2-registers", {"image_size": (32, 48), "registers": 2, "layer_scale": 0.1, "pool": "class+mean"}, "not square"),
    ],
)
def test_what_a_class_of_transformers_does_not_have_is_not_written(layout, fields, lacking, tmp_path):
    sizes = {"image_size": 32, "patch_size": 8, "dim": 64, "depth": 1, "heads": 1, "mlp_dim": 256, "num_classes": 3}
    model = ViT(ViTConfig(**{**sizes, **fields}))
    trained = TrainedModel(model, ["a", "b", "c"], Preparation.standard(model.config.image_size, 3))
    with pytest.raises(ConfigError, match=lacking):
        convert(trained, tmp_path / "out", layout=layout)
