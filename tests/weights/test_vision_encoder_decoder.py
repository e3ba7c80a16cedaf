"""transformers' VisionEncoderDecoder, read and written: the same logits, captions and attention, and nothing passed over."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from peers import declare_operators

OPERATORS = declare_operators()

from transformers import AutoTokenizer, VisionEncoderDecoderModel  # noqa: E402

from captioned import write_captions  # noqa: E402
from small_captioner import small_captioner  # noqa: E402
from vision_encoder_decoders import SENTENCES, gpt2_files, random_peer, tokenizer, write_peer  # noqa: E402
from vitrail import api  # noqa: E402
from vitrail.data.text.tokens import open_tokens  # noqa: E402
from vitrail.errors import ConfigError, ModelFileError  # noqa: E402
from vitrail.tasks.captioning.task import write  # noqa: E402
from vitrail.tasks.captioning.weights import TrainedCaptioner, open_captioner  # noqa: E402
from vitrail.weights.convert import convert  # noqa: E402

LAYOUT = "vision-encoder-decoder"
SHAPES = {
    "as wide": {},
    "wider, with a projection": {"n_embd": 24, "n_head": 3},
    "narrower, with a projection": {"n_embd": 8, "n_head": 1, "n_layer": 1},
    "relu, a narrow mlp": {"activation_function": "relu", "n_inner": 20},
    "gelu, another epsilon": {"activation_function": "gelu", "layer_norm_epsilon": 1e-3},
    "a table of its own for logits": {"tie_word_embeddings": False, "n_layer": 3},
    "larger images, without biases of queries": {"vision": {"image_size": 32, "patch_size": 8, "qkv_bias": False}},
    "another activation in the encoder": {"vision": {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-4}},
}


def images(model, count: int = 4) -> torch.Tensor:
    return torch.randn(count, 3, model.config.encoder.image_size, model.config.encoder.image_size)


def logits(model, pixels, target):
    with torch.no_grad():
        ours = isinstance(model, TrainedCaptioner)
        return model(pixels, target) if ours else model(pixel_values=pixels, decoder_input_ids=target).logits


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of transformers'; tests must leave it as it is."""
    return write_peer(tmp_path_factory.mktemp("peer") / "model", random_peer())


@pytest.mark.parametrize("kind", SHAPES)
def test_random_models_have_the_same_logits_here_and_there_and_back(kind, tmp_path):
    theirs = random_peer(1, **SHAPES[kind])
    trained = open_peer(tmp_path / "theirs", theirs)
    pixels, target = images(theirs), torch.randint(0, theirs.config.decoder.vocab_size, (4, 9))
    expected = logits(theirs, pixels, target)
    torch.testing.assert_close(logits(trained, pixels, target), expected, rtol=1e-5, atol=1e-5)
    if theirs.config.decoder.n_embd < theirs.config.encoder.hidden_size:
        with pytest.raises(ConfigError, match="wider"):
            convert(trained, tmp_path / "again", layout=LAYOUT)
        return
    convert(trained, tmp_path / "again", layout=LAYOUT)
    again = VisionEncoderDecoderModel.from_pretrained(tmp_path / "again").eval()
    torch.testing.assert_close(logits(again, pixels, target), expected, rtol=1e-5, atol=1e-5)
    assert open_captioner(tmp_path / "again").config == trained.config


def open_peer(folder, model) -> TrainedCaptioner:
    write_peer(folder, model)
    side = model.config.encoder.image_size
    values = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps({**values, "size": {"height": side, "width": side}}))
    return open_captioner(folder)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("fields", [{}, {"n_embd": 24}], ids=str)
def test_fifty_images_get_the_captions_that_transformers_writes(beams, fields, tmp_path):
    theirs = random_peer(2, **fields)
    trained, pixels = open_peer(tmp_path / "model", theirs), images(theirs, 50)
    c = trained.config
    expected = theirs.generate(
        pixel_values=pixels, num_beams=beams, do_sample=False, max_length=13, bad_words_ids=[[c.pad], [c.start]]
    ).tolist()
    found = write(trained.model, pixels, beams=beams, max_length=12)
    marks = {c.pad, c.start, c.end}
    assert [one.tokens for one in found] == [[token for token in row if token not in marks] for row in expected]
    assert len({tuple(one.tokens) for one in found}) > 10


