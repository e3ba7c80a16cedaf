"""The server of a segmenter: masks and areas, large images in turns, and what is refused."""

import base64
import io
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from server_running import Later, client, noise, png, serving_by

import vitrail
from masked import CLASSES, COLORS, drawn, picture_of
from tiny_segmenter import tiny_segmenter
from vitrail.deploy.predictor import in_python
from vitrail.deploy.server.http.limits import Limits
from vitrail.deploy.server.queue import UNFINISHED
from vitrail.errors import ConfigError
from vitrail.tasks.segmentation import service
from vitrail.tasks.segmentation.service import ServedMasks, Settings, open_served

LIMITS = Limits(body=500_000, items=8, waiting=16, batch=4, pixels=1_000_000)


@pytest.fixture(scope="module")
def predictor():
    return in_python(tiny_segmenter(), prepacked=False)


@pytest.fixture(scope="module")
def server(predictor):
    with serving_by(ServedMasks(predictor, LIMITS), "shapes") as running:
        yield running


@pytest.fixture
def small_units(monkeypatch):
    """Images count as one per 32×32 pixels, and those of over four times as many are large."""
    monkeypatch.setattr(service, "ROW_PIXELS", 32 * 32)
    monkeypatch.setattr(service, "MOST_WHOLE", 64 * 64)


def shapes(number, size=(48, 36)):
    return png(picture_of(drawn(number, size)))


def mask_of(answer):
    """The mask of an answer, and its PNG."""
    assert answer.status_code == 200, answer.text
    image = Image.open(io.BytesIO(base64.b64decode(answer.json()["mask"])))
    return np.asarray(image), image


def predicted(predictor, content, **options):
    (answer,) = vitrail.predict_masks(predictor, Image.open(io.BytesIO(content)), **options)
    return answer


def test_the_mask_and_its_areas_are_those_of_predict(server, predictor):
    answer = server.post(shapes(1))
    mask, image = mask_of(answer)
    wanted = predicted(predictor, shapes(1))
    assert np.array_equal(mask, wanted.mask) and len(np.unique(mask)) > 1
    assert image.mode == "P" and image.getpalette()[:9] == [value for color in COLORS for value in color]
    document = answer.json()
    assert (document["width"], document["height"], document["window"]) == (48, 36, None)
    assert [(area["class"], area["pixels"], area["fraction"]) for area in document["areas"]] == [*map(tuple, wanted.areas)]
    for area in document["areas"]:
        assert CLASSES[area["index"]] == area["class"] and COLORS[area["index"]] == tuple(area["color"])
        assert (mask == area["index"]).sum() == area["pixels"]


def test_a_turned_photograph_has_the_mask_of_the_upright_one(server):
    turned, exif = io.BytesIO(), Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    picture_of(drawn(2)).transpose(Image.Transpose.ROTATE_90).save(turned, "PNG", exif=exif)
    assert np.array_equal(mask_of(server.post(turned.getvalue()))[0], mask_of(server.post(shapes(2)))[0])


def test_requests_of_many_sizes_at_once_get_their_own_masks(server, predictor):
    contents = [shapes(number, size) for number, size in enumerate([(48, 36), (32, 32), (33, 70)] * 4)]

    def call(content):
        def post():
            with client(server.url) as other:
                return other.post("/predict", files={"image": ("a.png", content)})

        return Later(post)

    answers = [call(content) for content in contents]
    for content, answer in zip(contents, answers, strict=True):
        assert np.array_equal(mask_of(answer.result)[0], predicted(predictor, content).mask)


def counting(predictor):
    """The same predictor, and a list of the sizes (B, H, W) of all batches."""
    sizes = []

    def logits(pixels):
        sizes.append((len(pixels), *pixels.shape[-2:]))
        return predictor.logits(pixels)

    return replace(predictor, logits=logits), sizes


def rows_of(task, *contents):
    return [row for content in contents for row in task._decoded(content, None).rows]


def test_images_of_equal_size_are_computed_together(predictor):
    own, sizes = counting(predictor)
    task = ServedMasks(own, LIMITS)
    rows = rows_of(task, *(shapes(number, size) for number, size in enumerate([(48, 32), (32, 32), (48, 32), (32, 32)])))
    assert task._segmented(rows) == [None] * 4
    assert sorted(sizes) == [(2, 32, 32), (2, 32, 48)]
    for number, row in enumerate(rows):
        assert np.array_equal(row.mask, predicted(predictor, shapes(number, (48 - 16 * (number % 2), 32))).mask)


