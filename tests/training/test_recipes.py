"""Recipes are settings that work, and recipe, file and flags add up in that order."""

import pytest

from vitrail.config.configuration import nested, resolve
from vitrail.config.recipes import default_recipe, read_recipe, recipe_names, recipe_text
from vitrail.config.yaml_files import read_yaml, to_yaml
from vitrail.errors import ConfigError
from vitrail.models.empty import empty_model
from vitrail.models.registry import build, model_config
from vitrail.training.loop.optimizer import freeze
from vitrail.training.runs import setup as preparing

DATA = {"data": {"source": "somewhere"}}
ANY = {"model": {"name": "ViT-Ti/16"}, **DATA}
"""What a recipe may leave to its user, below the recipe."""


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_complete_but_for_the_data_and_says_what_to_expect(name):
    settings = resolve(ANY, read_recipe(name), {})
    assert len(settings.about) > 20
    assert settings.expected.result
    assert "MEASURE" not in recipe_text(name)
    assert (settings.expected.cost and settings.expected.machine) or "not measured" in settings.expected.result
    assert ("name" in read_recipe(name)["model"]) == (name != "finetune")
    assert settings.training.precision in ("fp32", "auto")  # for machines without bf16
    flags = nested({"optimizer.name": "muon", "schedule.name": "linear", "precision": "bf16"})
    settings = resolve(ANY, read_recipe(name), flags)
    assert (settings.optimizer.name, settings.schedule.name, settings.training.precision) == ("muon", "linear", "bf16")


def test_fine_tuning_without_a_model_says_how_to_give_one():
    with pytest.raises(ConfigError, match="no model given") as error:
        resolve(read_recipe("finetune"), {}, DATA)
    assert "--from" in error.value.hint


@pytest.mark.parametrize("layer", [{"model": {"name": "ViT-S/16"}}, {"model": {"name": "ViT-CIFAR10-lecture"}}])
def test_another_model_takes_the_promise_of_the_recipe_away(layer):
    assert resolve(read_recipe("digits"), {}, {}).expected.result
    assert not resolve(read_recipe("digits"), {}, layer).expected.result


def test_the_lecture_recipe_is_that_of_the_notes():
    settings = resolve(read_recipe("cifar10-lecture"), {}, DATA)
    t, o = settings.training, settings.optimizer
    assert (o.name, o.lr, o.weight_decay, t.batch_size, t.epochs, t.seed) == ("adam", 5e-7, 0, 512, 800, 123)
    assert settings.schedule.name == "constant" and settings.results == "result_dir"
    assert settings.model.config.changed(num_classes=10) == model_config("ViT-CIFAR10-lecture")


def test_the_imagenet_recipe_is_that_of_the_paper():
    settings = resolve(read_recipe("imagenet-s16"), {}, DATA)
    assert settings.model.config == model_config("ViT-S/16", position="sincos-2d-simple", pool="mean", head="mlp")
    augmentation, training = settings.augmentation, settings.training
    drawn = augmentation.policy, augmentation.operations, augmentation.magnitude, augmentation.mixup
    assert drawn == ("randaugment", 2, 10, 0.2)
    assert (training.batch_size, training.epochs, settings.optimizer.lr, settings.optimizer.weight_decay) == (1024, 90, 1e-3, 0.1)
    assert round(1_281_167 / 1024 * settings.schedule.warmup_epochs, -3) == 10_000


def test_the_deit_recipe_is_that_of_the_paper_and_a_teacher_gives_it_the_second_token():
    settings = resolve(read_recipe("deit"), {}, DATA)
    assert settings.model.config == model_config("DeiT-S", stochastic_depth=0.1)
    taught = resolve(read_recipe("deit"), {}, {**DATA, "distillation": {"teacher": "somewhere"}})
    assert taught.model.config == model_config("DeiT-S-distilled", stochastic_depth=0.1)
    assert (taught.distillation.kind, taught.distillation.weight) == ("hard", 0.5)
    a, t, o = settings.augmentation, settings.training, settings.optimizer
    drawn = a.mixup, a.cutmix, a.erasing, a.repeats, a.policy, a.operations, a.magnitude
    assert drawn == (0.8, 1, 0.25, 3, "randaugment", 2, 9)
    assert (t.epochs, t.batch_size, t.label_smoothing, o.weight_decay, o.clip_norm) == (300, 1024, 0.1, 0.05, 0)
    assert o.lr == pytest.approx(5e-4 * t.batch_size / 512) and o.lr * settings.schedule.final == pytest.approx(1e-5)


