"""Runs on people: what the data decides, what is refused, and a model that starts from a ViT."""

import json
from contextlib import suppress

import numpy as np
import pytest
import torch

from stick_figures import JOINTS, write_people
from tiny_pose import SIZE, tiny_pose
from vitrail import api
from vitrail.config.configuration import nested
from vitrail.config.settings import RunSettings
from vitrail.data.images.box_preparation import BoxPreparation
from vitrail.data.images.preparation import Preparation
from vitrail.errors import ConfigError, VitrailError
from vitrail.models.registry import create_model
from vitrail.parts import Whitening
from vitrail.runtime.observer import Observer
from vitrail.runtime.processes import ALONE
from vitrail.tasks.pose.data import open_people_for
from vitrail.tasks.pose.people.people import PeopleData
from vitrail.tasks.pose.people.skeleton import Skeleton
from vitrail.tasks.pose.weights import TrainedPose
from vitrail.training.run_data import run_data
from vitrail.training.runs import setup as preparing
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.reference import open_model

people = run_data("pose")
ASK = {
    "task": "pose", "model.name": "ViTPose-Ti-simple", "model.image_size": [32, 24], "model.patch_size": 8,
    "model.patch_padding": 0, "model.dim": 16, "model.depth": 1, "model.heads": 2, "model.mlp_dim": 16,
    "training.batch_size": 8, "training.epochs": 1,
}  # fmt: skip
VIT = {"image_size": 32, "patch_size": 8, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 16}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_people(tmp_path_factory.mktemp("people"), 12, people=2)


def resolved(file, **more) -> RunSettings:
    return preparing.resolve_run(None, None, nested({**ASK, "data": str(file), **more}))[0]


def completed(file, **more) -> tuple[RunSettings, PeopleData]:
    settings = resolved(file, **more)
    source = people.open_source(settings)
    return people.complete(settings, source, None), source


def changed(file, tmp_path, change):
    """The data with something done to what its JSON file holds."""
    values = json.loads(file.read_text())
    change(values)
    for picture in file.parent.glob("*.png"):
        with suppress(FileExistsError):
            (tmp_path / picture.name).hardlink_to(picture)
    found = tmp_path / "keypoints.json"
    found.write_text(json.dumps(values))
    return found


def test_the_data_decides_joints_and_the_skeleton_and_settings_keep_all_of_it(file):
    settings, source = completed(file)
    assert settings.model.num_classes == len(JOINTS) and settings.task.skeleton == source.skeleton
    assert isinstance(settings.preparation, BoxPreparation) and settings.preparation.image_size == (32, 24)
    again = RunSettings.read(json.loads(json.dumps(settings.model_dump(mode="json"))))
    assert again == settings and type(again.preparation) is BoxPreparation


