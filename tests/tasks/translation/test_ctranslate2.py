"""Translators in CTranslate2: the same tokens as in Python, verified, and what cannot be is refused."""

import itertools
import json
import shutil

import pytest
import torch

from peers import declare_operators
from vitrail import api
from vitrail.deploy.problems import ExportError
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.registry import create_model
from vitrail.tasks.translation.ctranslate2 import ExportedTranslator
from vitrail.tasks.translation.export import verify
from vitrail.tasks.translation.predictor import InPython, Translator, translate
from vitrail.tasks.translation.weights import TrainedTranslator, open_translator
from words import WORDS, write_pairs

OPERATORS = declare_operators()

from marian_folder import random_marian, write_folder  # noqa: E402

TEXTS = [" ".join(words) for length in (1, 2, 3) for words in itertools.permutations(WORDS, length)]


@pytest.fixture(scope="module")
def exported(translated_run, tmp_path_factory):
    """The folder of an export in fp32, and its figures; tests must leave it as it is."""
    return api.export(translated_run.folder, tmp_path_factory.mktemp("exports") / "fp32", to="ctranslate2")


def random_translator(translator: TrainedTranslator, **fields) -> TrainedTranslator:
    """One of the same tokens with random weights, none of them zero."""
    sizes = {"dim": 16, "heads": 2, "depth": 2, "decoder_depth": 1, "mlp_dim": 24, "vocabulary": len(translator.preparation)}
    torch.manual_seed(1)
    model = create_model("Transformer-tiny", **{**sizes, **fields}).eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.4)
    return TrainedTranslator(model, translator.preparation, ("en", "de"))


def test_an_export_answers_as_the_model_greedily_and_with_beams(exported, translator):
    folder, figures = exported
    sources = translator.preparation.encode(TEXTS)
    for beams in (1, 4):
        found, expected = (model.write(sources, beams) for model in (ExportedTranslator(folder), InPython(translator)))
        same = [(one, other) for one, other in zip(found, expected, strict=True) if one.tokens == other.tokens]
        assert len(found) - len(same) <= (
            beams > 1
        )  # its search ends sooner: now and then before the sentence with the best score
        for one, other in same:
            assert one.finished == other.finished
            if one.finished:  # here among the tokens that may be written, there among all
                assert -1e-5 < one.score - other.score < 0.01
    assert translate(folder, "", beams=2) == ""
    assert figures["verified"]["same"] == 1 and figures["verified"]["largest_difference"] < 1e-4
    assert figures["same"] == 1 and figures["loss"]["after"] == pytest.approx(figures["loss"]["before"], abs=1e-3)
    assert json.loads((folder / "export.json").read_text()) == figures and "en to de" in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    "fields",
    [
        {"activation": "gelu-tanh", "tied": False, "output_bias": True, "norm_eps": 1e-2},
        {"activation": "silu", "position": "sincos-halves", "max_tokens": 24},
        {"norm": "pre", "decoder_depth": 3, "heads": 4, "position": "learned", "max_tokens": 48},
    ],
    ids=str,
)
def test_every_kind_has_the_same_probabilities(translator, tmp_path, fields):
    """Of random models; their texts may part where two tokens are almost as likely."""
    trained = random_translator(translator, **fields)
    _, figures = api.export(trained, tmp_path / "out", to="ctranslate2")
    assert figures["verified"]["largest_difference"] < 1e-4 and figures["verified"]["same"] > 0.9 and "metric" not in figures


def test_a_marian_folder_is_exported_with_its_tokens(tmp_path):
    folder = write_folder(tmp_path / "marian", random_marian(scale_embedding=True))
    _, figures = api.export(folder, tmp_path / "out", to="ctranslate2")
    assert figures["verified"]["largest_difference"] < 1e-4
    texts = ["one red cat", "dog ñ"]
    found, expected = (translate(path, texts, beams=1) for path in (tmp_path / "out", folder))
    assert found == expected and (tmp_path / "out" / "source.spm").is_file()


