"""transformers' MarianMT, read and written: the same logits, the same tokens, and nothing passed over."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from peers import declare_operators
from vitrail import api
from vitrail.config.configuration import nested
from vitrail.data.text.dataset import filled
from vitrail.data.text.pieces import SentencePieces
from vitrail.data.text.tokens import open_tokens
from vitrail.errors import ConfigError, DataError, ModelFileError
from vitrail.models.registry import create_model
from vitrail.tasks.translation.predictor import Translator, translate
from vitrail.tasks.translation.weights import TrainedTranslator, open_translator
from vitrail.training.runs.run import begin_run
from vitrail.weights.convert import convert
from words import TINY_TRANSLATOR, WORDS, write_pairs

OPERATORS = declare_operators()

from transformers import AutoTokenizer, MarianMTModel, MarianTokenizer  # noqa: E402

from marian import as_ours  # noqa: E402
from marian_folder import SHAPES, contents, random_marian, write_folder  # noqa: E402

TEXTS = ["one red cat", "dog and cat and dog", "", ">>de<< red  dog", "an unknown: ñ «x»", "Red CAT<pad></s>one", ">>no cat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of a MarianMT; tests must leave it as it is."""
    return write_folder(tmp_path_factory.mktemp("marian") / "model", random_marian(scale_embedding=True))


@pytest.mark.parametrize("fields", SHAPES, ids=str)
def test_random_models_have_the_same_logits_here_and_there_and_back(fields, tmp_path):
    theirs = random_marian(1, **fields)
    trained = open_translator(write_folder(tmp_path / "theirs", theirs))
    pad, words = theirs.config.pad_token_id, theirs.config.vocab_size - 1
    source = torch.randint(1, words, (4, 7))
    source[0, 4:], source[0, 3] = pad, 0
    target = torch.cat([torch.full((4, 1), pad), torch.randint(0, words, (4, 8))], dim=1)
    with torch.no_grad():
        expected = theirs(input_ids=source, attention_mask=source != pad, decoder_input_ids=target).logits
        found = trained(source, target)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        convert(trained, tmp_path / "again", layout="marian")
        again = MarianMTModel.from_pretrained(tmp_path / "again").eval()
        logits = again(input_ids=source, attention_mask=source != pad, decoder_input_ids=target).logits
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    assert trained.languages == ("en", "de") and trained.config.max_tokens == theirs.config.max_position_embeddings


def test_a_folder_gives_the_model_that_writes_the_same_tokens_as_transformers(folder):
    """Which `tests/models/text/test_search.py` compares for 200 sources, greedily and with beams."""
    found, expected = open_translator(folder).model, as_ours(random_marian(scale_embedding=True))
    assert found.config == expected.config.changed(dropout=found.config.dropout)
    assert all(torch.equal(tensor, expected.state_dict()[name]) for name, tensor in found.state_dict().items())


def test_tokens_are_those_of_transformers(folder):
    theirs, ours = MarianTokenizer.from_pretrained(folder), open_tokens(folder)
    plain = [text for text in TEXTS if "<pad>" not in text]  # a text may hold the letters of a mark, and means no mark
    assert ours.encode(plain) == theirs(plain).input_ids
    targets = [f"{WORDS['cat']} {WORDS['and']} rot", "¡x!"]
    assert ours.encode_targets(targets) == theirs(text_target=targets).input_ids
    assert not {ours.pad, ours.end} & set(ours.encode(TEXTS)[5][:-1])
    for tokens in ours.encode_targets([*targets, "eins  rot"]):
        assert ours.decode([ours.start, *tokens, ours.pad]) == theirs.decode(tokens, skip_special_tokens=True)
    assert "".join(ours.pieces(ours.encode(["red dog"])[0])).strip() == "red dog</s>" and len(ours.names) == len(ours)