def test_a_run_starts_from_any_vit_in_its_colours(file, tmp_path):
    vit = create_model("ViT-Ti/16", num_classes=3, **VIT)
    colours = {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
    start = TrainedModel(vit.eval(), ["a", "b", "c"], Preparation.standard((32, 32), **colours))
    start.save_pretrained(tmp_path / "vit")
    ask = {"task": "pose", "training.batch_size": 8, "training.epochs": 1, "optimizer.lr": 1e-9, "model.decoder": "simple"}
    run = api.train(file, tmp_path / "run", start=str(tmp_path / "vit"), **ask, **{"model.image_size": [32, 24]})
    trained = open_model(run.folder)
    assert isinstance(trained, TrainedPose) and trained.skeleton.joints == JOINTS
    assert (trained.preparation.mean, trained.preparation.std) == (colours["mean"], colours["std"])
    torch.testing.assert_close(trained.model.blocks[0].state_dict(), vit.blocks[0].state_dict(), atol=1e-5, rtol=0)


def test_a_run_goes_on_from_a_model_of_the_same_joints_with_its_heatmaps(file, tmp_path):
    first = api.train(file, tmp_path / "first", **ASK)
    again = api.train(file, tmp_path / "next", start=str(first.folder), task="pose", epochs=1, **{"optimizer.lr": 1e-9})
    before, after = (open_model(folder).model.decoder.state_dict() for folder in (first.folder, again.folder))
    assert all(torch.equal(tensor.round(decimals=4), after[name].round(decimals=4)) for name, tensor in before.items())


def renamed(file, tmp_path, names):
    def renamed(values):
        values["categories"][0]["keypoints"] = names

    return changed(file, tmp_path, renamed)


def begun(file, start, folder, **more):
    """The settings, the people and the model of a run that begins with a model."""
    start.save_pretrained(folder)
    words = {"task": "pose", "data": str(file), "start": str(folder), **more}
    settings, opened = preparing.resolve_run(None, None, nested(words))
    source = people.open_source(settings, start=opened)
    settings = people.complete(settings, source, opened)
    torch.manual_seed(1)
    return source, people.start_model(settings, opened, source)


CLASSIC = {"decoder": "classic", "decoder_dim": 8}


@pytest.mark.parametrize(
    ("fields", "more", "kept"),
    [(CLASSIC, {}, True), (CLASSIC, {"model.decoder_dim": 4}, False), ({}, {}, False), ({}, {"model.decoder": "classic"}, False)],
)
def test_of_other_joints_all_but_the_last_layer_of_the_decoder_is_kept_where_it_fits(file, tmp_path, fields, more, kept):
    start = tiny_pose(**fields)
    for norm in (module for module in start.model.modules() if isinstance(module, torch.nn.BatchNorm2d)):
        torch.nn.init.normal_(norm.running_mean)
    names = ["muzzle", *JOINTS[1:-1], "tail"]
    source, model = begun(renamed(file, tmp_path, names), start, tmp_path / "start", **more)
    (note,) = source.notes
    assert "than the model to start from (new: muzzle, tail; missing: head, right_hand): its decoder is trained" in note
    assert note.endswith("but for the layers before its last") is kept
    assert not any(parameter.any() for parameter in model.decoder.heatmaps.parameters())
    before, after = (one.decoder.enlarge.state_dict() for one in (start.model, model))
    alike = before.keys() == after.keys() and all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert (alike and bool(after)) is kept
    torch.testing.assert_close(model.blocks.state_dict(), start.model.blocks.state_dict())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"augmentation.crop": "pad"}, "augmentation.crop"),
        ({"augmentation.mixup": 0.2}, "augmentation.mixup"),
        ({"data.balance": "loss"}, "--balance"),
        ({"training.batch_size": "auto"}, "--batch-size auto"),
        ({"model.name": "ViT-Ti/16"}, "gives no heatmaps"),
        ({"task.sigma": 0}, "sigma"),
        ({"task.boxes": "detector"}, "boxes are annotations, joints, image, or those of a FILE.json"),
        ({"task.skeleton": {"joints": ["a", "a"]}}, "two joints"),
    ],
)
def test_settings_that_mean_nothing_for_joints_are_refused(file, more, said):
    with pytest.raises(ConfigError) as refused:
        if "model.name" in more:
            ask = {"task": "pose", "data": str(file), **more}
            settings = preparing.resolve_run(None, None, nested(ask))[0]
            people.complete(settings, people.open_source(settings), None)
        completed(file, **more)
    assert said in str(refused.value) + refused.value.hint


def test_a_person_with_no_joint_in_the_box_is_told_of_by_picture_and_joint(file, tmp_path):
    def far(values):
        values["annotations"][3]["bbox"] = [500, 500, 10, 10]

    data = changed(file, tmp_path, far)
    settings, source = completed(data)
    with pytest.raises(VitrailError, match="'head' and all other") as refused:
        people.check(source, settings, Observer(), ALONE)
    assert "2.png#21" in str(refused.value.where)
    settings = settings.changed(data=settings.data.changed(bad_images="skip"))
    assert list(people.check(source, settings, Observer(), ALONE)) == ["2.png#21"]


def test_people_in_a_damaged_picture_are_left_out_together_where_they_may_be(file, tmp_path):
    data = changed(file, tmp_path, lambda values: None)
    (tmp_path / "5.png").unlink()
    (tmp_path / "5.png").write_bytes(b"no picture")
    settings, source = completed(data, bad_images="skip")
    bad = people.check(source, settings, Observer(), ALONE)
    assert sorted(bad) == ["5.png#50", "5.png#51"]
    assert not {"5.png#50", "5.png#51"} & {person.name for person in people.used(source, bad, settings).split("all")}


def test_empty_boxes_and_nobody_to_validate_on_are_told_of(file, tmp_path):
    def one_picture(values):
        for annotation in values["annotations"]:
            annotation.update(image_id=1, bbox=[10, 10, 0, 0])

    settings, source = completed(changed(file, tmp_path, one_picture))
    assert source.notes == ("boxes that are empty, for which the smallest around the joints is taken: 24",)
    assert "nobody to validate on" in people.warnings(settings, source)[0]