def test_words_look_where_they_look_in_transformers(folder):
    theirs, trained = random_peer(), open_captioner(folder)
    pixels, target = images(theirs), torch.randint(3, 280, (4, 7))
    with torch.no_grad():
        expected = theirs(pixel_values=pixels, decoder_input_ids=target, output_attentions=True).cross_attentions
        encoded = trained.model.encode(pixels)
        found = trained.model.decode_with_attention(target, encoded)[1]
    torch.testing.assert_close(found, torch.stack(expected).mean(dim=(0, 2)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"position": "learned", "max_tokens": 30},
        {"position": "sincos-halves", "dim": 24, "heads": 3},
        {"scale_embedding": False, "activation": "gelu-tanh"},
        {"tied": False},
        {"heads": 4, "cross_heads": 4},
    ],
    ids=str,
)
def test_captioners_of_ours_are_written_for_transformers(fields, tmp_path):
    ours = small_captioner(**{"norm": "pre", "max_tokens": 40, **fields})
    convert(ours, tmp_path / "theirs", layout=LAYOUT)
    theirs = VisionEncoderDecoderModel.from_pretrained(tmp_path / "theirs").eval()
    pixels, target = torch.randn(3, 3, 24, 24), torch.randint(0, len(ours.tokenizer), (3, 8))
    expected = logits(ours, pixels, target)
    torch.testing.assert_close(logits(theirs, pixels, target), expected, rtol=1e-5, atol=2e-5)
    again = open_captioner(tmp_path / "theirs")
    torch.testing.assert_close(logits(again, pixels, target), expected, rtol=1e-5, atol=2e-5)
    assert again.preparation == ours.preparation
    written = AutoTokenizer.from_pretrained(tmp_path / "theirs")
    assert written(SENTENCES).input_ids == ours.tokenizer.encode(SENTENCES)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"norm": "post"}, "norm is post"),
        ({"encoder": {"patch_size": 8, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 32, "layer_scale": 0.1}}, "layer_scale"),
        ({"encoder": {"patch_size": 8, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 32, "registers": 2}}, "registers"),
        ({"encoder": {"patch_size": 8, "dim": 32, "depth": 1, "heads": 2, "mlp_dim": 32}}, "wider"),
        ({"cross_heads": 1}, "number of heads"),
        ({"patches_behind": "second-last"}, "patches_behind other than 'last'"),
    ],
    ids=str,
)
def test_what_it_cannot_hold_is_refused_by_name_and_nothing_is_written(fields, told, tmp_path):
    with pytest.raises(ConfigError, match=told):
        convert(small_captioner(**fields), tmp_path / "out", layout=LAYOUT)
    assert not (tmp_path / "out").exists()


def test_a_recurrent_captioner_is_none_of_it(tmp_path):
    ours = small_captioner("Captioner-LSTM-Ti/16")
    with pytest.raises(ConfigError, match="layout"):
        ours.save_pretrained(tmp_path / "out", layout=LAYOUT)
    ours.save_pretrained(tmp_path / "out", layout=None)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "vitrail"


@pytest.mark.parametrize("kind", [torch.uint8, torch.bool, torch.float32], ids=str)
def test_a_file_with_the_table_twice_and_masks_of_older_versions_is_read(kind, folder, tmp_path):
    write_peer(tmp_path / "old", random_peer())
    tensors = load_file(tmp_path / "old" / "model.safetensors")
    tensors["decoder.lm_head.weight"] = tensors["decoder.transformer.wte.weight"].clone()
    for i in range(2):
        tensors[f"decoder.transformer.h.{i}.attn.bias"] = torch.ones(1, 1, 20, 20).tril().to(kind)
        tensors[f"decoder.transformer.h.{i}.crossattention.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, tmp_path / "old" / "model.safetensors")
    found, expected = open_captioner(tmp_path / "old").model.state_dict(), open_captioner(folder).model.state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)
    tensors["decoder.lm_head.weight"][0, 0] += 1
    save_file(tensors, tmp_path / "old" / "model.safetensors")
    with pytest.raises(ModelFileError, match="different tables"):
        open_captioner(tmp_path / "old")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"decoder": {"scale_attn_by_inverse_layer_idx": True}}, "scale_attn_by_inverse_layer_idx"),
        ({"decoder": {"model_type": "bert"}}, "bert"),
        ({"encoder": {"model_type": "swin"}}, "swin"),
        ({"decoder": {"activation_function": "tanhshrink"}}, "tanhshrink"),
        ({"decoder": {"n_head": 3}}, "heads"),
        ({"decoder": {"a_new_trick": 1}}, "a_new_trick"),
        ({"encoder": {"a_new_trick": 1}}, "a_new_trick"),
        ({"a_new_trick": 1}, "a_new_trick"),
        ({"decoder": 3}, "no sections encoder and decoder"),
        ({"decoder": {"n_embd": -4}}, "dim"),
        ({"encoder": {"hidden_size": "x"}}, "damaged"),
        ({"pad_token_id": 400}, "vocabulary"),
        ({"pad_token_id": None, "decoder": {"pad_token_id": None}}, "no pad_token_id"),
    ],
    ids=str,
)
def test_what_is_not_understood_is_refused_by_name(change, told, tmp_path):
    folder = write_peer(tmp_path / "model", random_peer())
    values = json.loads((folder / "config.json").read_text())
    for name, value in change.items():
        values[name] = {**values[name], **value} if isinstance(value, dict) else value
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(ModelFileError, match=told):
        open_captioner(folder)


