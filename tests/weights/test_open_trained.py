"""Whichever kind of model a MODEL is: opened by one function, saved and shown by what all kinds share."""

import pytest
import torch

from small_captioner import small_captioner
from tiny_pose import tiny_pose
from tiny_segmenter import tiny_segmenter
from vitrail.data.images.preparation import Preparation
from vitrail.data.text.tokenizer import Tokenizer
from vitrail.errors import ConfigError, ModelFileError
from vitrail.models.registry import build, model_config
from vitrail.task_registry import TASKS
from vitrail.tasks.diffusion.weights import TrainedDiffusion
from vitrail.tasks.translation.weights import TrainedTranslator
from vitrail.weights.convert import convert
from vitrail.weights.locate import row_behind
from vitrail.weights.reference import config_of, open_model, open_trained

SENTENCES = ["one red cat", "eins rot Katze"]


def small_translator() -> TrainedTranslator:
    tokens = Tokenizer.learned(SENTENCES, 280)
    sizes = {"dim": 16, "depth": 1, "decoder_depth": 1, "heads": 2, "mlp_dim": 16}
    config = model_config("Transformer-tiny", vocabulary=len(tokens), **sizes)
    return TrainedTranslator(build(config).eval(), tokens, ("en", "de"))


def small_diffusion() -> TrainedDiffusion:
    sizes = {"image_size": 8, "channels": 3, "num_classes": 2, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 16}
    model = build(model_config("DiT-S/4", **sizes)).eval()
    return TrainedDiffusion(model, ["one", "two"], Preparation.standard((8, 8)))


KINDS = {
    "classification": None, "diffusion": small_diffusion, "pose": tiny_pose, "segment": tiny_segmenter,
    "caption": small_captioner, "translate": small_translator,
}  # fmt: skip
"""By the task whose room has the kind; the first is made by a fixture."""


@pytest.fixture
def one(request, trained):
    return (KINDS[request.param] or trained)(), request.param


every_kind = pytest.mark.parametrize("one", KINDS, indirect=True)


def test_every_task_has_a_kind_of_trained_model():
    assert {(row.reads, row.answers) for row in TASKS.values()} == {(TASKS[name].reads, TASKS[name].answers) for name in KINDS}


@every_kind
@pytest.mark.parametrize("layout", [None, "vitrail"])
def test_a_folder_is_opened_as_the_kind_that_it_is(one, layout, tmp_path):
    before, task = one
    convert(before, tmp_path / "model", layout=layout)
    again = open_trained(tmp_path / "model")
    assert type(again) is type(before) and config_of(tmp_path / "model") == again.config
    assert (again.config.reads, again.config.answer) == (TASKS[task].reads, TASKS[task].answers)
    weights = before.model.state_dict()
    for name, tensor in (again.model.state_dict() if layout else {}).items():
        assert torch.equal(tensor, weights[name])
    writes = TASKS[task].answers == "text"
    assert row_behind(tmp_path / "model") == (TASKS[task] if writes else None)


@every_kind
def test_a_notebook_shows_what_it_is(one):
    model, _ = one
    assert (
        f"{sum(p.numel() for p in model.parameters()):,}" in model._repr_html_() and model.config.summary in model._repr_html_()
    )
    assert model.config.summary in model.plain_card()


@pytest.mark.parametrize("one", ["caption", "translate"], indirect=True)
def test_a_model_that_writes_texts_is_neither_changed_nor_taken_for_another_nor_a_file_alone(one, tmp_path):
    model, _ = one
    model.save_pretrained(tmp_path / "model")
    for change in ({"image_size": 32}, {"key": "ema"}, {"heads": 2}):
        with pytest.raises(ConfigError, match="already defines it"):
            open_trained(tmp_path / "model", **change)
    with pytest.raises(ModelFileError, match=r"translator is no model of images|captioner gives no labels"):
        open_model(tmp_path / "model")
    with pytest.raises(ConfigError, match="needs a folder, to hold its tokens"):
        convert(model, tmp_path / "alone.safetensors")
    with pytest.raises(ConfigError, match="unknown layout"):
        convert(model, tmp_path / "out", layout="timm")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