def test_a_run_in_a_detectors_boxes_is_evaluated_in_them_on_its_own_people_and_on_others_in_theirs(file, tmp_path):
    marked = json.loads(file.read_text())["annotations"]
    rows = [{"image_id": row["image_id"], "bbox": [row["bbox"][0] - 1, *row["bbox"][1:]]} for row in marked]
    (tmp_path / "found.json").write_text(json.dumps(rows))
    run = api.train(file, tmp_path / "run", **ASK, **{"task.boxes": str(tmp_path / "found.json")})
    own, _, _ = open_people_for(Skeleton.of(JOINTS), run.folder, None, "all", print)
    assert {tuple(person.target.box) for person in own.split("all")} == {tuple(row["bbox"]) for row in rows}
    (tmp_path / "others").mkdir()
    others, _, _ = open_people_for(Skeleton.of(JOINTS), run.folder, write_people(tmp_path / "others", 2, seed=1), None, print)
    assert len(others.split("all")) == 2


def test_too_many_people_without_a_joint_in_their_box_are_refused_in_words_for_people(file, tmp_path):
    def far(values):
        for annotation in values["annotations"][:5]:
            annotation["bbox"] = [500, 500, 10, 10]

    settings, source = completed(changed(file, tmp_path, far), bad_images="skip")
    what = "5 of 24 people have no joint in their box, and at most 2 are left out; the first: the joint"
    with pytest.raises(VitrailError, match=what) as refused:
        people.check(source, settings, Observer(), ALONE)
    assert refused.value.hint == f"vitrail data check {tmp_path / 'keypoints.json'} --task pose lists them"
    settings = settings.changed(data=settings.data.changed(bad_images="stop"))
    with pytest.raises(VitrailError, match="and 4 more people"):
        people.check(source, settings, Observer(), ALONE)


def test_joints_of_no_side_are_warned_of_where_images_are_mirrored(file, tmp_path):
    def nameless(values):
        values["categories"][0]["keypoints"] = [f"point {i}" for i in range(len(JOINTS))]

    settings, source = completed(changed(file, tmp_path, nameless))
    assert "images are mirrored" in people.warnings(settings, source)[0]
    plain = settings.changed(augmentation=settings.augmentation.changed(horizontal_flip=0))
    assert people.warnings(plain, source) == []


def test_joints_that_are_called_left_or_right_and_are_in_no_pair_are_warned_of_where_images_are_mirrored(file, tmp_path):
    def renamed(values):
        values["categories"][0]["keypoints"] = [name.replace("left_hand", "hand of the left") for name in JOINTS]

    settings, source = completed(changed(file, tmp_path, renamed))
    (warning,) = people.warnings(settings, source)
    assert "are in no pair: 'hand of the left', 'right_hand';" in warning and "task.skeleton.pairs" in warning
    plain = settings.changed(augmentation=settings.augmentation.changed(horizontal_flip=0))
    assert people.warnings(plain, source) == []
    assert people.warnings(*completed(file)) == []


def test_a_picture_in_two_splits_of_the_datas_own_is_warned_of(file, tmp_path):
    values = json.loads(file.read_text())
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        (tmp_path / f"{split}.json").write_text(file.read_text())
    for image in values["images"]:
        name = image["file_name"]
        (tmp_path / "train" / name).write_bytes((file.parent / name).read_bytes())
        (tmp_path / "val" / name).write_bytes((file.parent / name).read_bytes() + b"another")
    assert people.warnings(*completed(tmp_path)) == []
    first, second = (image["file_name"] for image in values["images"][:2])
    for name in (first, second):
        (tmp_path / "val" / name).write_bytes((tmp_path / "train" / name).read_bytes())
    (warning,) = people.warnings(*completed(tmp_path))
    what = f"2 images are in several splits, such as {tmp_path}/train/{first} (train) and {tmp_path}/val/{first} (val)"
    assert what in warning and warning.endswith("vitrail data check --task pose lists all")


def fallen(values):
    """All people on every third picture turned by a quarter around the corner of the picture, and back into it."""
    for annotation in values["annotations"]:
        if annotation["image_id"] % 3 == 0:
            joints = np.array(annotation["keypoints"], float).reshape(-1, 3)
            joints[:, :2] = joints[:, [1, 0]]
            left, top, width, height = annotation["bbox"]
            annotation["keypoints"], annotation["bbox"] = joints.ravel().tolist(), [top, left, height, width]


