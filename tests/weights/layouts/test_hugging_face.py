"""transformers' models with random weights: read to the same numbers, and saved so that transformers loads them."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import nn
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    CLIPVisionModelWithProjection,
    DeiTConfig,
    DeiTForImageClassification,
    DeiTForImageClassificationWithTeacher,
    Dinov2Config,
    Dinov2ForImageClassification,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersForImageClassification,
    Dinov2WithRegistersModel,
    SiglipVisionConfig,
    SiglipVisionModel,
    ViTConfig,
    ViTForImageClassification,
    ViTMAEConfig,
    ViTMAEForPreTraining,
    ViTMAEModel,
    ViTModel,
)

from vitrail.weights.reference import from_pretrained

SMALL = {
    "image_size": 32, "patch_size": 8, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 96,
}  # fmt: skip
LABELLED = {**SMALL, "id2label": {0: "ant", 1: "bee", 2: "cat"}, "label2id": {"ant": 0, "bee": 1, "cat": 2}}
DINO = {"mlp_ratio": 2, "layerscale_value": 0.5}
MODELS = {
    "ViT": lambda: ViTForImageClassification(ViTConfig(**LABELLED)),
    "ViT without a head": lambda: ViTModel(ViTConfig(**SMALL)),
    "ViT, grey, of another activation": lambda: ViTForImageClassification(
        ViTConfig(**LABELLED, num_channels=1, hidden_act="quick_gelu", qkv_bias=False, layer_norm_eps=1e-3)
    ),
    "DeiT": lambda: DeiTForImageClassificationWithTeacher(DeiTConfig(**LABELLED)),
    "DeiT of one head": lambda: DeiTForImageClassification(DeiTConfig(**LABELLED)),
    "Dinov2": lambda: Dinov2Model(Dinov2Config(**SMALL, **DINO)),
    "Dinov2 with a head": lambda: Dinov2ForImageClassification(Dinov2Config(**LABELLED, **DINO)),
    "Dinov2 with SwiGLU": lambda: Dinov2ForImageClassification(Dinov2Config(**LABELLED, **DINO, use_swiglu_ffn=True)),
    "Dinov2 with registers": lambda: Dinov2WithRegistersModel(Dinov2WithRegistersConfig(**SMALL, **DINO, num_register_tokens=3)),
    "Dinov2 with registers and a head": lambda: Dinov2WithRegistersForImageClassification(
        Dinov2WithRegistersConfig(**LABELLED, **DINO, use_swiglu_ffn=True)
    ),
    "SigLIP": lambda: SiglipVisionModel(SiglipVisionConfig(**SMALL)),
    "CLIP": lambda: CLIPVisionModel(CLIPVisionConfig(**SMALL)),
    "CLIP with its projection": lambda: CLIPVisionModelWithProjection(CLIPVisionConfig(**SMALL, projection_dim=48)),
    "MAE": lambda: ViTMAEForPreTraining(ViTMAEConfig(**SMALL, decoder_num_hidden_layers=1)),
}
ABOUT = {
    "ViT": "transformers' ViT",
    "DeiT": "transformers' DeiT",
    "Dinov2": "transformers' Dinov2",
    "SigLIP": "transformers' SiglipVisionModel",
    "CLIP": "transformers' CLIPVisionModel",
    "MAE": "the encoder of transformers' ViTMAE",
}
every_model = pytest.mark.parametrize("name", MODELS)
SAVED = [name for name in MODELS if name not in ("DeiT of one head",)]


def about(name: str) -> str:
    told = ABOUT[name.split()[0].strip(",")]
    if "registers" in name:
        told += "WithRegisters"
    return told + (" with SwiGLU" if "SwiGLU" in name or name == "Dinov2 with registers and a head" else "")


def answers(model: nn.Module):
    """What a model of transformers says of images: logits, an embedding, or the vector that stands for the image."""
    if isinstance(model, ViTMAEForPreTraining | ViTMAEModel):
        encoder = model.vit if isinstance(model, ViTMAEForPreTraining) else model
        encoder.config.mask_ratio = 0.0

        def encode(images):
            patches = images.shape[-2] * images.shape[-1] // 64
            order = torch.arange(patches, dtype=torch.float32).expand(len(images), -1)  # masks nothing and changes no order
            return encoder(images, noise=order, interpolate_pos_encoding=True).last_hidden_state[:, 0]

        return encode

    def answer(images):
        told = model(images, interpolate_pos_encoding=True) if not isinstance(model, _RESIZES) else model(images)
        if "logits" in told:
            return told.logits
        if "image_embeds" in told:
            return told.image_embeds
        return told.last_hidden_state[:, 0] if isinstance(model, ViTModel) else told.pooler_output

    return answer


_RESIZES = (Dinov2Model, Dinov2ForImageClassification, Dinov2WithRegistersModel, Dinov2WithRegistersForImageClassification)
"""Resize positions without being asked."""


@every_model
def test_a_folder_gives_the_same_numbers(name, randomized, recognised, tmp_path, agree):
    theirs = randomized(MODELS[name]())
    theirs.save_pretrained(tmp_path)
    ours = recognised(tmp_path, about(name))
    agree(ours, answers(theirs), channels=ours.config.channels)
    assert ours.config.heads == 4
    if "id2label" in theirs.config.to_dict() and ours.config.num_classes == 3:
        assert ours.labels == ["ant", "bee", "cat"]


@every_model
@pytest.mark.parametrize("size", [(48, 48), (24, 24), (32, 64)], ids=str)
def test_at_another_resolution_too(name, size, randomized, recognised, tmp_path, agree):
    theirs = randomized(MODELS[name]())
    theirs.save_pretrained(tmp_path)
    ours = recognised(tmp_path, about(name), image_size=size)
    agree(ours, answers(theirs), size=size, channels=ours.config.channels)


@every_model
@pytest.mark.parametrize("kept_as", ["file", "in memory"])
def test_a_file_alone_tells_the_same(name, kept_as, randomized, kept, tmp_path, agree):
    theirs = randomized(MODELS[name]())
    if kept_as == "file":
        theirs.save_pretrained(tmp_path)
        state = load_file(tmp_path / "model.safetensors")
        (tmp_path / "config.json").unlink()
    else:
        state = theirs.state_dict()
    told = {"heads": 4}
    if "another activation" in name:
        told |= {"mlp": "quick-gelu", "norm_eps": 1e-3}
    ours = from_pretrained(kept(state), **told)
    agree(ours, answers(theirs), channels=ours.config.channels)


@pytest.mark.parametrize("name", SAVED)
def test_what_is_saved_is_loaded_by_transformers(name, randomized, tmp_path, agree):
    theirs = randomized(MODELS[name]())
    theirs.save_pretrained(tmp_path / "theirs")
    from_pretrained(tmp_path / "theirs").save_pretrained(tmp_path / "ours")
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    kind = getattr(transformers, config["architectures"][0])
    again, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["unexpected_keys"] and not report["mismatched_keys"]
    assert all("pooler" in key or "mask_token" in key for key in report["missing_keys"])
    agree(answers(again.eval()), answers(theirs), channels=again.config.num_channels)


def test_labels_and_the_preparation_of_a_saved_model_are_transformers_too(randomized, tmp_path):
    theirs = randomized(MODELS["ViT"]())
    theirs.save_pretrained(tmp_path / "theirs")
    ours = from_pretrained(tmp_path / "theirs")
    ours.save_pretrained(tmp_path / "ours")
    assert ViTForImageClassification.from_pretrained(tmp_path / "ours").config.id2label == {0: "ant", 1: "bee", 2: "cat"}
    again = from_pretrained(tmp_path / "ours")
    assert again.config == ours.config and again.labels == ours.labels and again.preparation == ours.preparation


def test_a_whole_clip_gives_its_model_of_images(randomized, recognised, tmp_path, agree):
    text = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 64,
            "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}  # fmt: skip
    config = transformers.CLIPConfig(text_config=text, vision_config=SMALL, projection_dim=24)
    theirs = randomized(transformers.CLIPModel(config))
    theirs.save_pretrained(tmp_path)
    ours = recognised(tmp_path, ABOUT["CLIP"])
    agree(ours, lambda images: theirs.visual_projection(theirs.vision_model(images).pooler_output))
    assert ours.labels == []


def test_a_whole_siglip_gives_its_model_of_images(randomized, recognised, tmp_path, agree):
    text = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 64}
    theirs = randomized(transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=SMALL)))
    theirs.save_pretrained(tmp_path)
    agree(recognised(tmp_path, ABOUT["SigLIP"]), lambda images: theirs.vision_model(images).pooler_output)


def test_another_model_of_transformers_is_refused_by_name(tmp_path):
    transformers.BertModel(transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2)).save_pretrained(
        tmp_path
    )
    with pytest.raises(Exception, match="bert") as error:
        from_pretrained(tmp_path)
    assert error.value.exit_code == 4
