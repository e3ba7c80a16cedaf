"""``vitrail data check`` and ``vitrail data show`` of masks."""

import json

import numpy as np
import pytest
from PIL import Image

from masked import CLASSES, write_masks
from tiny_segmenter import TINY_SEGMENTER

FLAGS = [
    word
    for name, value in TINY_SEGMENTER.items()
    for word in (f"--{name}", value if isinstance(value, str) else json.dumps(value))
]


@pytest.fixture
def folder(tmp_path):
    return write_masks(tmp_path / "masks")


def test_sound_masks_give_a_summary_and_0(vitrail, folder):
    answer = vitrail("data", "check", folder)
    rows = [line.split() for line in answer.out.splitlines() if line]
    assert answer.code == 0 and rows[-1] == ["no", "faults"] and answer.err == ""
    assert ["images", "6", "with", "masks", "of", "3", "classes"] in rows and [row[0] for row in rows[-5:-1]] == [
        *CLASSES,
        "void",
    ]
    assert json.loads(vitrail("data", "check", folder, "--json").out)["classes"] == [*CLASSES]


def test_faults_have_a_line_of_kind_path_and_what_and_the_code_is_3(vitrail, folder):
    for number in range(4):
        file = folder / f"train/masks/{number:02}.png"
        Image.fromarray(np.full((36, 48), 9, np.uint8)).save(file)
    (folder / "val/masks/00.png").unlink()
    answer = vitrail("data", "check", folder)
    assert answer.code == 3 and "8 faults" in answer.out  # four masks, three classes that never occur, one without a mask
    assert f"no-class  {folder}/train/masks/00.png  values of no class: 9 (1,728 pixels)" in answer.out
    assert "no-mask  val/images/00.png  the image has no mask" in answer.out


@pytest.mark.parametrize("by_file", [True, False])
def test_void_is_chosen_as_in_training(vitrail, folder, tmp_path, by_file):
    (tmp_path / "void.yaml").write_text("task: {name: segment, void: [square]}\n")
    flags = ("--config", tmp_path / "void.yaml") if by_file else ("--task.void", "square")
    answer = vitrail("data", "check", folder, *flags, "--json")
    assert answer.code == 0 and json.loads(answer.out)["classes"] == ["ground", "disc"]


def test_a_sheet_shows_images_with_their_masks(vitrail, folder, tmp_path):
    answer = vitrail("data", "show", folder, "--out", tmp_path / "sheet.png", "--count", "2", *FLAGS)
    assert answer.code == 0, answer.err
    pixels = np.asarray(Image.open(tmp_path / "sheet.png").convert("RGB")).reshape(-1, 3)
    for color in ((40, 90, 40), (220, 60, 60), (60, 90, 220)):  # drawn over an image of the same colour, and in the legend
        assert (np.abs(pixels.astype(int) - color).max(axis=1) <= 2).sum() > 200


@pytest.mark.parametrize(("words", "code", "message"), [
    (("check", "FOLDER", "--task.void", "river"), 2, "no class is called 'river'"),
    (("check", "FOLDER", "--task.dice", "1"), 2, "uses only task.void"),
    (("check", "FOLDER", "--out", "page"), 2, "masks are checked without a model"),
    (("check", "empty", "--task", "segment"), 3, "no masks found"),
    (("check", "nowhere", "--task", "segment"), 3, "no data at 'nowhere'"),
    (("show", "FOLDER", "--augmentation.crop", "resized"), 2, "augmentation.crop"),
    (("show", "FOLDER", "--augmentation.mixup", "0.5"), 2, "augmentation.mixup"),
])  # fmt: skip
def test_what_cannot_be_is_refused(vitrail, folder, monkeypatch, words, code, message):
    monkeypatch.chdir(folder.parent)
    (folder.parent / "empty").mkdir()
    answer = vitrail("data", *(folder if word == "FOLDER" else word for word in words))
    assert answer.code == code and message in answer.err and answer.out == ""
    assert not (folder.parent / "samples.png").exists()
