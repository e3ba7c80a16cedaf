"""Images from noise: what each depends on, guidance, and the folder of `vitrail sample`."""

import json
import math

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler
from PIL import Image

import vitrail
from tiny_diffusion import model
from vitrail.cli.app import main
from vitrail.errors import ConfigError, ModelFileError
from vitrail.tasks.diffusion.process import Process, linear_betas
from vitrail.tasks.diffusion.sampling import folder
from vitrail.tasks.diffusion.sampling.making import _guided, sample_batches
from vitrail.tasks.diffusion.sampling.options import Sampling
from vitrail.tasks.diffusion.sampling.sheet import sheet


def noise_of(seed):
    return torch.randn((1, 1, 8, 8), generator=torch.Generator().manual_seed(seed))


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


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_sampling_computes_with_a_copy_of_the_model_that_knows_times_exactly(precision):
    trained = model()
    before = {name: tensor.clone() for name, tensor in trained.model.state_dict().items()}
    network, images, labels = trained.for_sampling(precision).model, noise_of(1).expand(2, 1, 8, 8), torch.tensor([1, 1])
    times = torch.tensor([999.0, 1000.0])  # both are 1000 in bf16
    with torch.no_grad():
        expected, made = trained.model(images, times, labels), network(images, times, labels)
    torch.testing.assert_close(made, expected, atol=1e-5 if precision == "fp32" else 0.1, rtol=1e-5)
    assert (made[0] - made[1]).abs().max() > 0
    assert trained.for_sampling(precision).for_sampling().model is not trained.model
    assert all(torch.equal(tensor, before[name]) for name, tensor in trained.model.state_dict().items())


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


@pytest.mark.parametrize("power", [4.0, 0.01])
def test_growing_guidance_is_that_of_the_authors_of_mdt(power):
    """Their code has ``1 + (scale - 1) (1 - cos(π (1 - t/T)^p)) / 2`` with T of 1000."""
    times = []

    class Recorded(torch.nn.Module):
        """Gives 1 with the class and 0 without, so that the guided output is the guidance."""

        config = model().config

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def forward(self, x, t, labels):
            times.append(float(t[0]))
            return (labels < 3).float().view(-1, 1, 1, 1).expand_as(x)

    denoise = _guided(Recorded(), Process(), [1], Sampling(guidance=4.0, power=power))
    outputs = [denoise(torch.zeros(1, 1, 8, 8), time).mean().item() for time in (999, 500, 3, 0)]
    expected = [1 + 3 * (1 - math.cos(math.pi * (1 - t / 1000) ** power)) / 2 for t in times]
    assert outputs == pytest.approx(expected, rel=1e-5)


def test_guidance_of_some_channels_leaves_the_others_as_the_class_has_them():
    trained = model(channels=3)
    plain, whole, some = (
        next(sample_batches(trained, [5], [1], Sampling(steps=1, guidance=scale, guided_channels=channels)))
        for scale, channels in ((1.0, None), (3.0, None), (3.0, 2))
    )
    torch.testing.assert_close(some[:, :2], whole[:, :2])
    torch.testing.assert_close(some[:, 2:], plain[:, 2:])
    assert not torch.allclose(whole[:, 2:], plain[:, 2:])


def test_euler_of_a_flow_is_its_ddim():
    trained = model(objective="flow")
    torch.testing.assert_close(samples(trained, [1, 2], [0, 1], sampler="euler"), samples(trained, [1, 2], [0, 1]))


@pytest.mark.parametrize(("steps", "strength"), [(10, 0.5), (7, 0.5), (10, 1.0)])
def test_a_photograph_begins_as_in_diffusers_image_to_image(steps, strength):
    trained = model()
    photo = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 4)
    start = trained.preparation(photo)
    scheduler = DDIMScheduler(trained_betas=linear_betas(1000), timestep_spacing="linspace")
    scheduler.set_timesteps(steps)
    left = scheduler.timesteps[max(steps - min(int(steps * strength), steps), 0) :]  # as their pipelines have it
    inputs = []
    with trained.model.register_forward_pre_hook(lambda module, given: inputs.append(given)):
        list(sample_batches(trained, [3], [1], Sampling(steps=steps, strength=strength), start=start))
    assert [int(times) for _, times, _ in inputs] == left.tolist()
    torch.testing.assert_close(inputs[0][0], scheduler.add_noise(start, noise_of(3), left[:1]), atol=1e-6, rtol=1e-5)