def test_int8_is_written_and_kept_only_where_it_is_worth_it(translated_run, translator, tmp_path, monkeypatch):
    before = {name: tensor.clone() for name, tensor in translator.model.state_dict().items()}
    _, figures = api.export(translator, tmp_path / "int8", to="ctranslate2", precision="int8")
    assert all(torch.equal(tensor, before[name]) for name, tensor in translator.model.state_dict().items())
    assert 1e-4 < figures["verified"]["largest_difference"] < 10  # a processor without 8-bit products sums them in 16 bits
    monkeypatch.setattr("vitrail.tasks.translation.export.MOST_LOST", -100)
    with pytest.raises(ExportError, match=r"int8 loses \S+ points of chrF on \d+ sentences, at least"):
        api.export(translated_run.folder, tmp_path / "worse", to="ctranslate2", precision="int8")
    assert not (tmp_path / "worse").exists()
    _, figures = api.export(translated_run.folder, tmp_path / "worse", to="ctranslate2", precision="int8", force=True)
    assert -100 < figures["judged"]["least"] <= figures["judged"]["points"]


def test_what_does_not_answer_as_the_model_is_refused(exported, translator):
    other = random_translator(translator)
    with pytest.raises(ExportError, match="differ from the model's"):
        verify(ExportedTranslator(exported[0]), other, other.preparation.encode(["one red cat"]))


def test_an_export_is_evaluated_like_its_model_but_for_the_accuracy_of_tokens(exported, translated_run, tmp_path):
    data = write_pairs(tmp_path / "pairs.tsv")
    found, expected = (api.evaluate(model, data)[0].scores() for model in (exported[0], translated_run.folder / "best"))
    assert found.keys() == expected.keys() - {"token_accuracy"}
    assert found["loss"] == pytest.approx(expected["loss"], abs=1e-3)
    assert found == pytest.approx({name: expected[name] for name in found}, abs=0.1)  # one sentence of 85 may be another


def test_texts_are_no_longer_than_the_model_knows(translator, tmp_path):
    trained = random_translator(translator, max_tokens=12)
    folder, _ = api.export(trained, tmp_path / "out", to="ctranslate2")
    for model in (ExportedTranslator(folder), InPython(trained)):
        source = trained.preparation.encode(["cat cat cat"])
        assert all(len(text.tokens) <= 12 for beams in (1, 3) for text in model.write(source, beams))
    assert Translator(folder).longest == 12 and translate(folder, "cat " * 40, beams=1) is not None


def test_what_ctranslate2_has_no_place_for_is_refused(translator, tmp_path):
    lstm = create_model("LSTM", vocabulary=len(translator.preparation), dim=8, hidden_dim=8)
    for trained, what in (
        (TrainedTranslator(lstm, translator.preparation, ("en", "de")), "Recurrent"),
        (random_translator(translator, activation="swiglu"), "swiglu"),
    ):
        with pytest.raises(ConfigError, match=what):
            api.export(trained, tmp_path / "out", to="ctranslate2")
    with pytest.raises(ConfigError, match="cannot be exported to onnx"):
        api.export(translator, tmp_path / "out", to="onnx")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("translator.json", b'{"name": 3'),
        ("shared_vocabulary.json", b"[]"),
        ("tokenizer.json", b"{}"),
        ("model.bin", b"junk"),
        ("config.json", b'{"add_source_bos": []}'),  # which CTranslate2 reads when it is asked
    ],
)
def test_a_damaged_folder_is_refused(exported, tmp_path, name, content):
    shutil.copytree(exported[0], tmp_path / "model")
    (tmp_path / "model" / name).write_bytes(content)
    with pytest.raises(ModelFileError):
        translate(tmp_path / "model", "one")


def test_what_only_the_model_in_python_can_is_refused(exported, tmp_path):
    with pytest.raises(ModelFileError):
        open_translator(exported[0])
    with pytest.raises(ConfigError, match="exported already"):
        api.export(exported[0], tmp_path / "out", to="ctranslate2")
    with pytest.raises(ConfigError, match="returns no attention"):
        Translator(exported[0]).translate(["one"], attention=True)
