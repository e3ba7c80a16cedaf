"""Captions of pictures: what is written, how sure each word is, and where the model looked for it."""

import inspect
import math
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

from small_captioner import small_captioner
from vitrail.cli.use.caption import caption as command
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.configs.texts import CAPTION_BEAMS, CAPTION_NO_REPEAT, LONGEST_CAPTION
from vitrail.models.text.sampling import sample
from vitrail.models.text.search import Written, beam_search, greedy
from vitrail.tasks.captioning.predictor import Writer, caption
from vitrail.tasks.captioning.scores import Rarity
from vitrail.tasks.captioning.weights import load_captioner, open_captioner
from vitrail.tasks.captioning.words import captions_of

NAMES = ("Captioner-Ti/16", "Captioner-LSTM-Ti/16")


def pictures(count: int) -> list[Image.Image]:
    random = np.random.default_rng(0)
    return [Image.fromarray(random.integers(0, 255, (20 + n, 40, 3), np.uint8)) for n in range(count)]


@pytest.fixture(params=NAMES)
def trained(request):
    return small_captioner(request.param)


@pytest.mark.parametrize("beams", [1, 3])
def test_it_writes_what_the_search_finds_with_its_score(trained, beams):
    shown = pictures(5)
    found = caption(trained, shown, beams=beams, batch_size=2)
    images = trained.preparation.normalize(torch.from_numpy(np.stack([trained.preparation.pixels(one) for one in shown])))
    expected = (
        greedy(trained.model, images, max_length=LONGEST_CAPTION, no_repeat=CAPTION_NO_REPEAT)
        if beams == 1
        else searched(trained, shown)
    )
    assert [one.text for one in found] == [trained.tokenizer.decode(one.tokens) for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], rel=1e-4)


def test_the_words_of_a_caption_are_its_text_and_their_probabilities_multiply_to_its_own(trained):
    for one, written in zip(caption(trained, pictures(4)), searched(trained, pictures(4)), strict=True):
        assert " ".join(word.text for word in one.words).split() == one.text.split()
        total = sum(math.log(word.score) for word in one.words)
        assert total == pytest.approx(written.score - end_score(trained, written, one), abs=1e-3)


def searched(trained, shown):
    images = trained.preparation.normalize(torch.from_numpy(np.stack([trained.preparation.pixels(one) for one in shown])))
    how = {"max_length": LONGEST_CAPTION, "no_repeat": CAPTION_NO_REPEAT, "length_penalty": 1.0, "length_offset": 0}
    found = beam_search(trained.model, images, beams=3, **how)
    for image, best in zip(images, found, strict=True):
        best[0].__dict__["image"] = image
    return [best[0] for best in found]


def end_score(trained, written, one) -> float:
    """What the end adds to the score of a caption that has one."""
    if not written.finished:
        return 0.0
    target = torch.tensor([[trained.config.start, *written.tokens]])
    with torch.inference_mode():
        return trained.model(written.image[None], target)[0, -1].log_softmax(-1)[trained.config.end].item()


def test_a_word_looks_where_its_tokens_look(trained):
    (one,) = caption(trained, pictures(1), attention=True)
    (written,) = searched(trained, pictures(1))
    target = torch.tensor([[trained.config.start, *written.tokens]])
    weights = trained.model.alignment(written.image[None], target)[0, :-1, 1:].detach().numpy()  # without the class token
    places = [place for place, piece in enumerate(trained.tokenizer.pieces(written.tokens)) if piece.startswith(" ") or not place]
    for word, start, end in zip(one.words, places, [*places[1:], len(written.tokens)], strict=True):
        assert word.look.shape == (3, 3) and 0 < word.look.sum() <= 1 + 1e-5
        np.testing.assert_allclose(word.look.ravel(), weights[start:end].mean(axis=0), atol=1e-5)


def test_the_image_is_encoded_once_whatever_is_asked(trained, monkeypatch):
    calls = []
    encoder = trained.model.encoder
    monkeypatch.setattr(encoder, "encode", lambda *inputs, own=encoder.encode: calls.append(1) or own(*inputs))
    caption(trained, pictures(3), beams=4, attention=True)
    assert len(calls) == 1


def test_tokens_are_not_repeated_where_that_is_asked_for(trained):
    written = [caption(trained, pictures(2), no_repeat=count) for count in (0, 1, 2)]
    assert len({one[0].text for one in written}) == 3


def test_a_model_without_attention_looks_nowhere():
    (one,) = caption(small_captioner("Captioner-LSTM-Ti/16", attention="none"), pictures(1), attention=True)
    assert one.words and all(word.look is None for word in one.words)


