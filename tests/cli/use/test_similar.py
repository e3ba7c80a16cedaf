"""The commands ``embed`` and ``similar``, and labels in words."""

import json
import shutil

import numpy as np


def test_vectors_of_a_folder_are_written_and_bad_images_told(vitrail, run, pictures, tmp_path):
    folder = shutil.copytree(pictures, tmp_path / "images")
    (folder / "bad.png").write_bytes(b"no image")
    answer = vitrail("embed", run.folder, folder, "--out", tmp_path / "v.npz")
    assert answer.code == 3 and "bad.png" in answer.err and "24 vectors of 16 numbers" in answer.err and answer.out == ""
    with np.load(tmp_path / "v.npz") as found:
        assert found["vectors"].shape == (24, 16) and found["images"][0].endswith(".png")
    again = vitrail("embed", run.folder, folder, "--out", tmp_path / "v.npz")
    assert again.code == 2 and "exists" in again.err


def test_the_nearest_images_are_of_the_same_colour_and_not_the_image_itself(vitrail, run, pictures, tmp_path):
    query = sorted((pictures / "red").iterdir())[0]
    answer = vitrail("similar", run.folder, query, "--among", pictures, "--top", 5, "--json", "--out", tmp_path / "page")
    (found,) = json.loads(answer.out)
    names = [near["image"] for near in found["similar"]]
    assert answer.code == 0 and len(names) == 5 and str(query) not in names
    assert sum("/red/" in name for name in names) >= 4
    cosines = [near["cosine"] for near in found["similar"]]
    assert cosines == sorted(cosines, reverse=True)
    page = (tmp_path / "page/report.html").read_text()
    assert page.count("<img") == 6 and query.name in page
    assert all("/".join(name.split("/")[-2:]) in page for name in names)  # the folder tells files of two classes apart
    shown = vitrail("similar", run.folder, query, "--among", pictures, "--top", 2)
    assert shown.out.splitlines()[0] == f"{query}:" and len(shown.out.splitlines()) == 3


def test_an_image_under_several_names_takes_no_place_of_the_nearest(vitrail, run, pictures, tmp_path):
    folder = shutil.copytree(pictures / "red", tmp_path / "images")
    query = sorted(folder.iterdir())[0]
    for number in range(3):
        (folder / f"again{number}.png").symlink_to(query)
    answer = vitrail("similar", run.folder, query, "--among", folder, "--top", 4, "--json")
    (found,) = json.loads(answer.out)
    assert len(found["similar"]) == 4 and not any("again" in near["image"] for near in found["similar"])


def test_labels_in_words_may_stand_in_a_file(vitrail, run, pictures, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "vitrail.tasks.classification.zero_shot.zero_shot", lambda model, labels, **_: seen.append(labels) or 1 / 0
    )
    (tmp_path / "labels.txt").write_text("a cat, asleep\n\na dog\n")
    for given in (tmp_path / "labels.txt", "a cat,a dog"):
        vitrail("predict", run.folder, pictures, "--labels", given)
    assert seen == [["a cat, asleep", "a dog"], ["a cat", "a dog"]]


def test_labels_in_words_need_a_clip(vitrail, run, pictures):
    answer = vitrail("predict", run.folder, pictures, "--labels", "a cat, a dog")
    assert answer.code == 4 and "no text tower" in answer.err
    answer = vitrail("predict", run.folder, pictures, "--template", "a {}")
    assert answer.code == 2 and "--labels" in answer.err