def test_a_blank_image_takes_its_time_whenever_it_is_computed(predictor):
    own, sizes = counting(predictor)
    task = ServedMasks(own, LIMITS)
    for count in (1, 4, 4):
        task._segmented([task.blank()] * count)
    assert sizes == [(1, 32, 32), (4, 32, 32), (4, 32, 32)]


@pytest.mark.usefixtures("small_units")
def test_small_images_wait_for_one_row_of_windows_of_one_large_image(predictor):
    own, sizes = counting(predictor)
    task, content = ServedMasks(own, replace(LIMITS, waiting=64)), shapes(3, (200, 150))
    first, second, small = rows_of(task, content, content, shapes(4, (32, 32)))
    assert task._segmented([first, second, small]) == [UNFINISHED, UNFINISHED, None]
    assert small.mask is not None and sizes == [(1, 32, 32)] * 9  # a row of 8 windows
    turns = 1
    while task._segmented([first]) == [UNFINISHED]:
        turns += 1
    assert turns >= 6 and set(sizes) == {(1, 32, 32)} and second.mask is None
    assert np.array_equal(first.mask, predicted(predictor, content, window=32).mask)


@pytest.mark.usefixtures("small_units")
def test_images_that_fill_a_batch_leave_the_others_to_the_next(predictor):
    own, sizes = counting(predictor)
    task = ServedMasks(own, LIMITS)
    rows = rows_of(task, *(shapes(number, (64, 64)) for number in range(3)))  # as many pixels as a batch each
    assert task._segmented(rows) == [None, UNFINISHED, UNFINISHED] and sizes == [(1, 64, 64)]
    assert task._segmented(rows[1:]) == [None, UNFINISHED]


@pytest.mark.usefixtures("small_units")
def test_an_answer_says_in_which_windows_a_large_image_was_segmented(predictor):
    with serving_by(ServedMasks(predictor, replace(LIMITS, waiting=64)), "shapes") as server:
        whole, large = (server.post(shapes(5, size)) for size in [(64, 64), (100, 90)])
        assert (whole.json()["window"], large.json()["window"]) == (None, [32, 32])
        assert np.array_equal(mask_of(large)[0], predicted(predictor, shapes(5, (100, 90)), window=32).mask)
        described = server.client.get("/model").json()
    assert described["large"] == {"pixels": 64 * 64, "window": [32, 32]} and described["window"] is None
    assert described["classes"] == list(CLASSES) and described["colors"] == [list(color) for color in COLORS]


def test_an_image_larger_than_a_batch_is_segmented_as_a_whole_below_the_limit(predictor, monkeypatch):
    monkeypatch.setattr(service, "ROW_PIXELS", 16 * 16)
    own, sizes = counting(predictor)
    task = ServedMasks(own, LIMITS)
    rows = rows_of(task, shapes(6, (64, 64)))
    while task._segmented(rows) == [UNFINISHED]:
        pass
    assert sizes == [(1, 64, 64)]
    assert np.array_equal(rows[0].mask, predicted(predictor, shapes(6, (64, 64))).mask)


@pytest.mark.usefixtures("small_units")
def test_a_large_image_takes_as_many_places_as_usual_images_that_it_counts_as(predictor):
    begun, go = threading.Event(), threading.Event()
    go.set()

    def logits(pixels):
        begun.set()
        assert go.wait(30)
        return predictor.logits(pixels)

    with serving_by(ServedMasks(replace(predictor, logits=logits), LIMITS), "shapes") as server:
        go.clear()
        begun.clear()
        large = server.later(shapes(7, (128, 96)))  # of 12, where 16 may wait
        assert begun.wait(10)
        server.taken(12)
        busy = server.post(shapes(7, (96, 64)))
        go.set()
        assert busy.status_code == 429 and int(busy.headers["retry-after"]) >= 1
        assert large.result.status_code == 200
        refused(server.post(shapes(7, (256, 160))), 413, "as large as 40 of", "queue holds 16")
        assert server.client.get("/model").json()["limits"]["images"] == 1


def test_windows_are_an_option_of_the_server(predictor):
    task = open_served(tiny_segmenter(), Settings.read({"limits": LIMITS, "window": "33x40"}))
    assert task.described()["window"] == task.described()["large"]["window"] == (40, 40)
    with serving_by(task, "shapes") as server:
        answer = server.post(shapes(8, (90, 50)))
    assert answer.json()["window"] == [40, 40]
    assert np.array_equal(mask_of(answer)[0], predicted(predictor, shapes(8, (90, 50)), window=(33, 40)).mask)