def test_a_folder_keeps_all_that_is_needed(trained, tmp_path):
    trained.save_pretrained(tmp_path / "model")
    again = load_captioner(tmp_path / "model")
    assert again.config == trained.config and again.preparation == trained.preparation
    expected = caption(trained, pictures(3))
    assert caption(again, pictures(3)) == expected == caption(str(tmp_path / "model"), pictures(3))
    with pytest.raises(ConfigError, match="layout of such models 'timm'"):
        trained.save_pretrained(tmp_path / "other", layout="timm")


@pytest.mark.parametrize("name", ["tokenizer.json", "preprocessor_config.json", "config.json", "model.safetensors"])
def test_a_folder_without_one_of_its_files_is_refused(tmp_path, name):
    small_captioner().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / name).unlink()
    (tmp_path / "model" / "SHA256SUMS").unlink(missing_ok=True)
    with pytest.raises(ModelFileError):
        open_captioner(tmp_path / "model")


def test_another_preparation_or_vocabulary_is_refused(trained, tmp_path):
    trained.preparation = Preparation.standard((32, 32))
    trained.save_pretrained(tmp_path / "model")
    with pytest.raises(ModelFileError, match="another size or number of channels"):
        load_captioner(tmp_path / "model")
    other = small_captioner()
    other.model.config = other.model.config.changed(start=2)
    other.save_pretrained(tmp_path / "marks")
    with pytest.raises(ModelFileError, match="among the tokens"):
        load_captioner(tmp_path / "marks")


def test_weights_that_are_no_numbers_are_refused(trained):
    nn_weights = next(trained.model.encoder.parameters())
    nn_weights.data.fill_(float("nan"))
    with pytest.raises(ModelFileError, match="not finite"):
        caption(trained, pictures(1))


def test_the_beam_most_like_what_is_drawn_is_taken(trained):
    shown = pictures(6)
    found = caption(trained, shown, beams=4, samples=8, batch_size=4)
    images = trained.preparation.normalize(torch.from_numpy(np.stack([trained.preparation.pixels(one) for one in shown])))
    options = {"max_length": LONGEST_CAPTION, "length_penalty": 1.0, "length_offset": 0, "no_repeat": CAPTION_NO_REPEAT}
    beams = beam_search(trained.model, images, beams=4, best=4, **options)
    drawn = sample(trained.model, images, samples=8, max_length=LONGEST_CAPTION, temperature=0.65)
    alike = Rarity(2, Counter())
    expected = [max(beam, key=lambda one: alike.cider_d(one.tokens, own)) for beam, own in zip(beams, drawn, strict=True)]
    assert [one.text for one in found] == [trained.tokenizer.decode(one.tokens) for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], rel=1e-4)


def test_a_caption_of_no_words_is_one(trained):
    encoded = trained.model.encode(torch.randn(2, 3, 24, 24))
    empty = Written([], -1.0, -1.0, finished=True)
    found = captions_of(trained.model, trained.tokenizer, encoded, [empty, empty], attention=True)
    assert [one.to_json("x") for one in found] == [{"image": "x", "caption": "", "score": -1.0, "words": []}] * 2


def test_numbers_that_mean_nothing_are_refused_by_their_names():
    trained, refused = small_captioner(), [{"batch_size": 0}, {"beams": 0}, {"beams": 65}, {"no_repeat": -1}, {"samples": -1}]
    for options in (*refused, {"samples": 8, "beams": 1}, {"max_length": 0}):
        with pytest.raises(ConfigError) as error:
            caption(trained, pictures(1), **options)
        assert error.value.where == next(iter(options))


@pytest.mark.parametrize("longest", [3, 100_000])
def test_a_caption_is_as_long_as_is_asked_and_the_model_has_places_for(longest):
    shown, trained = pictures(3), small_captioner(max_tokens=80)
    writer = Writer(trained, beams=1, max_length=longest)
    assert writer.max_length == min(longest, trained.config.max_tokens)
    images = trained.preparation.normalize(torch.from_numpy(np.stack([trained.preparation.pixels(one) for one in shown])))
    expected = greedy(trained.model, images, max_length=writer.max_length, no_repeat=CAPTION_NO_REPEAT)
    found = caption(trained, shown, beams=1, max_length=longest)
    assert [one.text for one in found] == [trained.tokenizer.decode(one.tokens) for one in expected]


def test_the_command_writes_as_the_library_does_unless_it_is_said_otherwise():
    """The command's help is told without importing what computes, and so it has numbers of its own."""
    told = inspect.signature(command).parameters
    assert [told[name].default for name in ("beam", "no_repeat", "max_length")] == [
        CAPTION_BEAMS,
        CAPTION_NO_REPEAT,
        LONGEST_CAPTION,
    ]