@pytest.mark.parametrize(
    ("size", "told", "leaning", "expected"),
    [
        ([32, 32], "auto", True, True), ([32, 32], "auto", False, False), ([32, 24], "auto", True, False),
        ([32, 32], "never", True, False), ([32, 32], "always", False, True),
    ],
)  # fmt: skip
def test_people_are_turned_upright_where_many_lean_or_as_it_is_said(file, tmp_path, size, told, leaning, expected):
    data = changed(file, tmp_path, fallen) if leaning else file
    settings, _ = completed(data, **{"task.upright": told, "model.image_size": size, "data.test_share": 0})
    assert settings.preparation.upright is expected


def test_a_model_that_was_trained_on_people_goes_on_as_it_did_unless_it_is_told_otherwise(file):
    settings, source = completed(file, **{"task.upright": "always", "model.image_size": [32, 32]})
    for told, size, expected in (
        ("auto", [32, 32], True), ("never", [32, 32], False), ("auto", [32, 24], False), ("never", [32, 24], False),
    ):  # fmt: skip
        task, model = settings.task.changed(upright=told), settings.model.changed(image_size=size)
        again = settings.changed(task=task, model=model)
        found = people.preparation_of(again, source)
        assert found.upright is expected and list(found.image_size) == list(found.resize_size) == size
    assert any("turned upright" in line for line in people.warnings(settings, source))


def test_joints_are_read_as_it_is_said_or_as_the_model_to_start_from_has_it(file):
    settings, source = completed(file)
    assert settings.preparation.smoothing == 2
    settings, source = completed(file, **{"task.smoothing": 1.0})
    assert settings.preparation.smoothing == 1
    for told, expected in ((None, 1), (0, 0), (0.8, 0.8)):
        again = settings.changed(task=settings.task.changed(smoothing=told))
        assert people.preparation_of(again, source).smoothing == expected


def test_boxes_are_looked_at_in_such_sizes_as_it_is_said_or_as_the_model_to_start_from_has(file):
    settings, source = completed(file)
    assert settings.preparation.smaller_sizes == ()
    settings, source = completed(file, **{"task.smaller_sizes": [0.8]})
    assert settings.preparation.smaller_sizes == (0.8,)
    for told, expected in ((None, (0.8,)), ([], ()), ("0.5,0.9", (0.5, 0.9)), (0.6, (0.6,))):
        again = settings.changed(task=settings.task.changed(smaller_sizes=told))
        assert people.preparation_of(again, source).smaller_sizes == expected
    for wrong in ([1.5], 0.1, "1,0.9", "large"):
        with pytest.raises(ConfigError, match=r"task\.smaller_sizes"):
            completed(file, **{"task.smaller_sizes": wrong})


def test_a_model_of_another_kind_becomes_what_the_recipe_says_and_one_of_joints_stays(file, tmp_path):
    vit = create_model("ViT-Ti/16", num_classes=3, **VIT)
    TrainedModel(vit, ("a", "b", "c"), Preparation.standard((32, 32))).save_pretrained(tmp_path / "vit")
    words = {"data": str(file), "start": str(tmp_path / "vit"), "task": "pose"}
    settings, _ = preparing.resolve_run(None, None, nested(words))
    assert settings.model.image_size == (224, 224) and settings.model.stochastic_depth == 0.1 and settings.model.dim == 16
    settings, _ = preparing.resolve_run(None, None, nested({**words, "model.image_size": [64, 48]}))
    assert settings.model.image_size == (64, 48)
    settings, _ = preparing.resolve_run("cifar10-vit", None, nested(words))  # of another task, whose model is another
    assert settings.model.image_size == (256, 192) and settings.model.dim == 16
    tiny_pose().save_pretrained(tmp_path / "pose")
    settings, _ = preparing.resolve_run(None, None, nested({**words, "start": str(tmp_path / "pose")}))
    assert settings.model.image_size == SIZE and settings.model.stochastic_depth == 0


def test_a_whitened_root_is_fitted_to_pictures_of_people(file):
    size = {"model.image_size": [32, 32], "model.name": "ViTPose-Ti-simple", "model.embedding": "resnet"}
    root = {
        "model.resnet_root": "whitened",
        "model.resnet_block": "pooled",
        "model.resnet_width": 24,
        "model.resnet_depths": [1, 1],
    }
    settings, source = completed(file, **size, **root, **{"model.patch_size": 8})
    torch.manual_seed(0)
    found = people.start_model(settings, None, source)
    torch.manual_seed(0)
    unfitted = create_model("ViTPose-Ti-simple", **settings.model.config.model_dump())
    (fitted,), (other,) = ([m for m in model.modules() if isinstance(m, Whitening)] for model in (found, unfitted))
    assert not torch.equal(fitted.weight, other.weight)