def test_less_strength_leaves_more_of_the_photograph(tmp_path):
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8))
    photo.save(tmp_path / "photo.png")
    trained = model(objective="flow")
    made = [
        vitrail.sample(trained, start=tmp_path / "photo.png", strength=strength, count=1, steps=20)[0]
        for strength in (0.05, 0.5, 1)
    ]
    apart = [np.abs(np.asarray(picture, float) - np.asarray(photo, float)).mean() for picture in made]
    assert apart[0] < 10 and apart[0] < apart[1] < apart[2]


def test_a_preview_gets_the_images_that_the_model_expects_after_every_step():
    seen = []
    pictures = vitrail.sample(model(), count=3, steps=4, preview=lambda step, steps, images: seen.append((step, steps, images())))
    assert [(step, steps) for step, steps, _ in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert np.array_equal(np.asarray(seen[-1][2]), np.asarray(pictures))  # the last step goes to its own estimate
    assert not np.array_equal(np.asarray(seen[0][2]), np.asarray(pictures))


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
        ({}, {"sampler": "euler"}, "euler is for flows"),
        ({}, {"sampler": "ddmi"}, "unknown sampler 'ddmi'"),
        ({}, {"steps": 0}, "--steps"),
        ({}, {"stesp": 2}, "unknown option 'stesp'"),
        ({}, {"count": 0}, "--count is 0"),
        ({}, {"seed": 2**63 - 1}, "--seed"),
        ({}, {"classes": ["bee", ""]}, "name of a class is empty"),
        ({}, {"classes": ["bee", "ant", "bee"]}, "'bee' is named 2 times"),
        ({}, {"guidance": math.nan}, "--guidance is nan"),
        ({}, {"eta": 1.5}, "--eta is 1.5"),
        ({}, {"eta": 0.5, "sampler": "dpm++"}, r"dpm\+\+ has no eta"),
        ({}, {"interval": (0.8, 0.2)}, "from 0.8 to 0.2"),
        ({}, {"power": -1.0}, "--power is -1"),
        ({}, {"guided_channels": 2}, "--guided-channels is 2"),
        ({}, {"strength": 0.5}, "need each other"),
        ({}, {"start": Image.new("L", (8, 8))}, "need each other"),
        ({}, {"start": Image.new("L", (8, 8)), "strength": 1.1}, "--strength is 1.1"),
        ({}, {"start": Image.new("L", (8, 8)), "strength": 0.2}, "leaves none of 2 steps"),
    ],
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


def test_the_sheet_of_many_samples_shows_every_class(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(folder, "SHOWN", 4)
    monkeypatch.setattr(folder, "sheet", lambda pictures, titles: shown.extend(titles) or sheet(pictures, titles))
    model().save_pretrained(tmp_path / "model")
    assert run(tmp_path / "model", "--out", tmp_path / "samples", "--classes", "bee,ant", "--count", 10, "--steps", 2) == 0
    assert shown == ["bee", "bee", "ant", "ant"]


def test_a_folder_of_samples_says_what_they_started_from(tmp_path, capsys):
    model().save_pretrained(tmp_path / "model")
    Image.new("L", (20, 30), 80).save(tmp_path / "photo.png")
    words = (tmp_path / "model", "--out", tmp_path / "samples", "--count", 1, "--steps", 4, "--start", tmp_path / "photo.png")
    assert run(*words, "--strength", 0.5, "--guidance", 2, "--interval", 0.2, 0.8, "--power", 4, "--guided-channels", 1) == 0
    (row,) = json.loads((tmp_path / "samples" / "samples.json").read_text())
    assert row["start"] == str(tmp_path / "photo.png") and row["strength"] == 0.5 and row["guidance"] == 2
    assert run(*words[:1], "--out", tmp_path / "other", *words[3:]) == 2
    assert "--strength" in capsys.readouterr().err and not (tmp_path / "other.partial").exists()
    assert run(*words[:1], "--out", tmp_path / "other", "--start", tmp_path / "none.png", "--strength", 0.5) == 3


def test_what_a_model_cannot_do_is_refused_before_a_folder_is_made(tmp_path, capsys):
    model().save_pretrained(tmp_path / "model")
    assert run(tmp_path / "model", "--out", tmp_path / "samples", "--sampler", "euler") == 2
    assert "euler is for flows" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [tmp_path / "model"]


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
