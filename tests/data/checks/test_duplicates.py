"""Images that are stored several times are found, kept together when data is split, and warned of where they are not."""

import io
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import vitrail
from vitrail.data.checks.duplicates import leak_warning, same_files
from vitrail.data.readers.sources import open_data
from vitrail.data.splits import assign_splits
from vitrail.runtime.observer import Observer

pytestmark = pytest.mark.usefixtures("unreported")

SHARES = {"test": 0.2, "val": 0.1}


def png(seed: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(file, "PNG", compress_level=0)
    return file.getvalue()


def write(folder, contents: dict[str, bytes]) -> None:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def test_the_same_bytes_are_found_wherever_they_are_kept(tmp_path):
    write(tmp_path, {"a.png": png(1), "b.png": png(1), "c.png": png(2), "cut.png": png(2)[:-1]})
    files = [tmp_path / name for name in ("a.png", "c.png", "b.png", "cut.png", "missing.png")]
    assert same_files(files) == [[0, 2]]
    assert same_files([png(1), *files]) == [[0, 1, 3]]
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6), dtype=np.uint8)
    assert same_files([pixels, pixels.T, pixels.copy(), pixels.reshape(6, 4)]) == [[0, 2]]
    pictures = [Image.fromarray(pixels), Image.fromarray(pixels), Image.fromarray(pixels).convert("RGB")]
    assert same_files(pictures) == [[0, 1]]


def test_files_of_different_ends_are_not_read_whole(monkeypatch):
    monkeypatch.setattr("vitrail.data.checks.duplicates._content", lambda source: pytest.fail("read whole"))
    assert same_files([png(seed) for seed in range(20)]) == []


GROUPS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=40)


@given(GROUPS, st.integers(0, 9))
@settings(max_examples=150, deadline=None)
def test_copies_come_into_one_split_and_shares_are_kept_as_far_as_they_go(groups, seed):
    labels = [label for label, size in groups for _ in range(size)]
    ends = np.cumsum([size for _, size in groups]).tolist()
    places = [list(range(end - size, end)) for (_, size), end in zip(groups, ends, strict=True)]
    names = [str(place) for place in range(len(labels))]
    assigned = assign_splits(names, labels, SHARES, seed, [group for group in places if len(group) > 1])
    for group in places:
        assert len({assigned[str(place)] for place in group}) == 1
    for label, size in Counter(labels).items():
        counts = Counter(assigned[name] for name, other in zip(names, labels, strict=True) if other == label)
        assert counts["train"] > 0
        for split, share in SHARES.items():
            assert counts[split] <= share * size + 1
            assert counts[split] > share * size - 1 - 5 or counts["train"] <= 5  # the largest group may not fit


def test_a_picture_under_two_labels_is_learned_from_and_not_tested_on():
    names, labels = [str(place) for place in range(40)], [place % 2 for place in range(40)]
    for seed in range(5):
        assigned = assign_splits(names, labels, SHARES, seed, [[0, 1], [2, 3]])
        assert {assigned[str(place)] for place in range(4)} == {"train"}


def test_training_tells_once_of_images_that_are_in_several_splits(tmp_path):
    places = [f"{split}/{label}/{place}.png" for split in ("train", "val", "test") for label in "ab" for place in range(3)]
    contents = {name: png(100 + seed) for seed, name in enumerate(places)}
    write(tmp_path / "data", contents)
    assert leak_warning(open_data(tmp_path / "data")) is None
    write(tmp_path / "data", {"train/a/x.png": png(7), "test/a/y.png": png(7), "train/b/x.png": png(8), "val/b/z.png": png(8)})
    notes: list[str] = []

    class Listening(Observer):
        def note(self, message: str) -> None:
            notes.append(message)

    run = vitrail.train(
        tmp_path / "data", tmp_path / "run", observer=Listening(), image_size=8, model="ViT-Ti/4", fast_dev_run=True
    )
    (warning,) = [note for note in notes if "several splits" in note]
    assert "2 images" in warning and "train/a/x.png (train) and test/a/y.png (test)" in warning
    assert (run.folder / "train.log").read_text().count("several splits") == 1
