"""The projection of self-distillation."""

import torch

from vitrail.tasks.dino.head import ProjectionHead


def count(dim: int) -> int:
    return sum(parameter.numel() for parameter in ProjectionHead(dim, 2048, 256, 65536).parameters())


def test_it_has_the_authors_parameters_but_the_lengths_of_rows_which_they_leave_at_one():
    assert [count(dim) + 65536 for dim in (192, 384, 768)] == [21_958_912, 22_352_128, 23_138_560]


def test_outputs_are_cosines_with_the_rows_of_the_last_layer():
    torch.manual_seed(0)
    head, x = ProjectionHead(6, 8, 5, 9), torch.randn(4, 6)
    expected = torch.cosine_similarity(head.layers(x)[:, None], head.last.weight[None], dim=-1)
    torch.testing.assert_close(head(x), expected)
    head.last.weight.data *= 3
    torch.testing.assert_close(head(x), expected)


def test_batch_norm_keeps_apart_the_outputs_of_vectors_that_are_nearly_the_same():
    torch.manual_seed(0)
    x = 1 + 1e-3 * torch.randn(8, 16)
    plain, normed = (ProjectionHead(16, 64, 32, 128, batch_norm=norm)(x) for norm in (False, True))
    assert plain.std(dim=0).max() < 0.01 < 0.05 < normed.std(dim=0).min()