def test_a_graph_of_one_size_takes_windows_of_this_size_only(predictor, monkeypatch):
    fixed = replace(predictor, any_size=False)
    monkeypatch.setattr(service, "open_predictor", lambda *arguments, **options: fixed)
    assert open_served("graph", Settings()).described()["window"] == (32, 32)
    with pytest.raises(ConfigError, match="windows of 64×64 do not fit the model") as error:
        open_served("graph", Settings.read({"window": 64}))
    assert error.value.where == "--window"


def test_many_classes_have_masks_of_16_bits(predictor):
    many = replace(predictor, classes=[str(number) for number in range(300)], colors=[(1, 2, 3)] * 300)
    own = replace(many, logits=lambda pixels: torch.eye(300)[299].view(1, 300, 1, 1).expand(len(pixels), 300, 8, 8))
    with serving_by(ServedMasks(own, LIMITS), "many") as server:
        mask, image = mask_of(server.post(shapes(9)))
    assert image.mode == "I;16" and (mask == 299).all()


def test_clients_of_the_open_inference_protocol_get_logits(server, predictor):
    metadata = server.client.get("/v2/models/shapes").json()
    assert metadata["inputs"] == [{"name": "images", "datatype": "UINT8", "shape": [-1, 3, 32, 32]}]
    assert metadata["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 3, -1, -1]}]
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
    sent = {"name": "images", "datatype": "UINT8", "shape": list(pixels.shape), "data": pixels.ravel().tolist()}
    (output,) = server.client.post("/v2/models/shapes/infer", json={"inputs": [sent]}).json()["outputs"]
    wanted = predictor.network(torch.from_numpy(pixels)).numpy()
    assert output["shape"] == list(wanted.shape) and np.allclose(output["data"], wanted.ravel(), atol=1e-4)


def test_openapi_describes_the_answer(server):
    described = server.client.get("/openapi.json").json()
    operation = described["paths"]["/predict"]["post"]
    assert "image/png" in operation["requestBody"]["content"] and "parameters" not in operation
    reference = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].split("/")[-1]
    assert set(described["components"]["schemas"][reference]["properties"]) == {"width", "height", "window", "areas", "mask"}
    assert "class" in described["components"]["schemas"]["ClassArea"]["properties"]


# what it refuses


def refused(answer, status, *words):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert all(word in answer.json()["detail"] for word in words), answer.json()


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "head"])
def test_damaged_images_are_refused_with_a_sentence(server, damage):
    content = noise(1)
    refused(server.post({"cut": content[:500], "empty": b"", "text": b"a picture", "head": content[:24]}[damage]), 422)


def test_an_image_that_is_too_large_is_refused_by_its_head(server):
    refused(server.post(png(Image.new("L", (1001, 1000)))), 422, "1001×1000 pixels", "over the limit")


def test_one_image_goes_at_a_time(server):
    files = [("image", ("a.png", shapes(1))), ("image", ("b.png", shapes(2)))]
    refused(server.client.post("/predict", files=files), 413, "more than 1 image")


@pytest.mark.usefixtures("small_units")
@pytest.mark.parametrize("size", [(48, 36), (90, 80)])
def test_a_model_that_fails_is_a_problem_and_the_next_request_is_answered(predictor, size):
    calls = []

    def logits(pixels):
        calls.append(len(pixels))
        return predictor.logits(pixels) * (float("nan") if len(calls) in failing else 1)

    failing = range(0)
    with serving_by(ServedMasks(replace(predictor, logits=logits), LIMITS), "shapes") as server:
        failing = range(len(calls) + 1, len(calls) + 20)
        refused(server.post(shapes(1, size)), 500, "the model failed")
        failing = range(0)
        assert server.post(shapes(1, size)).status_code == 200


@pytest.mark.usefixtures("small_units")
def test_a_large_image_that_failed_beside_another_starts_again(predictor):
    calls = []

    def logits(pixels):
        calls.append(len(pixels))
        return predictor.logits(pixels) * (float("nan") if len(calls) == 8 else 1)

    task, content = ServedMasks(replace(predictor, logits=logits), LIMITS), shapes(3, (90, 80))
    (large,) = rows_of(task, content)
    with pytest.raises(vitrail.ModelFileError):
        while task._segmented([large])[0] is UNFINISHED:
            pass
    while task._segmented([large])[0] is UNFINISHED:
        pass
    assert np.array_equal(large.mask, predicted(predictor, content, window=32).mask)
