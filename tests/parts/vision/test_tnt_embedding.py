"""Words in patches: by hand, and none sees another patch but through the tokens of patches."""

import torch
import torch.nn.functional as F

from vitrail import parts

PATCH, STRIDE = (8, 12), 4


def embedding(across: bool) -> parts.WordEmbedding:
    torch.manual_seed(0)
    return parts.WordEmbedding(3, 5, PATCH, STRIDE, across=across)


@torch.no_grad()
def test_words_are_a_convolution_of_each_patch_with_zeros_around_it():
    made, images = embedding(across=False), torch.randn(2, 3, 16, 36)
    words = made(images)
    assert words.shape == (2 * 2 * 3, 2 * 3, 5)
    for place, (image, row, column) in enumerate((b, r, c) for b in range(2) for r in range(2) for c in range(3)):
        patch = images[image, :, row * 8 : row * 8 + 8, column * 12 : column * 12 + 12]
        expected = F.conv2d(patch[None], made.projection.weight, made.projection.bias, stride=4, padding=3)
        torch.testing.assert_close(words[place], expected[0].flatten(1).T)


@torch.no_grad()
def test_the_older_words_are_places_of_a_convolution_of_the_whole_image():
    made, images = embedding(across=True), torch.randn(2, 3, 16, 36)
    whole, words = made.projection(images), made(images)  # (2, 5, 4, 9)
    for place, (image, row, column) in enumerate((b, r, c) for b in range(2) for r in range(2) for c in range(3)):
        expected = whole[image, :, row * 2 : row * 2 + 2, column * 3 : column * 3 + 3]
        torch.testing.assert_close(words[place], expected.flatten(1).T)


@torch.no_grad()
def test_words_become_patches_with_a_norm_over_all_of_them_or_over_each():
    words = torch.randn(6, 4, 5)
    for each in (False, True):
        fold = parts.WordsToPatches(4, 5, 7, bias=not each, each=each)
        normed = F.layer_norm(words, (5,)) if each else F.layer_norm(words.flatten(1), (20,)).unflatten(1, (4, 5))
        joined = torch.cat([normed[:, word] for word in range(4)], dim=1)
        expected = F.linear(joined, fold.projection.weight, fold.projection.bias)
        expected = expected if each else F.layer_norm(expected, (7,))
        torch.testing.assert_close(fold(words, 3), expected.view(2, 3, 7))


def block(dim: int) -> parts.Block:
    return parts.Block(dim, parts.Attention(dim, 2), parts.FeedForward(dim, 2 * dim))


@torch.no_grad()
def test_a_block_adds_what_words_say_to_their_patch_and_to_no_other():
    torch.manual_seed(0)
    nested = parts.NestedBlock(
        8, parts.Attention(8, 2), parts.FeedForward(8, 16), inner=block(6), fold=parts.WordsToPatches(4, 6, 8, bias=False)
    )
    assert [name for name, _ in nested.named_children()] == ["inner", "fold", "attention", "mlp"], "in the order of the pass"
    x, words, grid = torch.randn(2, 1 + 6, 8), torch.randn(2 * 6, 4, 6), (2, 3)
    after, said = nested(x, words, grid=grid)
    torch.testing.assert_close(said, nested.inner(words))
    added = torch.cat([torch.zeros(2, 1, 8), nested.fold(said, 6)], dim=1)
    torch.testing.assert_close(after, nested.mlp(nested.attention(x + added)))
    torch.testing.assert_close(nested(x, words, grid=grid, first=1)[0], after[:, :1])
    changed = words.clone()
    changed[7] += 1.0  # the second patch of the second image
    difference = (nested(x, changed, grid=grid)[1] - said).abs().amax(dim=(1, 2))
    assert difference[7] > 0.01 and not difference[torch.arange(12) != 7].any()
