"""The losses of self-distillation are those of the papers."""

import math

import torch

from vitrail.tasks.dino.loss import distillation_loss, koleo_loss, patch_loss, teacher_probabilities


def test_the_loss_is_the_mean_over_pairs_of_different_views():
    torch.manual_seed(0)
    student, teacher, centre = torch.randn(3, 5, 7), torch.randn(3, 2, 7), torch.randn(7)
    taught = teacher_probabilities(teacher, centre, 0.04)
    found = distillation_loss(student, taught, 0.1)
    for image in range(3):
        terms = []
        for t in range(2):
            p = torch.softmax((teacher[image, t] - centre) / 0.04, dim=0)
            for s in range(5):
                if s != t:
                    log_q = torch.log_softmax(student[image, s] / 0.1, dim=0)
                    terms.append(-(p * log_q).sum())
        assert len(terms) == 2 * 4
        torch.testing.assert_close(found[image], torch.stack(terms).mean())


def test_outputs_that_say_nothing_lose_the_logarithm_of_their_number():
    taught = teacher_probabilities(torch.zeros(2, 2, 16), torch.zeros(16), 0.04)
    torch.testing.assert_close(distillation_loss(torch.zeros(2, 4, 16), taught, 0.1), torch.full((2,), math.log(16)))


def test_no_gradient_reaches_what_is_taught_and_one_reaches_every_view():
    student = torch.randn(2, 4, 8, requires_grad=True)
    distillation_loss(student, torch.full((2, 2, 8), 1 / 8), 0.1).sum().backward()
    assert (student.grad.abs().sum(dim=-1) > 0).all()


def test_the_loss_on_patches_is_the_mean_over_the_masked_ones_of_each_image():
    torch.manual_seed(0)
    masked = torch.tensor([[True, False, True, True], [False, False, False, False], [False, True, False, False]])
    student, taught = torch.randn(3, 4, 7), torch.randn(3, 4, 7).softmax(dim=-1)
    images = []
    for image in range(3):
        terms = [-(taught[image, i] * (student[image, i] / 0.1).log_softmax(0)).sum() for i in range(4) if masked[image, i]]
        images.append(torch.stack(terms).mean() if terms else torch.tensor(0.0))
    torch.testing.assert_close(patch_loss(student[masked], taught[masked], masked, 0.1), torch.stack(images).mean())
    assert patch_loss(student[:0, 0], taught[:0, 0], torch.zeros(3, 4, dtype=torch.bool), 0.1) == 0


def test_koleo_is_the_mean_logarithm_of_the_distance_to_the_nearest_other():
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])  # of length one: right angles and opposite ones
    torch.testing.assert_close(koleo_loss(x), -torch.tensor(math.sqrt(2)).log(), atol=1e-6, rtol=0)
    assert koleo_loss(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])) > koleo_loss(x)
