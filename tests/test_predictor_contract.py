"""Promises of the library for the predictor of every task. They are found in the table: none is without its row here."""

import inspect
import json
import re

import pytest
from PIL import Image

import vitrail
from deploy.small import small_model
from small_captioner import small_captioner
from tiny_pose import SKELETON, tiny_pose
from tiny_segmenter import tiny_segmenter
from vitrail.deploy.predictor import Prepared, in_python, predict_each, row_of
from vitrail.errors import ConfigError, DataError, ModelFileError
from vitrail.task_registry import TASKS
from vitrail.tasks.options import read_options
from vitrail.tasks.pose.files.detections import Detection
from vitrail.tasks.pose.people.cut_out import Framed

IMAGES = [Image.new("RGB", (30, 40), colour) for colour in ("red", "white", "green")]
BOXES = [None, [Detection.of((2, 3, 20, 30)), Detection.of((4, 0, 20, 30, 0.5))], []]
MODELS = {
    "classification": (small_model, IMAGES, b"no image"),
    "pose": (tiny_pose, [Framed(*each) for each in zip(IMAGES, BOXES, strict=True)], Framed(b"no image")),
    "segment": (tiny_segmenter, [IMAGES[0], IMAGES[1].resize((50, 20)), IMAGES[2]], b"no image"),
    "caption": (small_captioner, IMAGES, b"no image"),
    "translate": (None, ["one red cat", "", "dog"], None),
}
"""Of a task that predicts, what makes its model, items, and an item that cannot be read."""


@pytest.fixture(scope="module", params=[name for name, row in TASKS.items() if row.has("predictor")])
def asked(request):
    """A predictor, items, and an item that cannot be read."""
    model, items, unreadable = MODELS[request.param]
    trained = request.getfixturevalue("translator") if model is None else model()
    assert row_of(trained) is TASKS[request.param]
    return in_python(trained), items, unreadable


def plain(answers):
    return [[answer.rows(), answer.lines()] for answer in answers]


def words_and_numbers(answers):
    """The text of predictions without its numbers, and these."""
    text, number = repr(answers), r"-?\d+\.\d+"
    return re.sub(number, "", text), [float(found) for found in re.findall(number, text)]


def test_an_item_has_the_same_prediction_alone_and_among_others_step_by_step(asked):
    predictor, items, _ = asked
    together = [answer for batch in predict_each(predictor, items, batch_size=2) for answer in batch]
    singly = []
    for item in items:
        prepared = predictor.preprocess(item)
        assert isinstance(prepared, Prepared)
        outputs = predictor.compute(prepared.rows, 1) if len(prepared.rows) else []
        assert len(outputs) == len(prepared.rows)
        singly += predictor.postprocess(list(outputs), [prepared])
    words, numbers = words_and_numbers(plain(together))
    expected_words, expected_numbers = words_and_numbers(plain(singly))
    last_digit = 0.01 if isinstance(items[0], Framed) else 1e-4  # a batch rounds otherwise, and pixels have two digits
    assert words == expected_words and numbers == pytest.approx(expected_numbers, rel=1e-4, abs=1.1 * last_digit)


def test_a_prediction_is_json_and_rows_under_the_head_and_lines(asked):
    predictor, items, _ = asked
    for answer in predictor.predictions([predictor.preprocess(item) for item in items], 8):
        assert json.loads(json.dumps(answer.to_json("x.png"))) == answer.to_json("x.png")
        assert all(entry.get("image", "x.png") == "x.png" for entry in answer.entries("x.png"))
        assert all(len(row) == len(predictor.head) and all(isinstance(cell, str) for cell in row) for row in answer.rows())
        assert len(answer.entries("x.png")) == len(answer.rows()) and all("\n" not in line for line in answer.lines())


def test_an_item_that_cannot_be_read_leaves_the_others_their_predictions(asked):
    predictor, items, unreadable = asked
    if unreadable is None:
        pytest.skip("every text can be read")
    (found,) = predict_each(predictor, [items[0], unreadable, items[2]], batch_size=8)
    assert isinstance(found[1], DataError) and plain([found[0], found[2]]) == plain(
        answer for batch in predict_each(predictor, [items[0], items[2]], batch_size=8) for answer in batch
    )


def test_what_can_be_drawn_is_drawn_into_the_picture(asked):
    predictor, items, _ = asked
    (answer, *_) = predictor.predictions([predictor.preprocess(items[0])], 8)
    if predictor.task == "pose":
        assert answer.skeleton == SKELETON and answer.draw(IMAGES[0]).tobytes() != IMAGES[0].tobytes()
    elif predictor.task == "segment":
        assert answer.draw(IMAGES[0]).tobytes() != IMAGES[0].tobytes()
    else:
        with pytest.raises(NotImplementedError):
            answer.draw(IMAGES[0])


# options


@pytest.mark.parametrize("function", ["evaluate", "predict"])
def test_a_function_for_models_of_every_task_has_few_parameters_of_its_own(function):
    kinds = [parameter.kind for parameter in inspect.signature(getattr(vitrail, function)).parameters.values()]
    assert len([kind for kind in kinds if kind is not inspect.Parameter.VAR_KEYWORD]) <= 8


@pytest.mark.parametrize(
    ("task", "module", "options", "error", "says"),
    [
        ("classification", "evaluate", {"boxes": "boxes.json"}, ModelFileError, "the model finds no joints"),
        ("classification", "predictor", {"smoothing": 1.0}, ModelFileError, "the model finds no joints"),
        ("caption", "evaluate", {"pictures": "folder"}, ConfigError, "has no such option"),
        ("translate", "evaluate", {"pictures": "folder"}, ConfigError, "has no such option"),
        ("translate", "evaluate", {"workers": 0}, ConfigError, "the evaluation of a translation model has no such option"),
        ("translate", "evaluate", {"table": "a.csv"}, ConfigError, "the evaluation of a translation model has no such option"),
        ("caption", "evaluate", {"mirror": True}, ConfigError, "the evaluation of a captioner has no such option"),
        ("pose", "predictor", {"top": 3}, ConfigError, "the model predicts joints, not labels"),
        ("pose", "evaluate", {"keep": True}, ConfigError, "keep is an option of another task"),
        ("pose", "evaluate", {"smoothing": -1.0}, ConfigError, "smoothing cannot be -1.0"),
        ("classification", "evaluate", {"mirrors": True}, ConfigError, "unknown option 'mirrors'"),
        ("classification", "evaluate", {"mirror": "perhaps"}, ConfigError, "mirror cannot be 'perhaps'"),
    ],
)
def test_an_option_of_another_task_is_refused_by_name(task, module, options, error, says):
    with pytest.raises(error, match=says):
        read_options(TASKS[task], module, options, "model")


def test_an_option_that_is_none_is_not_given():
    assert not read_options(TASKS["translate"], "evaluate", {"workers": None, "boxes": None}, "model").model_fields_set
    assert "mirror" in read_options(TASKS["pose"], "evaluate", {"mirror": False}, "model").model_fields_set
