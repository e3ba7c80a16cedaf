"""CLIP's two towers against transformers, and labels in words."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from small_clip import WORDS, save_clip, small_clip
from transformers import CLIPModel

import vitrail
from vitrail.errors import ConfigError, ModelFileError
from vitrail.tasks.classification.zero_shot import zero_shot
from vitrail.weights.formats.checkpoint import Checkpoint
from vitrail.weights.text_tower import ClipTokenizer as Ours
from vitrail.weights.text_tower import read_text_tower

LENGTH = 8


@pytest.fixture(scope="module")
def theirs() -> CLIPModel:
    return small_clip()


@pytest.fixture
def clip(theirs, tmp_path) -> Path:
    """A folder with both models and a tokenizer of words."""
    return save_clip(theirs, tmp_path / "clip")


def change(folder: Path, **text):
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] |= text
    (folder / "config.json").write_text(json.dumps(config))


TEXTS = [[8, 0, 3, 6, 9], [8, 5, 9], [8, 0, 1, 2, 0, 4, 6, 9]]


def tower_of(path):
    with Checkpoint.opened(path) as checkpoint:
        return read_text_tower(checkpoint)


def vectors(tower, texts=TEXTS):
    tokens = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.long)
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text)] = torch.tensor(text)
    return tower(tokens, torch.tensor([len(text) - 1 for text in texts]))


def test_the_model_of_texts_is_transformers(theirs, clip):
    tower, scale = tower_of(clip)
    for text, found in zip(TEXTS, vectors(tower), strict=True):
        expected = theirs.get_text_features(input_ids=torch.tensor([text]))
        expected = expected if isinstance(expected, torch.Tensor) else expected.pooler_output
        torch.testing.assert_close(found, expected[0], atol=1e-5, rtol=1e-5)
    assert scale == pytest.approx(theirs.logit_scale.exp().item())


def in_the_layout_of_openai(tensors: dict) -> dict:
    """The same model of texts under the names of the original CLIP."""
    found = {"text_projection": tensors["text_projection.weight"].mT.contiguous(), "logit_scale": tensors["logit_scale"]}
    found["token_embedding.weight"] = tensors["text_model.embeddings.token_embedding.weight"]
    found["positional_embedding"] = tensors["text_model.embeddings.position_embedding.weight"]
    same = {"attn.out_proj": "self_attn.out_proj", "ln_1": "layer_norm1", "ln_2": "layer_norm2"}
    same |= {"mlp.c_fc": "mlp.fc1", "mlp.c_proj": "mlp.fc2"}
    for end in ("weight", "bias"):
        found[f"ln_final.{end}"] = tensors[f"text_model.final_layer_norm.{end}"]
        for i in range(2):
            block, layer = f"transformer.resblocks.{i}", f"text_model.encoder.layers.{i}"
            found[f"{block}.attn.in_proj_{end}"] = torch.cat([tensors[f"{layer}.self_attn.{p}_proj.{end}"] for p in "qkv"])
            for a, b in same.items():
                found[f"{block}.{a}.{end}"] = tensors[f"{layer}.{b}.{end}"]
    return found


def test_the_layout_of_openai_and_openclip_is_the_same_model(clip, tmp_path):
    save_file(in_the_layout_of_openai(load_file(clip / "model.safetensors")), tmp_path / "open_clip_model.safetensors")
    told = {"text_cfg": {"width": 32, "heads": 4, "layers": 2, "vocab_size": 10, "context_length": 8}, "quick_gelu": False}
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": told}))
    one, other = (tower_of(path)[0] for path in (clip, tmp_path / "open_clip_model.safetensors"))
    assert one.config == other.config
    torch.testing.assert_close(vectors(one), vectors(other))


@pytest.mark.parametrize(
    ("change_text", "said"),
    [({"hidden_act": "relu"}, "relu"), ({"model_type": "bert"}, "bert"), ({"num_attention_heads": 5}, "5"),
     ({"num_attention_heads": "4"}, "heads"), ({"hidden_act": ["gelu"]}, "gelu"), ({"layer_norm_eps": "8"}, "norm_eps")],
)  # fmt: skip
def test_a_model_of_texts_that_is_not_understood_is_refused_by_name(change_text, said, clip):
    change(clip, **change_text)
    with pytest.raises(ModelFileError, match=said):
        tower_of(clip)


DAMAGES = {
    "logit_scale": [torch.tensor(1000.0), torch.zeros(3), torch.tensor(torch.nan)],
    "text_model.embeddings.token_embedding.weight": [torch.zeros(10), torch.zeros(10, 31)],
    "text_model.encoder.layers.0.self_attn.q_proj.weight": [torch.tensor(0.0), torch.zeros(32, 31)],
}


@pytest.mark.parametrize(("name", "tensor"), [(name, tensor) for name, tensors in DAMAGES.items() for tensor in tensors])
def test_a_damaged_tensor_is_an_error_of_the_file(name, tensor, clip):
    save_file({**load_file(clip / "model.safetensors"), name: tensor}, clip / "model.safetensors")
    with pytest.raises(ModelFileError):
        tower_of(clip)


def test_an_image_is_what_transformers_takes_it_for(theirs, clip, tmp_path):
    pixels = torch.randint(0, 256, (16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    Image.fromarray(pixels.numpy()).save(tmp_path / "image.png")
    predictor = zero_shot(clip, ["red", "very  blue thing"], template="a photo of a {}")
    ((first, second),) = vitrail.predict(predictor, tmp_path / "image.png")
    prepared = predictor.preparation.normalize(pixels.permute(2, 0, 1)[None])
    ids = [[8, 0, 1, 2, 0, 3, 9, 0], [8, 0, 1, 2, 0, 7, 5, 9]]  # the second is one word too long, and is cut
    with torch.no_grad():
        logits = theirs(input_ids=torch.tensor(ids), pixel_values=prepared).logits_per_image
    expected = dict(zip(["red", "very blue thing"], logits.softmax(dim=1)[0].tolist(), strict=True))
    assert dict((first, second)) == pytest.approx(expected, abs=1e-4)


def test_texts_are_cut_to_what_the_model_reads_and_keep_their_end(clip):
    tokens, ends = Ours(clip, LENGTH, len(WORDS))(["very " * 20, "red"])
    assert tokens.shape == (2, LENGTH) and ends.tolist() == [7, 2] and tokens[0, -1] == 9


@pytest.mark.parametrize(
    ("labels", "template", "said"),
    [(["red"], "{}", "two or more"), (["red", " red"], "{}", "two or more"), (["red", ""], "{}", "two or more"),
     (["red", "blue"], "a photo", "no place")],
)  # fmt: skip
def test_labels_must_tell_something_apart(labels, template, said, clip):
    with pytest.raises(ConfigError, match=said):
        zero_shot(clip, labels, template=template)


def test_a_model_without_texts_or_without_a_tokenizer_says_what_is_missing(clip, run):
    with pytest.raises(ModelFileError, match="no text tower"):
        zero_shot(run.folder, ["red", "blue"])
    (clip / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFileError, match=r"tokenizer\.json is damaged"):
        zero_shot(clip, ["red", "blue"])
    words = {"type": "WordLevel", "unk_token": "[absent]", "vocab": {"a": 0}}
    (clip / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": words}))
    with pytest.raises(ModelFileError, match=r"tokenizer\.json is damaged: WordLevel error"):
        zero_shot(clip, ["red", "blue"])
    (clip / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "added_tokens": [], "model": {**words, "vocab": {"a": 2**31}}})
    )
    with pytest.raises(ModelFileError, match="token ids must be from 0 to"):
        zero_shot(clip, ["red", "blue"])
    doubled = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    longer = {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [doubled] * 40}]}
    told = {"version": "1.0", "added_tokens": [], "model": {**words, "unk_token": "a"}, "normalizer": longer}
    (clip / "tokenizer.json").write_text(json.dumps(told))
    with pytest.raises(ModelFileError, match="its normalizer"):
        zero_shot(clip, ["a", "b"])
    (clip / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match=r"tokenizer\.json is missing"):
        zero_shot(clip, ["red", "blue"])


@pytest.mark.parametrize("of_openai", [False, True])
def test_without_a_description_only_openais_own_files_have_quick_gelu(clip, tmp_path, of_openai):
    tensors = in_the_layout_of_openai(load_file(clip / "model.safetensors"))
    if of_openai:
        tensors |= {name: torch.tensor(8) for name in ("input_resolution", "context_length", "vocab_size")}
    save_file(tensors, tmp_path / "model.safetensors")
    assert tower_of(tmp_path / "model.safetensors")[0].config.activation == ("quick-gelu" if of_openai else "gelu")