def test_such_a_folder_is_translated_evaluated_and_trained_on_with_its_tokens(folder, tmp_path, unreported):
    texts = ["one red cat", "", "dog"]
    assert [bool(text) for text in translate(folder, texts, beams=2)][1] is False
    data = write_pairs(tmp_path / "pairs.tsv", most=2)
    metrics, split = api.evaluate(folder, data)
    assert split == "all" and metrics.scores()["sentences"] == 25
    assert {wanted for _, _, wanted in metrics.texts} >= {"rot Katze", "Hund"}, "scored with what stands in the data"
    settings = {name: value for name, value in TINY_TRANSLATOR.items() if not name.startswith("model.")}
    more = api.train(data, tmp_path / "run", start=str(folder), **{**settings, "training.epochs": 1})
    kept = yaml.safe_load((more.folder / "config.yaml").read_text())
    assert kept["task"]["vocabulary"] == len(open_tokens(folder)) != settings["task.vocabulary"]
    assert (more.folder / "source.spm").read_bytes() == contents()["source.spm"]
    for place in (more.folder, more.folder / "best"):  # of which the first is for resuming
        assert open_tokens(place).encode(texts) == open_tokens(folder).encode(texts)
    assert open_translator(more.folder).config.start == open_translator(folder).config.pad
    convert(more.trained, tmp_path / "out")
    assert isinstance(AutoTokenizer.from_pretrained(tmp_path / "out"), MarianTokenizer)


def test_a_text_and_its_translation_are_aligned_in_the_tokens_of_their_languages(folder):
    """Source and target have pieces of their own here, which give different tokens."""
    trained = open_translator(folder)
    read, wrote, weights = trained.alignment_of("red dog", f"{WORDS['dog']} rot")
    assert "".join(read).strip() == "red dog</s>" and "".join(wrote).strip() == f"{WORDS['dog']} rot</s>"
    assert weights.shape == (len(wrote), len(read))


def test_our_own_models_open_in_transformers_with_their_tokens_and_come_back(translator, tmp_path):
    convert(translator, tmp_path / "out")
    theirs, tokenizer = MarianMTModel.from_pretrained(tmp_path / "out").eval(), AutoTokenizer.from_pretrained(tmp_path / "out")
    again = open_translator(tmp_path / "out")
    texts = ["one red cat", "dog and cat", "<s> x <pad>", "red"]
    tokens = translator.preparation.encode(texts)
    given = tokenizer(texts, padding=True, return_tensors="pt")
    assert torch.equal(given.input_ids, filled(tokens, 0, 64)[:, : given.input_ids.shape[1]])
    target = filled([[1, *row] for row in tokens], 0, 64)
    with torch.no_grad():
        expected = translator(filled(tokens, 0, 64), target)
        torch.testing.assert_close(again(filled(tokens, 0, 64), target), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(theirs(**given, decoder_input_ids=target).logits, expected, rtol=1e-4, atol=1e-5)
    written = tokenizer.batch_decode(theirs.generate(**given, num_beams=1, max_length=60), skip_special_tokens=True)
    for model in (translator, again):
        assert [done.text for done in Translator(model, beams=1).translate(texts)] == written
    assert again.preparation.to_json() == translator.preparation.to_json() and again.languages == translator.languages
    convert(again, tmp_path / "own", layout="vitrail")
    assert open_translator(tmp_path / "own").config == again.config


def test_what_marian_has_no_place_for_is_refused_by_name_and_else_written_as_our_own(translator, tmp_path):
    for name, fields, what in (
        ("Transformer-tiny", {"norm": "pre"}, "encoder_norm"),
        ("Transformer-tiny", {"activation": "swiglu"}, "swiglu"),
        ("Transformer-tiny", {"norm_eps": 1e-3}, "norm_eps"),
        ("Transformer-tiny", {"position": "learned"}, "position.embedding"),
        ("LSTM", {}, "LSTM"),
    ):
        sizes = {"depth": 1, "dim": 16, "vocabulary": len(translator.preparation)}
        model = TrainedTranslator(create_model(name, **{**sizes, **fields}), translator.preparation, ("en", "de"))
        with pytest.raises(ConfigError, match=what):
            convert(model, tmp_path / "out", layout="marian")
        convert(model, tmp_path / f"{name}{what}")
        assert json.loads((tmp_path / f"{name}{what}" / "config.json").read_text())["model_type"] == "vitrail"
    for out, layout in ((tmp_path / "x.safetensors", None), (tmp_path, None), (tmp_path / "y", "timm")):
        with pytest.raises(ConfigError):
            convert(translator, out, layout=layout)


@pytest.mark.parametrize(
    "values",
    [
        {"static_position_embeddings": False},
        {"normalize_embedding": True},
        {"add_final_layer_norm": True},
        {"normalize_before": True},
        {"decoder_attention_heads": 4},
        {"decoder_ffn_dim": 25},
        {"decoder_vocab_size": 9},
        {"activation_function": "mish"},
        {"eos_token_id": [0, 1]},
        {"decoder_start_token_id": 3},
        {"d_model": 32},
        {"something_new": 1},
    ],
    ids=str,
)
def test_what_is_not_understood_is_refused_by_name(folder, tmp_path, values):
    shutil.copytree(folder, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, **values}))
    with pytest.raises(ModelFileError) as error:
        open_translator(tmp_path / "model")
    (name,) = values
    said = {"eos_token_id": "end", "decoder_start_token_id": "start", "d_model": "16"}.get(name, name)
    assert said in str(error.value) and error.value.exit_code == 4


