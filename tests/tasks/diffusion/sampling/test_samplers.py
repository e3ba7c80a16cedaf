"""Samplers beside diffusers', and what they must hold for a Gaussian, whose best model is known."""

import itertools
import math

import pytest
import torch
from diffusers import DDIMScheduler, DDPMScheduler, DPMSolverMultistepScheduler, FlowMatchEulerDiscreteScheduler

from vitrail.tasks.diffusion.process import Process, cosine_betas, linear_betas
from vitrail.tasks.diffusion.sampling.samplers import solve

KIND = {"noise": "epsilon", "velocity": "v_prediction"}
SHAPE = (2, 3, 4, 4)


def network(x, time):
    """Some smooth function of image and time."""
    return torch.sin(3 * x + time / 300) * 0.7 + 0.1 * x


def noise():
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def theirs(scheduler, steps, x, **options):
    scheduler.set_timesteps(steps)
    for time in scheduler.timesteps:
        x = scheduler.step(network(x, float(time)), time, x, **options).prev_sample
    return x


def options_of(process):
    betas = linear_betas(process.steps) if process.betas == "linear" else cosine_betas(process.steps)
    return {"trained_betas": betas, "num_train_timesteps": process.steps, "prediction_type": KIND[process.objective]}


every_process = pytest.mark.parametrize(
    "process", [Process(objective, betas) for objective in KIND for betas in ("linear", "cosine")], ids=str
)


@every_process
def test_ddim_is_that_of_diffusers(process):
    scheduler = DDIMScheduler(**options_of(process), clip_sample=False, set_alpha_to_one=True)
    expected = theirs(scheduler, 50, noise())
    actual = solve(process, network, noise(), [float(t) for t in scheduler.timesteps])
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("process", [Process("noise", "linear"), Process("velocity", "linear")], ids=str)
def test_dpm_solver_is_that_of_diffusers(process):
    scheduler = DPMSolverMultistepScheduler(**options_of(process), final_sigmas_type="zero")
    expected = theirs(scheduler, 20, noise())
    actual = solve(process, network, noise(), [float(t) for t in scheduler.timesteps], sampler="dpm++")
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=3e-5)


def test_a_flow_by_euler_is_that_of_diffusers():
    scheduler = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=1.0)
    scheduler.set_timesteps(10, sigmas=[1 - i / 10 for i in range(10)])
    x = noise()
    for time in scheduler.timesteps:
        x = scheduler.step(network(x, float(time)), time, x).prev_sample
    process = Process("flow")
    actual = solve(process, lambda x, t: network(x, 1000 * t), noise(), process.spaced(10))
    torch.testing.assert_close(actual, x.to(actual.dtype), atol=1e-5, rtol=1e-5)


def with_variance(x, time):
    """The output of a network that learns its variance, too."""
    return torch.cat([network(x, time), torch.cos(2 * x + time / 500)], dim=1)


@pytest.mark.parametrize(("kind", "model"), [("fixed_small", network), ("learned_range", with_variance)])
def test_ddpm_has_the_mean_and_variance_of_diffusers(kind, model):
    process = Process()
    scheduler = DDPMScheduler(**options_of(process), clip_sample=False, variance_type=kind)
    scheduler.set_timesteps(50)
    x = noise()
    for time in scheduler.timesteps[:3]:
        expected = scheduler.step(model(x, float(time)), time, x, generator=torch.Generator().manual_seed(2)).prev_sample
        z = torch.randn(SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        inputs = []

        def recorded(x, t, inputs=inputs):
            inputs.append(x)
            return model(x, t)

        solve(process, recorded, x, [float(time), float(time) - 20], sampler="ddpm", draw=lambda z=z: z)
        torch.testing.assert_close(inputs[1], expected, atol=1e-6, rtol=1e-6)
        x = expected


@pytest.mark.parametrize(
    ("objective", "sampler"),
    [
        pair
        for pair in itertools.product(("noise", "velocity", "flow"), ("ddpm", "ddim", "dpm++", "heun"))
        if pair != ("flow", "ddpm")
    ],
)
def test_samples_of_a_gaussian_with_its_best_model_have_its_mean_and_deviation(objective, sampler):
    """Of data from N(2, 0.5²) the best estimate of x_0 at x_t is known, and so is what a sampler has to end with."""
    process = Process(objective)

    def best(x, time):
        a, s = process.scales(time)
        gain = a * 0.25 / (a * a * 0.25 + s * s)
        clean = 2 + gain * (x - 2 * a)
        epsilon = (x - a * clean) / s
        return {"noise": epsilon, "velocity": a * epsilon - s * clean, "flow": epsilon - clean}[objective]

    generator = torch.Generator().manual_seed(3)
    start = torch.randn(4000, 1, 1, 1, generator=generator, dtype=torch.float64)

    def draw():
        return torch.randn(start.shape, generator=generator, dtype=torch.float64)

    result = solve(process, best, start, process.spaced(200), sampler=sampler, draw=draw)
    assert result.mean().item() == pytest.approx(2, abs=0.03)
    assert result.std().item() == pytest.approx(0.5, abs=0.03)


def test_an_output_means_the_image_and_the_noise_that_it_was_made_of():
    images, drawn = noise(), torch.randn(SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    for objective, time in (("noise", 400), ("velocity", 400), ("flow", 0.4)):
        process = Process(objective)
        times = torch.full((2,), time)
        x = process.noisy(images, drawn, times)
        clean, epsilon = process.clean_and_noise(x, process.target(images, drawn, times), time)
        torch.testing.assert_close(clean, images, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(epsilon, drawn, atol=1e-5, rtol=1e-5)


def test_respaced_times_keep_their_numbers_and_both_ends():
    assert Process().spaced(5) == [999, 749, 500, 250, 0]
    assert Process("flow").spaced(4) == [1, 0.75, 0.5, 0.25]
    assert Process(steps=3).spaced(10) == [2, 1, 0]


def test_weights_by_signal_to_noise_are_the_clipped_error_of_the_clean_image():
    """γ = ∞ weighs the error of x_0 by SNR, which is the plain error of ε."""
    times = torch.tensor([10, 500, 990])
    assert torch.allclose(Process().weights(times, math.inf), torch.ones(3))
    bar = torch.from_numpy(Process().alpha_bar)[times]
    snr = bar / (1 - bar)
    for process, error in ((Process(), snr), (Process("velocity"), snr + 1)):
        torch.testing.assert_close(process.weights(times, 5.0).double(), snr.clamp(max=5) / error, atol=1e-5, rtol=1e-5)
