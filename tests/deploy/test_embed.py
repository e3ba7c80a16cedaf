"""Vectors of images, files of them, and the nearest."""

import numpy as np
import pytest
import torch

import vitrail
from vitrail.deploy.embed import nearest
from vitrail.deploy.vector_files import write_vectors
from vitrail.errors import ConfigError, DataError, ModelFileError
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model


def test_vectors_are_what_the_head_reads(run, pictures):
    files = sorted(pictures.rglob("*.png"))[:5]
    found = vitrail.embed(run.folder, files, batch_size=2)
    model = open_model(run.folder)
    images = torch.stack([torch.from_numpy(model.preparation.pixels(file)) for file in files])
    expected = model.model.vectors(model.preparation.normalize(images)).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.dtype == np.float32 and vitrail.embed(run.folder, []).shape == (0, 0)


def test_a_batch_of_no_images_is_refused(run, pictures):
    with pytest.raises(ConfigError, match="batch_size is -5"):
        vitrail.embed(run.folder, sorted(pictures.rglob("*.png")), batch_size=-5)


def test_a_model_without_labels_gives_its_vectors(run, pictures):
    (file,) = sorted(pictures.rglob("*.png"))[:1]
    trained = open_model(run.folder)
    bare = TrainedModel(
        vitrail.create_model("ViT-Ti/4", image_size=8, dim=16, depth=1, heads=2, num_classes=0), [], trained.preparation
    )
    assert vitrail.embed(bare, file).shape == (1, 16)


def test_the_nearest_are_scikit_learns(run):
    from sklearn.metrics.pairwise import cosine_similarity

    vectors = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    vectors[3] = 0
    expected = cosine_similarity(vectors[:1], vectors)[0]
    found = nearest(vectors[0], vectors, 20)
    assert [place for place, _ in found] == np.argsort(-expected, kind="stable").tolist()
    np.testing.assert_allclose([cosine for _, cosine in found], np.sort(expected)[::-1], atol=1e-6)


def test_files_of_vectors_are_read_by_others(tmp_path):
    import pyarrow.parquet as parquet

    names, vectors = ["a b.png", "ü.png"], np.arange(6, dtype=np.float32).reshape(2, 3)
    tmp_path /= "new"
    write_vectors(tmp_path / "v.npz", names, vectors)
    with np.load(tmp_path / "v.npz") as found:  # no pickle
        assert found["images"].tolist() == names and np.array_equal(found["vectors"], vectors)
    write_vectors(tmp_path / "v.parquet", names, vectors)
    assert parquet.read_table(tmp_path / "v.parquet").to_pydict() == {"image": names, "vector": vectors.tolist()}
    write_vectors(tmp_path / "v.parquet", ["a", "g\udcff"], vectors)  # as the system gives a name that is not in UTF-8
    assert parquet.read_table(tmp_path / "v.parquet")["image"].to_pylist() == ["a", "g\\udcff"]
    with pytest.raises(ConfigError, match="vectors cannot be written"):
        write_vectors(tmp_path / "v.txt", names, vectors)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["v.npz", "v.parquet"]


def test_an_image_that_cannot_be_read_is_an_error(run, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(DataError):
        vitrail.embed(run.folder, tmp_path / "bad.png")


def test_vectors_that_are_not_finite_are_refused(run, pictures):
    trained = open_model(run.folder)
    next(trained.model.parameters()).data.fill_(float("nan"))
    with pytest.raises(ModelFileError, match="not finite"):
        vitrail.embed(trained, sorted(pictures.rglob("*.png"))[:2])