RELATIVES = {"cvt": "CvT", "mixer": "Mixer", "pvt": "PVTv2", "resnet": "ResNet", "swin": "Swin", "t2t": "T2T", "tnt": "TNT"}


@pytest.mark.parametrize(("name", "architecture"), RELATIVES.items())
def test_a_relative_learns_cifar10_for_the_same_time_in_the_same_manner(name, architecture):
    plain, own = (resolve(read_recipe(recipe), {}, DATA) for recipe in ("cifar10-vit", f"cifar10-{name}"))
    assert own.model.architecture == architecture and own.model.image_size == (32, 32)
    assert own.training.time_limit == plain.training.time_limit == 600
    same = {"lr": 1, "layers": {}}
    assert own.augmentation == plain.augmentation and own.optimizer.changed(**same) == plain.optimizer.changed(**same)
    freeze(build(own.model.config), own.optimizer)  # which refuses parts that the model does not have


def test_the_vit_that_is_taught_differs_in_its_teacher_alone():
    plain, taught = (resolve(read_recipe(f"cifar10-{name}"), {}, DATA) for name in ("vit", "taught"))
    assert taught.distillation != plain.distillation
    assert taught.changed(about="", expected={}, distillation={}) == plain.changed(about="", expected={}, distillation={})


@pytest.mark.parametrize("model", ["ViT-Ti/8", "ResNet-18", "Captioner-Ti/16"])
@pytest.mark.parametrize("name", [name for name in recipe_names() if name not in ("diffusion-digits", "mdt-digits")])
def test_a_recipe_trains_another_model_whose_parts_are_others(name, model):
    """The recipes that are left out have images of 8 pixels, half a patch of these models."""
    flags = nested({"data": "somewhere", "model": model})
    for layers in ((read_recipe(name), {}, flags), ({}, {**read_recipe(name), **DATA}, flags)):
        settings = resolve(*layers)
        freeze(empty_model(settings.model.config), settings.optimizer)


def test_a_model_to_start_from_takes_the_place_of_a_recipes_with_its_parts():
    start = model_config("ViT-Ti/16", num_classes=10)
    settings = resolve(read_recipe("cifar10"), {}, DATA, start)
    freeze(empty_model(settings.model.config), settings.optimizer)
    assert not settings.optimizer.layers and settings.optimizer.name == "muon"


def test_what_a_user_says_of_parts_stays_beside_another_model():
    flags = nested({"model": "ViT-Ti/8", "optimizer.layers": {"head": {"lr": 2}}})
    assert list(resolve(read_recipe("cifar10"), {}, {**flags, **DATA}).optimizer.layers) == ["head"]
    file = {"optimizer": {"layers": {"head": {"lr": 3}}}}
    assert list(resolve(read_recipe("cifar10"), file, nested({"model": "ViT-Ti/8", "data": "x"})).optimizer.layers) == ["head"]


def test_an_empty_mapping_of_parts_puts_away_what_a_recipe_says():
    assert resolve(read_recipe("cifar10"), {}, nested({"data": "x", "optimizer.layers": {}})).optimizer.layers == {}
    assert resolve(read_recipe("cifar10"), {}, nested({"data": "x", "optimizer.layers": {"head": {"lr": 2}}})).optimizer.layers


def test_the_digits_have_a_recipe_of_their_own():
    assert default_recipe("digits") == "digits"
    assert default_recipe("photos") == default_recipe(None) == "scratch"
    assert default_recipe("cifar10:cifar-10-python.tar.gz") == "cifar10"
    assert default_recipe("digits", start="runs/photos") == "finetune"
    assert default_recipe("digits", task="diffusion") == "diffusion-digits"
    assert default_recipe("photos", task="diffusion") == default_recipe("digits", task="diffusion", start="x") == "diffusion"
    settings, _ = preparing.resolve_run(None, None, {"data": {"source": "digits"}})
    assert settings == resolve(read_recipe("digits"), {}, {})
    assert settings.augmentation.horizontal_flip == 0


def test_a_recipe_that_names_its_data_needs_none():
    settings, _ = preparing.resolve_run("digits", None, {})
    assert settings.data.source == "digits"


def test_an_unknown_recipe_is_an_error_that_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'digits'"):
        recipe_text("digit")


