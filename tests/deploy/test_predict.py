"""Pictures in, labels out."""

import pytest
import torch
from PIL import Image

import vitrail
from vitrail.data.images.preparation import Preparation
from vitrail.deploy import predict as predicting
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.predictor import in_python, predict_each
from vitrail.errors import ConfigError, DataError
from vitrail.runtime.processes import Processes


def test_predict_takes_paths_bytes_and_pictures_one_or_many(run, pictures):
    file = pictures / "red" / "0.png"
    picture = Image.open(file)
    one = vitrail.predict(run.folder, file)
    assert len(one) == 1
    many = vitrail.predict(run.trained, [str(file), file, file.read_bytes(), picture])
    assert [[label for label, _ in answer] for answer in many] == [[label for label, _ in one[0]]] * 4
    for answer in many:
        assert [score for _, score in answer] == pytest.approx([score for _, score in one[0]], abs=1e-6)
        assert sum(score for _, score in answer) == pytest.approx(1, abs=1e-6)


def test_predict_is_the_softmax_of_the_prepared_image(run, pictures):
    file = pictures / "green" / "2.png"
    with torch.no_grad():
        expected = run.trained.model(run.trained.preparation(file)).softmax(dim=1)[0]
    for label, score in run.predict(file)[0]:
        assert score == pytest.approx(expected[run.trained.labels.index(label)].item(), abs=1e-6)


def test_predict_shows_the_best_first_and_as_many_as_asked(run, pictures):
    (answer,) = run.predict(pictures / "red" / "1.png", top=2)
    assert len(answer) == 2
    assert answer[0][1] >= answer[1][1]


def test_predict_answers_for_none_and_for_more_than_a_batch(run, pictures):
    assert vitrail.predict(run.trained, []) == []
    files = sorted(pictures.rglob("*.png"))
    answers = vitrail.predict(run.trained, files, batch_size=7)
    singly = [vitrail.predict(run.trained, file)[0] for file in files]
    assert [a[0][0] for a in answers] == [a[0][0] for a in singly]


@pytest.mark.parametrize("size", [{"top": 0}, {"top": -1}, {"batch_size": 0}, {"batch_size": -1}])
def test_a_size_that_is_none_is_refused(run, pictures, size):
    with pytest.raises(ConfigError, match="a value above 0"):
        vitrail.predict(run.trained, pictures / "red" / "1.png", **size)


def test_no_more_images_are_read_than_are_answered_where_the_cores_do_both(run, pictures, monkeypatch):
    files, read, pixels = sorted(pictures.rglob("*.png"))[:6], [], Preparation.pixels
    monkeypatch.setattr("vitrail.data.loading.prefetch.pick_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(Preparation, "pixels", lambda self, source: read.append(source) or pixels(self, source))
    answers = predict_each(in_python(run.trained), files, batch_size=2)
    for done in range(3):
        assert len(next(answers)) == 2
        assert sorted(read) == files[: 2 * done + 2]
    assert next(answers, None) is None


def test_an_image_that_cannot_be_read_leaves_the_others_their_answers(run, pictures, tmp_path):
    (tmp_path / "text.jpg").write_text("no picture")
    files = sorted(pictures.rglob("*.png"))[:4]
    found = [
        answer
        for part in predict_each(in_python(run.trained), [*files[:3], tmp_path / "text.jpg", files[3]], batch_size=2)
        for answer in part
    ]
    assert isinstance(found.pop(3), DataError)
    assert [answer.best[0][0] for answer in found] == [vitrail.predict(run.trained, file)[0][0][0] for file in files]


def test_predict_refuses_what_is_no_image(run, tmp_path):
    (tmp_path / "text.jpg").write_text("no picture")
    for wrong in (tmp_path / "text.jpg", tmp_path / "nowhere.jpg", b"no picture"):
        with pytest.raises(DataError):
            vitrail.predict(run.trained, wrong)


def test_engines_and_precisions_that_do_not_go_with_a_model_are_refused(saved, exported):
    with pytest.raises(ConfigError, match="not exported"):
        open_predictor(saved, engine="openvino")
    with pytest.raises(ConfigError, match="fixed precision"):
        open_predictor(exported[0], "bf16")
    with pytest.raises(ConfigError, match="onnxruntime does not read"):
        open_predictor(exported[0], engine="onnxruntime")


def test_several_processes_measure_no_engines_and_take_the_same(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(predicting, "graph_of", lambda model: tmp_path / "model.onnx")
    monkeypatch.setattr(predicting, "quickest", lambda graph, measure: seen.append(measure))
    for count in (1, 2):
        predicting.open_predictor(tmp_path, group=Processes(0, count))
    assert seen == [True, False]