def test_generation_settings_and_older_keys_change_nothing(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    older = {
        "num_beams": 6,
        "bad_words_ids": [[config["pad_token_id"]]],
        "static_position_embeddings": True,
        "add_bias_logits": False,
    }
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, **older}))
    tensors = load_file(folder / "model.safetensors")
    positions = random_marian(scale_embedding=True).model.encoder.embed_positions.weight
    shared = {f"model.{side}.embed_tokens.weight": tensors["model.shared.weight"].clone() for side in ("encoder", "decoder")}
    save_file({**tensors, **shared, "model.encoder.embed_positions.weight": positions}, tmp_path / "model" / "model.safetensors")
    found, expected = (open_translator(path).model.state_dict() for path in (tmp_path / "model", folder))
    assert found.keys() == expected.keys() and all(torch.equal(tensor, expected[name]) for name, tensor in found.items())
    for wrong in (
        {"model.encoder.embed_positions.weight": positions + 0.1},
        {"model.decoder.embed_tokens.weight": positions[:43]},
    ):
        save_file({**tensors, **wrong}, tmp_path / "model" / "model.safetensors")
        with pytest.raises(ModelFileError):
            open_translator(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("source.spm", b""),
        ("target.spm", b"junk"),
        ("vocab.json", b"[]"),
        ("vocab.json", b'{"</s>": 0, "<unk>": 2, "<pad>": 3}'),
        ("vocab.json", b'{"</s>": 0, "<pad>": 1}'),
        ("vocab.json", b'{"</s>": 0, "<unk>": 1, "<pad>": 2}'),
        ("tokenizer_config.json", b"{"),
        ("tokenizer_config.json", b'{"separate_vocabs": true}'),
        ("tokenizer_config.json", b'{"pad_token": 3}'),
        ("model.safetensors", b"\x00" * 40),
        ("source.spm", None),
        ("model.safetensors", None),
    ],
)
def test_damaged_and_missing_files_are_refused(folder, tmp_path, name, content):
    shutil.copytree(folder, tmp_path / "model")
    if content is None:
        (tmp_path / "model" / name).unlink()
    else:
        (tmp_path / "model" / name).write_bytes(content)
    with pytest.raises(ModelFileError):
        open_translator(tmp_path / "model")


def test_every_piece_of_a_long_text_says_the_language_that_is_asked_for(folder):
    asked = Translator(folder, beams=1)
    pieces = asked.cut(">>de<< " + "one red cat and dog. " * 60)
    code = asked.tokenizer.numbers.get(">>de<<", asked.tokenizer.unknown)
    assert len(pieces) > 3 and all(tokens[0] == code for tokens in pieces)
    assert asked.cut(">>de<<") == asked.cut("") == []