def test_recipe_then_file_then_flags():
    recipe = {"about": "x", "model": {"name": "ViT-Ti/16"}, "training": {"epochs": 1, "seed": 1, "batch_size": 1}}
    file = {"training": {"epochs": 2, "seed": 2}}
    flags = {**DATA, "training": {"epochs": 3}}
    training = resolve(recipe, file, flags).training
    assert (training.epochs, training.seed, training.batch_size) == (3, 2, 1)


def test_what_a_recipe_without_a_model_says_of_models_stands_over_the_one_to_start_from():
    start, flags = model_config("ViT-Ti/16", dropout=0.2), {**DATA, "start": "somewhere"}
    for recipe, expected in (
        ({"model": {"patch_dropout": 0.5}}, (192, 0.2, 0.5)),
        ({"model": {"patch_dropout": 0.5, "dropout": 0}}, (192, 0, 0.5)),
        ({"model": {"name": "ViT-S/16", "patch_dropout": 0.5}}, (192, 0.2, 0)),
    ):
        model = resolve(recipe, {}, flags, start).model
        assert (model.dim, model.dropout, model.patch_dropout) == expected
    with pytest.raises(ConfigError, match="no model given"):
        resolve({"model": {"patch_dropout": 0.5}}, {}, DATA)


@pytest.mark.parametrize(
    ("file", "flags", "expected"),
    [
        ({}, {}, (2, 90)),
        ({"training": {"epochs": 5}}, {}, (5, 0)),
        ({}, {"training": {"epochs": 5}}, (5, 0)),
        ({"training": {"epochs": 5, "min_steps": 7}}, {}, (5, 7)),
        ({"training": {"epochs": 5, "min_steps": 7}}, {"training": {"epochs": 6}}, (6, 0)),
        ({"training": {"min_steps": 7}}, {"training": {"seed": 6}}, (2, 7)),
    ],
)
def test_a_number_of_epochs_means_that_number(file, flags, expected):
    recipe = {"model": {"name": "ViT-Ti/16"}, "training": {"epochs": 2, "min_steps": 90}}
    training = resolve(recipe, file, {**DATA, **flags}).training
    assert (training.epochs, training.min_steps) == expected


def test_a_file_stands_alone_unless_a_recipe_is_named_as_well(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text("model:\n  name: ViT-Ti/16\ndata:\n  source: somewhere\n")
    alone, _ = preparing.resolve_run(None, file, {})
    both, _ = preparing.resolve_run("digits", file, {})
    assert (alone.model.dim, alone.training.epochs) == (192, 30)
    assert (both.model.dim, both.training.epochs) == (192, read_recipe("digits")["training"]["epochs"])
    assert both.data.source == "somewhere"


def test_a_models_name_gives_the_fields_that_nothing_else_sets():
    model = resolve({}, {}, {**DATA, **nested({"model": "vit_small_patch16_224", "model.depth": 3})}).model
    assert (model.dim, model.depth, model.heads, model.mlp_dim, model.patch_size) == (384, 3, 6, 1536, (16, 16))


def test_settings_without_a_model_are_an_error():
    with pytest.raises(ConfigError, match="no model given"):
        resolve({}, {}, DATA)


@pytest.mark.parametrize("name", recipe_names())
def test_the_yaml_of_settings_gives_the_same_settings_back(name, tmp_path):
    kind = resolve(ANY, read_recipe(name), DATA).model.architecture
    model = {"model.norm": "pre"} if kind == "Transformer" else {"image_size": [64, 32]}
    model |= {"model.layer_scale": 0.1} if kind == "ViT" else {}
    flags = nested({**model, "optimizer.betas": [0.8, 0.9], "about": "café: 10 % # \n"})
    settings = resolve(ANY, read_recipe(name), {**DATA, **flags})
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(settings), encoding="utf-8")
    assert resolve({}, read_yaml(file), {}) == settings
    assert preparing.resolve_run(None, file, {})[0] == settings


def test_names_short_and_dotted_make_one_tree():
    given = {"data": "d", "epochs": 3, "model.depth": 2, "model.dim": 8, "optimizer": {"lr": 0.1}, "optimizer.name": "sgd"}
    assert nested(given) == {
        "data": {"source": "d"},
        "training": {"epochs": 3},
        "model": {"depth": 2, "dim": 8},
        "optimizer": {"lr": 0.1, "name": "sgd"},
    }
