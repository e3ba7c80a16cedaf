"""What a captioner learns and is scored by."""

import pytest
import torch

from captioned import write_captions
from small_captioner import small_captioner
from vitrail.data.images.augment import Augmentation
from vitrail.data.loading.loader import EpochLoader
from vitrail.tasks.captioning.images.sources import open_captions
from vitrail.tasks.captioning.settings import CaptionSettings
from vitrail.tasks.captioning.task import Captioning, CaptionMetrics
from vitrail.tasks.evaluation import answering


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    return open_captions(write_captions(tmp_path_factory.mktemp("captions"))).split("train")[:3]


def task_of(**fields) -> Captioning:
    trained = small_captioner()
    return Captioning(trained.model, trained.preparation, trained.tokenizer, CaptionSettings(**fields))


def test_the_loss_is_the_mean_over_the_tokens_of_all_captions(items):
    task = task_of()
    (batch,) = EpochLoader(task.dataset(items), 8, shuffle=False).epoch()
    images, losses = task.preparation.normalize(batch["images"]), []
    for place, item in enumerate(items):
        for row in task.tokenizer.encode_targets(item.target):
            target = torch.tensor([[task.tokenizer.start, *row[:-1]]])
            logits = task.model(images[place : place + 1], target)[0]
            losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(row), reduction="none"))
    torch.testing.assert_close(task.eval()(batch)["loss"], torch.cat(losses).mean(), rtol=1e-4, atol=1e-4)
    assert task.units(batch) == sum(map(len, losses))


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 6}])
def test_captions_are_scored_by_all_that_people_wrote_and_learned_from_no_longer_than_asked(items, fields):
    trained = small_captioner(**fields)
    task = Captioning(trained.model, trained.preparation, trained.tokenizer, CaptionSettings(max_length=4))
    (batch,) = EpochLoader(task.dataset(items), 8, shuffle=False).epoch()
    (learned,) = EpochLoader(task.dataset(items, Augmentation()), 8, shuffle=False).epoch()
    assert learned["labels"].shape[-1] == 4
    with answering(task, torch.device("cpu")) as answer:
        metrics = task.metrics()
        metrics.take_items(items)
        metrics.update(answer(batch), batch)
    assert [references for _, _, references in metrics.texts] == [item.target for item in items]


@pytest.mark.parametrize("changed", [None, Augmentation()])
def test_captions_of_all_the_tokens_that_a_model_has_positions_for_are_learned_and_scored(items, changed):
    """Also where that is an odd number of them, and captions are filled up to an even one."""
    trained = small_captioner(position="learned", max_tokens=9)
    task = Captioning(trained.model, trained.preparation, trained.tokenizer, CaptionSettings())
    (batch,) = EpochLoader(task.dataset(items, changed), 8, shuffle=False).epoch()
    assert batch["labels"].shape[-1] == 9 and task(batch)["loss"].isfinite()
    with answering(task, torch.device("cpu")) as answer:
        answers = answer(batch)
    assert answers["written"].shape == (3, 9)
    task.caption(items[0].image)


@pytest.mark.parametrize(("same", "images", "warned"), [(3, 10, True), (2, 10, False), (1, 3, False), (2, 3, True)])
def test_the_same_caption_of_more_than_a_fifth_of_the_images_is_warned_of(same, images, warned):
    metrics = CaptionMetrics(task_of())
    metrics.texts = [(n, "A dog." if n < same else f"image {n}", ["a cat"]) for n in range(images)]
    assert bool(metrics.warning) == warned == ("warning" in metrics.details())
    if warned:
        assert metrics.warning == f"{same} of {images} images have the same caption: a dog"