def test_tokens_that_are_no_text_are_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "other")
    words = json.loads((tmp_path / "other" / "vocab.json").read_text())
    words["\ud800"] = words.pop(next(word for word, number in words.items() if number == 5))
    (tmp_path / "other" / "vocab.json").write_text(json.dumps(words))
    with pytest.raises(ModelFileError, match="not valid Unicode"):
        open_translator(tmp_path / "other")


def test_a_run_from_such_a_folder_is_scored_with_what_stands_in_the_data(folder, tmp_path):
    data, kept = write_pairs(tmp_path / "pairs.tsv", most=2), []
    data.write_text(data.read_text().replace("Katze", "Katze …"))  # which its pieces do not hold
    settings = {name: value for name, value in TINY_TRANSLATOR.items() if not name.startswith("model.")}
    asked = nested({**settings, "data": str(data), "start": str(folder), "training.epochs": 1})
    begin_run(tmp_path / "run", kept.append, asked, recipe=None, config=None, observer=None, transform=None)
    wanted = {wanted for _, _, wanted in kept[0].metrics.texts}
    assert any("…" in text for text in wanted) and wanted <= {pair.target for pair in kept[0].items}


# -- languages


def pieces_with(*codes):
    """The tokens of a folder whose vocabulary has the marks of some languages."""
    files = contents()
    names = [name for name in json.loads(files["vocab.json"]) if name != ">>de<<"]
    files = {**files, "vocab.json": json.dumps({name: number for number, name in enumerate([*names, *codes])}).encode()}
    return SentencePieces(files, where="folder")


MANY = tuple(f">>l{number:02}<<" for number in range(40))


@pytest.mark.parametrize(
    ("codes", "text", "words"),
    [
        ((">>de<<", ">>es<<"), ">>xyz<< one dog", ">>de<<, >>es<<"),
        ((">>de<<", ">>es<<"), ">>DE<< one dog", "did you mean >>de<<?"),
        ((">>cmn_Hans<<", ">>cmn_Hant<<"), ">>cmn-Hans<< one dog", "did you mean >>cmn_Hans<<?"),
        ((">>de<<",), ">>german<<one dog", "known: >>de<<"),
        (MANY, ">>xx<< one", "and 20 more"),
        ((), ">>de<< one dog", "remove the code"),
    ],
)
def test_a_language_that_the_model_has_not_is_refused_by_those_that_it_has(codes, text, words):
    tokens = pieces_with(*codes)
    for encode in (tokens.encode, lambda texts: [tokens.language_code(one) for one in texts]):
        with pytest.raises(DataError, match=re.escape(text.partition("<<")[0])) as error:
            encode(["one dog", text])
        assert words in str(error.value) and text in str(error.value)


@pytest.mark.parametrize("codes", [(">>de<<", ">>es<<"), ()])
@pytest.mark.parametrize("text", [">> a << one dog", "one >>xyz<< dog", ">><< dog", ">>one", ">>cat >>dog<<"])
def test_what_is_no_code_is_read_as_text(codes, text):
    tokens = pieces_with(*codes)
    assert tokens.language_code(text) == "" and len(tokens.encode([text])[0]) > 2


def test_a_known_code_is_one_token_with_or_without_a_space():
    tokens = pieces_with(">>de<<", ">>es<<")
    assert tokens.encode([">>es<< one dog"]) == tokens.encode([">>es<<one dog"])
    assert tokens.encode([">>es<<"])[0][0] == tokens.numbers[">>es<<"]


def test_the_command_names_the_line_of_a_language_that_is_not_there(tmp_path):
    write_folder(tmp_path / "marian", random_marian())
    command = [sys.executable, "-m", "vitrail", "translate", str(tmp_path / "marian")]
    done = subprocess.run(command, input="one\n>>xyz<< one dog\n", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "") and "standard input, line 2" in done.stderr and ">>de<<" in done.stderr
