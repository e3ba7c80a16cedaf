"""Translation: its loss, its metrics, and what a run of it keeps and tells."""

import json

import pytest
import sacrebleu
import torch
import torch.nn.functional as F

from vitrail import api
from vitrail.config.configuration import nested
from vitrail.config.request import Request
from vitrail.data.loading.loader import EpochLoader
from vitrail.data.text.dataset import PairDataset
from vitrail.data.text.tokenizer import PAD
from vitrail.errors import ConfigError, DataError, ModelFileError
from vitrail.models.registry import build
from vitrail.tasks.evaluation import answering, evaluate
from vitrail.tasks.translation.pairs import Pair
from vitrail.tasks.translation.predictor import InPython
from vitrail.tasks.translation.weights import TrainedTranslator, load_translator, open_translator
from vitrail.weights.reference import open_model
from words import TINY_TRANSLATOR, task_of, write_pairs


@pytest.fixture
def task(translator):
    return task_of(translator)


def pairs(*texts: tuple[str, str]) -> list[Pair]:
    return [Pair(f"pairs.tsv:{number}", *both) for number, both in enumerate(texts, 2)]


def test_the_loss_is_the_mean_over_all_tokens_of_the_translations_and_fillings_do_not_count(task):
    items = pairs(("one cat", "eins Katze"), ("dog", "Hund"), ("red red red", "rot"))
    task.label_smoothing = 0.1
    batch = next(EpochLoader(task.dataset(items), 400, shuffle=False).epoch())
    logits = task.model(batch["source"], batch["target"])
    expected = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=PAD, label_smoothing=0.1)
    torch.testing.assert_close(task(batch)["loss"], expected, rtol=1e-5, atol=1e-5)
    assert task.units(batch) == sum(len(tokens) for tokens in task.tokenizer.encode([item.target for item in items]))


def test_metrics_are_per_token_and_scores_are_sacrebleus_on_the_texts_as_they_are(task):
    items = pairs(("one cat", "eins Katze"), ("dog and cat", "Hund und Katze"), ("red dog", "rot Hund"))
    with answering(task, torch.device("cpu")) as answer:
        loader = EpochLoader(task.dataset(items), 40, shuffle=False)
        metrics = task.metrics(keep=True)
        metrics.take_items(items)
        evaluate(answer, loader, metrics)
    scores, (written, wanted) = metrics.scores(), zip(*[texts for _, *texts in metrics.texts], strict=True)
    assert sorted(wanted) == sorted(item.target for item in items)
    assert scores["bleu"] == sacrebleu.corpus_bleu(list(written), [list(wanted)]).score
    assert scores["chrf"] == sacrebleu.corpus_chrf(list(written), [list(wanted)]).score
    assert scores["sentences"] == 3 and "case:mixed" in scores["signature"] and "tok:13a" in scores["signature"]
    losses = right = tokens = 0
    for item in items:
        batch = next(EpochLoader(task.dataset([item]), 40, shuffle=False).epoch())
        logits, labels = task.model(batch["source"], batch["target"])[0], batch["labels"][0]
        some = labels != PAD
        losses += F.cross_entropy(logits[some], labels[some], reduction="sum").item()
        right += (logits.argmax(1) == labels)[some].sum().item()
        tokens += some.sum().item()
    assert scores["loss"] == pytest.approx(losses / tokens, rel=1e-5) and scores["token_accuracy"] == right / tokens


def test_a_run_learns_words_keeps_a_translator_and_is_reported(translated_run):
    folder = translated_run.folder
    assert translated_run.scores["chrf"] > 50 and translated_run.scores["token_accuracy"] > 0.7
    trained = load_translator(folder / "best")
    assert trained.languages == ("en", "de") and "translate FOLDER" in trained.card
    again = open_translator(folder)
    assert all(torch.equal(tensor, again.model.state_dict()[name]) for name, tensor in trained.model.state_dict().items())
    page = (folder / "report.html").read_text()
    assert all(word in page for word in ("BLEU", "chrF", "Where it looked", "tokens per second"))
    rows = (folder / "translations.csv").read_text(encoding="utf-8-sig").splitlines()
    assert rows[0] == "source,translation,reference" and len(rows) == 1 + translated_run.scores["sentences"]
    row = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert {"train_loss", "val_loss", "val_token_accuracy", "tokens_per_second"} <= row.keys()


