"""A captioner whose decoder first learns from sentences alone."""

import itertools
import signal

import pytest
import torch

from captioned import COLOURS, PLACES, write_captions
from small_captioner import ENCODER, small_captioner
from vitrail import api
from vitrail.config.configuration import nested
from vitrail.errors import ConfigError, DataError, DivergedError
from vitrail.runtime.observer import Observer
from vitrail.runtime.signals import InterruptedRunError
from vitrail.tasks.captioning import sentences as learning
from vitrail.tasks.captioning.sentences import learn_sentences, read_sentences
from vitrail.training.loop.learner import Learner
from vitrail.training.runs import setup as preparing

SENTENCES = [f"a {colour} circle on the {place}" for colour, place in itertools.product(COLOURS, PLACES)]
SETTINGS = {
    "task": "caption", "model.name": "Captioner-Ti/16", "model.image_size": 24, "model.encoder": ENCODER, "model.dim": 16,
    "model.decoder_depth": 1, "model.heads": 2, "model.mlp_dim": 32, "model.dropout": 0.1, "training.batch_size": 8,
    "training.epochs": 2, "training.precision": "fp32", "optimizer.lr": 0.01, "schedule.warmup_epochs": 0,
    "task.vocabulary": 290, "optimizer.layers": {}, "training.label_smoothing": 0,
}  # fmt: skip


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "sentences.txt"
    file.write_text("\n".join(f"  {sentence} .\n" for sentence in SENTENCES))
    return file


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data").mkdir()
    return write_captions(tmp_path / "data")


def settings(data, **more):
    return preparing.resolve_run(None, None, nested({"data": str(data), **SETTINGS, **more}))[0]


@pytest.mark.parametrize("name", ["Captioner-Ti/16", "Captioner-LSTM-Ti/16"])
def test_the_decoder_learns_to_write_and_the_encoder_stays(data, name):
    trained = small_captioner(name)
    for parameter in trained.model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    before = {key: tensor.clone() for key, tensor in trained.model.state_dict().items()}
    losses = [
        learn_sentences(trained.model, trained.tokenizer, SENTENCES, settings(data), epochs=epochs, most=40, observer=Observer())
        for epochs in (1, 40)
    ]
    assert losses[1][0] < 0.7 * losses[0][0]
    after = trained.model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before if key.startswith("encoder."))
    assert not all(torch.equal(before[key], after[key]) for key in before)


def test_a_run_tells_what_it_has_learned_and_keeps_where_the_text_is(data, text, tmp_path, unreported):
    notes = []

    class Noting(Observer):
        def note(self, line):
            notes.append(line)

    run = api.train(str(data), out=tmp_path / "run", observer=Noting(), **SETTINGS, text=str(text))
    assert any(f"{len(SENTENCES)} sentences learned from {text}" in line for line in notes)
    assert str(text) in (run.folder / "config.yaml").read_text()


def test_a_run_that_is_interrupted_before_or_after_its_first_checkpoint_ends_in_the_same_bits(data, text, tmp_path, unreported):
    options = {**SETTINGS, "text": str(text)}
    whole = api.train(str(data), out=tmp_path / "whole", **options)
    plain = api.train(str(data), out=tmp_path / "plain", **SETTINGS)

    class Stopping(Observer):
        steps = 0
        sentences = False

        def begin(self, what, images):
            self.sentences = what == "learning sentences"

        def advance(self, images):
            if self.sentences and self.where == "sentences":
                signal.raise_signal(signal.SIGINT)

        def step(self, epoch, sums):
            self.steps += 1
            if self.where == "images" and self.steps == 4:
                raise KeyboardInterrupt

    def weights(run):
        return {name: file.read_bytes() for file in (run / "best").glob("*.safetensors") for name in [file.name]}

    for where in ("sentences", "images"):
        Stopping.where = where
        folder = tmp_path / where
        expected = {"sentences": (InterruptedRunError, "sentences starts again"), "images": (KeyboardInterrupt, None)}[where]
        with pytest.raises(expected[0], match=expected[1]):
            api.train(str(data), out=folder, observer=Stopping(), checkpoint_every_steps=3, **options)
        api.resume(folder)
        assert weights(folder) == weights(whole.folder) != weights(plain.folder)


def test_what_training_would_refuse_is_told_before_the_text_is_learned(data, text, tmp_path, unreported, monkeypatch):
    monkeypatch.setattr(learning, "learn_sentences", lambda *_, **__: pytest.fail("the text is learned"))
    with pytest.raises(ConfigError, match="unknown part of the model 'decodr'"):
        api.train(data, tmp_path / "run", **{**SETTINGS, "text": str(text), "optimizer.layers": {"decodr": {"lr": 0.1}}})


def test_text_that_is_none_is_refused_before_anything_begins(data, tmp_path):
    for content, message in ((None, "no sentences at"), (b"\n \n", "the file has no sentences"), (b"\xff\xfe", "not in UTF-8")):
        file = tmp_path / "text.txt"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_sentences(file)
        with pytest.raises(DataError, match=message):
            api.train(str(data), out=tmp_path / "run", **SETTINGS, text=str(file))
        assert not (tmp_path / "run").exists()


def test_a_rate_at_which_it_does_not_learn_ends_the_run(data):
    trained, fast = small_captioner(), settings(data, **{"optimizer.lr": 1e20})
    with pytest.raises(DivergedError, match="sentences could not be learned"):
        learn_sentences(trained.model, trained.tokenizer, SENTENCES, fast, epochs=9, most=40, observer=Observer())


def test_sentences_end_with_their_time_by_a_schedule_that_follows_the_clock(data, monkeypatch):
    trained, places, shares = small_captioner(), [], iter([0.3, 0.6, 0.9, 1.2])
    step = Learner.step
    monkeypatch.setattr(Learner, "step", lambda self, batch, **o: places.append(o["done"]) or step(self, batch, **o))
    options = {"epochs": 40, "most": 40, "observer": Observer(), "share": lambda: next(shares)}
    loss, made, total = learn_sentences(trained.model, trained.tokenizer, SENTENCES, settings(data), **options)
    assert made == len(places) == 4 and places == [0, *(int(part * total) for part in (0.3, 0.6, 0.9))] and loss > 0


def test_a_fast_run_for_developers_learns_few_sentences_once(data, text, tmp_path, unreported, monkeypatch):
    seen = []

    def learn(model, tokens, sentences, settings, *, epochs, most, **others):
        seen.append((len(sentences), epochs, most))
        return 1.0, 1, 1

    monkeypatch.setattr(learning, "learn_sentences", learn)
    text.write_text("\n".join(f"sentence {number}" for number in range(100)))
    more = {"task.text": str(text), "task.text_epochs": 7, "task.max_length": 50, "model.max_tokens": 20}
    api.train(data, tmp_path / "run", **SETTINGS, **more, fast_dev_run=True)
    assert seen == [(32, 1, 20)]
