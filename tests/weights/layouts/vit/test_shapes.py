"""What shapes tell of a model, and what is taken for granted where they do not."""

import pytest
import timm
import torch

from vitrail.weights.layouts.vit.shapes import fields_of

PUBLISHED = [
    "vit_tiny_patch16_224",
    "vit_base_patch16_224",
    "vit_large_patch16_224",
    "vit_huge_patch14_224",
    "vit_so400m_patch14_siglip_224",
    "vit_giant_patch14_224",
    "vit_gigantic_patch14_224",
]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_width_that_was_published_has_the_heads_that_it_was_published_with(name):
    with torch.device("meta"):
        theirs = timm.create_model(name, depth=1)
    dim = theirs.embed_dim
    shapes = {
        "embedding.projection.weight": (dim, 3, 16, 16),
        "blocks.0.attention.norm.weight": (dim,),
        "blocks.0.attention.layer.qkv.weight": (3 * dim, dim),
        "blocks.0.mlp.layer.contract.weight": (dim, 4 * dim),
        "position.embedding": (196, dim),
    }
    assert fields_of(shapes, {})["heads"] == theirs.blocks[0].attn.num_heads