@pytest.mark.parametrize("older", [False, True])
def test_captions_come_through_the_tokenizer_of_gpt2(older, tmp_path):
    files = gpt2_files(older=older)
    count = len(tokenizer()) - 2
    mark = count - 1
    theirs = random_peer(3, marks=(mark, mark, mark), vocabulary=count)
    folder = write_peer(tmp_path / "model", theirs, files)
    trained, written = open_captioner(folder), AutoTokenizer.from_pretrained(folder)
    assert trained.tokenizer.encode(SENTENCES) == [[*tokens, mark] for tokens in written(SENTENCES).input_ids]
    assert [trained.tokenizer.decode(row) for row in trained.tokenizer.encode(SENTENCES)] == SENTENCES
    pixels = images(theirs, 8)
    expected = theirs.generate(pixel_values=pixels, num_beams=3, max_length=13).tolist()
    found = [trained.tokenizer.decode(one.tokens) for one in write(trained.model, pixels, beams=3, max_length=12)]
    assert found == [text.strip() for text in written.batch_decode(expected, skip_special_tokens=True)]
    trained.save_pretrained(tmp_path / "ours")
    again = open_captioner(tmp_path / "ours")
    assert again.tokenizer.encode(SENTENCES) == trained.tokenizer.encode(SENTENCES) and again.config == trained.config
    assert "".join(again.tokenizer.pieces(again.tokenizer.encode(["a dog"])[0])) == "a dog<|endoftext|>"


@pytest.mark.parametrize("change", ["no mark", "no tokens", "another kind", "a normalizer", "damaged settings"])
def test_a_tokenizer_that_is_not_gpt2s_is_refused(change, tmp_path):
    files = gpt2_files()
    if change == "no mark":
        files["tokenizer_config.json"] = b'{"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"}'
    elif change == "no tokens":
        del files["tokenizer.json"]
    elif change in ("another kind", "a normalizer"):
        other = {"pre_tokenizer": {"type": "Whitespace"}} if change == "another kind" else {"normalizer": {"type": "Lowercase"}}
        files["tokenizer.json"] = json.dumps({**json.loads(files["tokenizer.json"]), **other}).encode()
    else:
        files["tokenizer_config.json"] = b'{"tokenizer_class": "GPT2Tokenizer"'
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelFileError) as error:
        open_tokens(tmp_path)
    assert "token" in error.value.what


def test_training_goes_on_from_such_a_captioner_unless_its_ends_could_not_be_told_from_filling(folder, tmp_path, unreported):
    data, options = (
        write_captions(tmp_path),
        {"model.dropout": 0.0, "epochs": 1, "batch_size": 8, "precision": "fp32", "lr": 1e-6},
    )
    run = api.train(data, tmp_path / "run", task="caption", start=str(folder), **options)
    found, expected = open_captioner(run.folder), open_captioner(folder)
    assert found.tokenizer.encode(SENTENCES) == expected.tokenizer.encode(SENTENCES)
    assert found.config.position == "learned" and found.config.pad == expected.config.pad
    for name, tensor in found.model.state_dict().items():
        torch.testing.assert_close(tensor, expected.model.state_dict()[name], rtol=1e-2, atol=1e-3)
    mark = len(tokenizer()) - 3
    other = write_peer(tmp_path / "gpt2", random_peer(marks=(mark,) * 3, vocabulary=mark + 1), gpt2_files())
    with pytest.raises(ConfigError, match="pad and end are the same token"):
        api.train(data, tmp_path / "other", task="caption", start=str(other), **options)


@pytest.mark.parametrize("key", ["pad_token_id", "eos_token_id"])
def test_what_the_whole_leaves_open_the_decoder_tells(key, folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    values = json.loads((copy / "config.json").read_text())
    expected = open_captioner(folder).config
    values["decoder"][key] = values["decoder"].get(key) if values.get(key) is None else values[key]
    values[key] = None
    (copy / "config.json").write_text(json.dumps(values))
    found = open_captioner(copy).config
    assert (found.pad, found.end) == (expected.pad, expected.end)
