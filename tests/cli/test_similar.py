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


def test_labels_in_words_need_a_clip(vitrail, run, pictures):
    answer = vitrail("predict", run.folder, pictures, "--labels", "a cat, a dog")
    assert answer.code == 4 and "no model of texts" in answer.err
    answer = vitrail("predict", run.folder, pictures, "--template", "a {}")
    assert answer.code == 2 and "--labels" in answer.err
