"""A model that answers for some of its classes alone gives their logits."""

import pytest
import torch

from vitrail.errors import ConfigError
from vitrail.weights.model_folder.classes import read_classes, with_classes
from vitrail.weights.model_folder.imagenet import CLASSES_22K, class_names, numbers_in_22k
from vitrail.weights.reference import from_pretrained


@pytest.mark.parametrize("fields", [{}, {"distillation_token": True}, {"head": "mlp"}])
def test_the_logits_are_those_of_the_classes_in_their_order(trained, fields):
    model = trained(**fields)
    fewer, images = with_classes(model, [2, 0]), torch.randn(2, 1, 16, 16)
    assert torch.equal(fewer(images), model(images)[:, [2, 0]])
    assert fewer.labels == [model.labels[2], model.labels[0]] and fewer.config.num_classes == 2


def test_thresholds_go_with_their_classes(trained):
    model = trained()
    model.thresholds, model.multi_label = (0.1, 0.2, 0.3), True
    assert with_classes(model, [1, 2]).thresholds == (0.2, 0.3)


def test_a_norm_over_all_classes_cannot_be_divided(trained):
    with pytest.raises(ConfigError, match="a module after its last linear layer"):
        with_classes(trained(head="lecture"), [0])


def test_classes_are_told_by_number_or_label(tmp_path):
    file = tmp_path / "wanted.txt"
    file.write_text("dog\n\n 0\n", encoding="utf-8")
    assert read_classes(file, ["cat", "dog", "10"]) == [1, 0]
    file.write_text("dog\n", encoding="utf-8-sig")  # as Windows editors write it
    assert read_classes(file, ["cat", "dog", "10"]) == [1]
    for text, what in (("bird", "'bird' is no class"), ("3", "'3' is no class"), ("dog\n1", "one class twice"), ("", "no class")):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=what):
            read_classes(file, ["cat", "dog", "10"])
    with pytest.raises(ConfigError, match="cannot read"):
        read_classes(tmp_path / "none.txt", ["a"])


def test_imagenet_1k_is_found_in_22k_where_timm_finds_it(trained):
    from timm.data import ImageNetInfo

    small, large = ImageNetInfo("imagenet-1k"), ImageNetInfo("imagenet-22k")
    numbers = numbers_in_22k()
    assert len(set(numbers)) == 1000 and max(numbers) < CLASSES_22K
    theirs = {name: number for number, name in enumerate(large.label_names())}
    offsets = [number - theirs[name] for name, number in zip(small.label_names(), numbers, strict=True) if name in theirs]
    assert len(offsets) == 999 and offsets == sorted(offsets) and set(offsets) == {0, 1, 2}, (
        "the two lists differ in a few classes"
    )


def test_imagenet_1k_gives_the_names_and_is_refused_elsewhere(trained):
    model = trained(num_classes=CLASSES_22K, dim=4, mlp_dim=4, depth=1)
    model.labels = [str(number) for number in range(CLASSES_22K)]
    fewer = with_classes(model, read_classes("imagenet-1k", model.labels))
    assert fewer.labels[207] == class_names()[207] and len(set(fewer.labels)) == 1000
    with pytest.raises(ConfigError, match="this one has 3"):
        read_classes("imagenet-1k", ["a", "b", "c"])


def test_the_command_keeps_the_classes_of_a_file(trained, tmp_path, vitrail):
    trained().save_pretrained(tmp_path / "all")
    (tmp_path / "wanted.txt").write_text("dog\n", encoding="utf-8")
    done = vitrail("convert", tmp_path / "all", tmp_path / "one", "--classes", tmp_path / "wanted.txt")
    assert done.code == 0 and from_pretrained(tmp_path / "one").labels == ["dog"]