def test_a_saved_translator_comes_back_and_damaged_ones_are_refused(translator, tmp_path):
    translator.save_pretrained(tmp_path / "model")
    back = load_translator(tmp_path / "model")
    source, target = torch.tensor([[5, 6, 2]]), torch.tensor([[1, 7]])
    assert torch.equal(back(source, target), translator(source, target))
    description = json.loads((tmp_path / "model" / "config.json").read_text())
    for change in ({"architectures": ["ViT"]}, {"languages": "en"}, {"heads": 3}, {"vocabulary": 5000}, {"model_type": "marian"}):
        (tmp_path / "model" / "config.json").write_text(json.dumps(description | change))
        with pytest.raises(ModelFileError):
            load_translator(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps(description))
    (tmp_path / "model" / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match=r"tokenizer\.json is missing"):
        load_translator(tmp_path / "model")
    with pytest.raises(ModelFileError, match="no model of images"):
        open_model(tmp_path / "model")


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"source": None}, "--source"),
        ({"batch_size": "auto"}, "batch_size"),
        ({"balance": "sampling"}, "--balance"),
        ({"schedule.first_image_size": 8}, "first_image_size"),
    ],
)
def test_what_makes_no_sense_of_sentences_is_refused_by_name(tmp_path, more, where):
    data = write_pairs(tmp_path / "pairs.tsv")
    settings = {**TINY_TRANSLATOR, **more}
    with pytest.raises(ConfigError) as error:
        api.train(data, tmp_path / "run", **{name: value for name, value in settings.items() if value is not None})
    assert where in str(error.value.where) and not (tmp_path / "run").exists()


def test_a_model_of_images_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="ViT-Ti/16 is not a translation model"):
        api.train(write_pairs(tmp_path / "pairs.tsv"), task="translate", source="en", target="de", model="ViT-Ti/16")


def test_a_run_starts_from_a_translator_with_its_tokens_and_only_of_the_same_languages(translated_run, tmp_path):
    data = write_pairs(tmp_path / "pairs.tsv", header="en\tfr")
    ask = {**TINY_TRANSLATOR, "start": str(translated_run.folder), "training.epochs": 1}
    with pytest.raises(DataError):
        api.train(data, tmp_path / "run", **ask)
    with pytest.raises(ConfigError, match="translates en to de"):
        api.train(data, tmp_path / "run", **{**ask, "target": "fr"})
    data = write_pairs(tmp_path / "more.tsv")
    more = api.train(data, tmp_path / "run", **ask)
    assert more.scores["loss"] < 1.5
    assert more.trained.preparation.to_json() == translated_run.trained.preparation.to_json()


def test_sentences_of_all_the_tokens_that_a_model_has_positions_for_are_learned_translated_and_aligned(translator):
    """Also where that is an odd number of them, and sentences are filled up to an even one."""
    (source,), (target,) = (translator.preparation.encode([text]) for text in ("one red cat", "eins rot Katze"))
    most = max(len(source), len(target)) // 2 * 2 + 1
    source, target = ([*row[:1] * (most - len(row)), *row] for row in (source, target))
    model = build(translator.config.changed(position="learned", max_tokens=most)).eval()
    trained = TrainedTranslator(model, translator.preparation, translator.languages)
    dataset = PairDataset(["pair"], [source], [target], pad=PAD, start=trained.config.start, most=most)
    (batch,) = EpochLoader(dataset, 100, shuffle=False).epoch()
    assert task_of(trained)(batch)["loss"].isfinite()
    assert trained.alignment(source, target[:-1]) is not None
    assert len(InPython(trained).write([source], 2)) == 1


def test_long_sentences_are_left_out_and_told(tmp_path):
    data = write_pairs(tmp_path / "pairs.tsv")
    data.write_text(data.read_text() + "cat " * 300 + "\tKatze\n")
    run = api.train(data, tmp_path / "run", **{**TINY_TRANSLATOR, "training.epochs": 1})
    assert list(json.loads((run.folder / "bad_images.json").read_text()).values()) == ["longer than 256 tokens"]


def test_a_run_is_possible_with_each_form_of_data_and_what_is_not_there_is_told_at_once(tmp_path):
    def ask(name: str) -> None:
        given = {"data": str(tmp_path / name), "task": "translate", "source": "en", "target": "de"}
        Request.read(None, None, nested(given)).require_possible(None)

    (tmp_path / "text.en").write_text("one\n")
    for missing, what in (("pairs.tsv", "no sentences at .*pairs.tsv"), ("text", "there is no file text.de")):
        with pytest.raises(DataError, match=what):
            ask(missing)
    (tmp_path / "text.de").write_text("eins\n")
    with pytest.raises(DataError, match="no files named as splits"):
        ask(".")
    for there in (write_pairs(tmp_path / "train.tsv").name, "text", "."):
        ask(there)
