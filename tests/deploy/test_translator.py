"""Asking a translator: a text for each text, whatever it is."""

import copy
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vitrail
from vitrail.errors import ConfigError, ModelFileError
from vitrail.tasks.translation.predictor import LONGEST, Translator, translate
from vitrail.weights.locate import translates


def test_texts_are_answered_in_order_whoever_else_is_asked_and_empty_ones_stay_empty(translator):
    texts = ["red cat", "", "dog and cat", "  ", "one"]
    for beams in (1, 3):
        found = vitrail.translate(translator, texts, beams=beams)
        assert [bool(text) for text in found] == [True, False, True, False, True]
        assert found == [vitrail.translate(translator, text, beams=beams) for text in texts]
    assert vitrail.translate(translator, "one cat", beams=1) == "eins Katze"


def test_a_text_that_is_too_long_is_cut_at_sentences_else_between_words_else_anywhere(translator):
    asked = Translator(translator, beams=1)

    def pieces(text: str) -> list[str]:
        found = asked.cut(text)
        assert all(len(tokens) <= LONGEST for tokens in found)
        return [asked.tokenizer.decode(tokens) for tokens in found]

    sentence = "one red cat and dog " * 3
    assert pieces(f"{sentence.strip()}. " * 20 + "End.") == [*[f"{sentence.strip()}."] * 20, "End."]
    words = " ".join(f"w{number}" for number in range(5000))
    assert " ".join(pieces(words)) == words and len(pieces(words)) > 1
    assert "".join(pieces("x" * 3000)) == "x" * 3000
    enough = words[:3000]
    assert len(pieces(enough)) > 1 and len(asked.translate([enough])) == 1


@given(texts=st.lists(st.text(max_size=30), max_size=4))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_text_has_an_answer_of_one_line(translator, texts):
    found = vitrail.translate(translator, texts, beams=1)
    assert len(found) == len(texts)
    assert all(len(text.splitlines()) <= 1 for text in found)


def test_a_score_is_the_logarithm_of_a_probability_and_attention_belongs_to_the_tokens(translator):
    (found,) = Translator(translator, beams=2).translate(["dog and red cat"], attention=True)
    ((read, written, weights),) = found.alignments
    assert found.score < 0 and "".join(read).strip() == "dog and red cat</s>"
    assert "".join(written[:-1]).strip() == found.text and written[-1] == "</s>"
    assert len(weights) == len(written) and all(sum(row) == pytest.approx(1, abs=1e-2) for row in weights)
    assert set(found.to_json()) == {"source", "translation", "score", "attention"}


def test_a_model_of_images_and_no_beams_are_refused(run, translator):
    with pytest.raises(ModelFileError, match="no translation model"):
        vitrail.translate(run.folder, "one")
    with pytest.raises(ConfigError):
        vitrail.translate(translator, "one", beams=0)


def test_half_a_letter_is_replaced_and_a_loaded_translator_takes_other_beams(translator):
    assert isinstance(vitrail.translate(translator, "one \ud800 cat"), str)
    loaded, asked = Translator(translator, beams=2), []
    write = loaded.writer.write
    loaded.writer.write = lambda sources, beams, **more: asked.append(beams) or write(sources, beams, **more)
    for beams in (None, 2, 1):
        vitrail.translate(loaded, "one cat", beams=beams)
    assert asked == [2, 2, 1]
    with pytest.raises(ConfigError, match="beams is 201"):
        Translator(translator, beams=201)


@pytest.mark.parametrize("longest", [2, 3, 5])
def test_a_letter_of_more_tokens_than_the_model_takes_is_cut(translator, longest):
    asked = Translator(translator, beams=1)
    asked.longest = longest
    pieces = asked.cut("a dog \N{SLIGHTLY SMILING FACE} one")
    assert pieces and all(1 < len(tokens) <= longest and tokens[-1] == asked.tokenizer.end for tokens in pieces)


def test_weights_that_give_no_numbers_are_said_to_be_damaged(translator):
    broken = copy.deepcopy(translator)
    broken.model.embedding.weight.data *= 1e30
    for beams in (1, 2):
        with pytest.raises(ModelFileError, match="not finite"):
            vitrail.translate(broken, "one cat", beams=beams)


def test_a_file_of_weights_in_the_folder_of_a_translator_stands_for_it_and_alone_for_nothing(translator, tmp_path, vitrail):
    translator.save_pretrained(tmp_path / "whole")
    file = tmp_path / "whole" / "model.safetensors"
    assert translates(file) and translate(file, ["dog"]) == translate(translator, ["dog"])
    alone = shutil.copy(file, tmp_path / "model.safetensors")
    assert not translates(alone) and not translates(tmp_path / "whole" / "nothing.safetensors")
    with pytest.raises(ModelFileError, match=r"config\.json is missing"):
        translate(alone, ["dog"])
    answer = vitrail("evaluate", alone, "--data", tmp_path)
    assert answer.code == 4 and "for a translation model give its whole folder" in answer.err


def test_attention_of_a_translation_that_was_cut_at_the_limit_belongs_to_the_tokens_that_have_a_place(translator):
    most = translator.config.max_tokens
    (source,) = translator.preparation.encode(["one cat"])
    target = [token for token in source if token != translator.config.end][:1] * most
    _, written, weights = translator.alignment(source, target)
    assert written == translator.preparation.pieces(target) and len(weights) == most
