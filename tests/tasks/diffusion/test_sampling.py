"""Images from noise: what each depends on, guidance, and the folder of `vitrail sample`."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import vitrail
from vitrail.cli.app import main
from vitrail.errors import ConfigError, ModelFileError
from vitrail.tasks.diffusion.sampling import Sampling, sample_batches
from vitrail.tasks.diffusion.weights import TrainedDiffusion

TINY = {"dim": 32, "depth": 2, "heads": 4, "mlp_dim": 64, "image_size": 8, "channels": 1, "num_classes": 3}
CLASSES = ["ant", "bee", "cat"]


def model(**fields):
    torch.manual_seed(0)
    network = vitrail.create_model("DiT-S/2", **{**TINY, "learned_variance": False, **fields})
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    names = CLASSES[: network.config.num_classes]
    return TrainedDiffusion(network.eval(), names, vitrail.Preparation.standard((8, 8), 1))


def samples(trained, seeds, labels, *, batch_size=64, **options):
    return torch.cat(list(sample_batches(trained, seeds, labels, Sampling(steps=5, **options), batch_size=batch_size)))


@pytest.mark.parametrize("options", [{}, {"guidance": 2.0}, {"sampler": "ddpm"}, {"eta": 1.0, "guidance": 3.0}], ids=str)
def test_an_image_depends_on_its_seed_and_class_alone(options):
    trained, seeds, labels = model(objective="velocity"), list(range(7)), [0, 1, 2, 0, 1, 2, 0]
    whole = samples(trained, seeds, labels, **options)
    torch.testing.assert_close(samples(trained, seeds, labels, batch_size=2, **options), whole, atol=1e-4, rtol=0)
    backwards = samples(trained, seeds[::-1], labels[::-1], **options)
    torch.testing.assert_close(backwards.flip(0), whole, atol=1e-4, rtol=0)
    other = samples(trained, seeds, [(label + 1) % 3 for label in labels], **options)
    assert (other - whole).abs().amax(dim=(1, 2, 3)).min() > 1e-3


def test_guidance_goes_from_no_class_through_the_class():
    """The output is linear in the guidance: one step of 3 is that of 1 and twice the way from no class to the class."""
    trained = model()

    def one(scale):
        return next(sample_batches(trained, [5], [1], Sampling(steps=1, guidance=scale)))

    none, plain, strong = one(0.0), one(1.0), one(3.0)
    torch.testing.assert_close(strong, none + 3 * (plain - none), atol=1e-3, rtol=1e-3)


def test_guidance_may_grow_and_be_limited_to_a_part_of_the_way():
    rising = Sampling(guidance=4.0, power=4.0)
    assert rising.guidance_at(1.0) == 1 and rising.guidance_at(0.0) == pytest.approx(4) and 1 < rising.guidance_at(0.1) < 4
    limited = Sampling(guidance=4.0, interval=(0.2, 0.8))
    assert [limited.guidance_at(share) for share in (0.1, 0.5, 0.9)] == [1, 4, 1]


def test_samples_are_pictures_spread_over_the_classes():
    pictures = vitrail.sample(model(), count=6, steps=2)
    assert [picture.size for picture in pictures] == [(8, 8)] * 6
    two = vitrail.sample(model(), classes=["cat"], count=2, steps=2, seed=4)
    (same,) = vitrail.sample(model(), classes=["cat"], count=1, steps=2, seed=5)
    assert np.abs(np.asarray(two[1], int) - np.asarray(same, int)).max() <= 1


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ({}, {"classes": ["bea"]}, "did you mean 'bee'|unknown class 'bea'"),
        ({"num_classes": 0}, {"classes": ["bee"]}, "knows no classes"),
        ({"num_classes": 0}, {"guidance": 2.0}, "guidance needs"),
        ({"null_class": False}, {"guidance": 2.0}, "guidance needs"),
        ({"objective": "flow"}, {"sampler": "ddpm"}, "no steps of noise"),
        ({}, {"steps": 0}, "--steps"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_before_any_work(fields, options, message):
    with pytest.raises(ConfigError, match=message):
        vitrail.sample(model(**fields), **{"count": 2, "steps": 2, **options})


def run(*words):
    with pytest.raises(SystemExit) as end:
        main(["sample", *map(str, words)])
        raise SystemExit(0)
    return end.value.code


def test_a_folder_of_samples_has_pictures_a_sheet_and_a_list(tmp_path, capsys):
    model().save_pretrained(tmp_path / "model")
    out = tmp_path / "samples"
    assert run(tmp_path / "model", "--out", out, "--classes", "bee,ant", "--count", 4, "--steps", 2, "--seed", 7, "--json") == 0
    rows = json.loads((out / "samples.json").read_text())
    assert json.loads(capsys.readouterr().out) == rows
    assert [(row["class"], row["seed"]) for row in rows] == [("bee", 7), ("bee", 8), ("ant", 9), ("ant", 10)]
    assert sorted(path.name for path in out.iterdir()) == [
        "0000.png",
        "0001.png",
        "0002.png",
        "0003.png",
        "samples.json",
        "samples.png",
    ]
    assert run(tmp_path / "model", "--out", out, "--count", 4) == 2
    assert "exists" in capsys.readouterr().err


def test_interrupted_samples_are_gone_on_with(tmp_path, capsys, monkeypatch):
    model().save_pretrained(tmp_path / "model")
    words = (tmp_path / "model", "--count", 5, "--steps", 2, "--batch-size", 2)
    assert run(*words, "--out", tmp_path / "whole") == 0
    save, saved = Image.Image.save, []

    def stop(picture, file, *others, **options):
        saved.append(file)
        if len(saved) == 4:
            raise KeyboardInterrupt
        save(picture, file, *others, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "save", stop)
        assert run(*words, "--out", tmp_path / "part") == 130
    assert "--resume" in capsys.readouterr().err
    assert run(*words, "--out", tmp_path / "part", "--seed", 1, "--resume") == 2
    assert "seed is 1" in capsys.readouterr().err
    assert run(*words, "--out", tmp_path / "part", "--resume") == 0
    for number in range(5):
        one, other = (np.asarray(Image.open(tmp_path / name / f"000{number}.png"), int) for name in ("whole", "part"))
        assert np.abs(one - other).max() <= 1
    assert run(*words, "--out", tmp_path / "other", "--resume") == 2


def test_a_model_of_another_kind_makes_no_images(tmp_path):
    classifier = vitrail.TrainedModel(
        vitrail.create_model("ViT-Ti/4", image_size=8, dim=16, depth=1, heads=2, mlp_dim=16, num_classes=2),
        ["a", "b"],
        vitrail.Preparation.standard((8, 8)),
    )
    classifier.save_pretrained(tmp_path / "model")
    with pytest.raises(ModelFileError, match="makes no images"):
        vitrail.sample(tmp_path / "model")
