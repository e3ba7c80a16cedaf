"""DiT: exact counts, a fresh model's zeros, and diffusers' model with the same weights."""

import pytest
import torch
from diffusers import DiTTransformer2DModel

from vitrail.errors import ConfigError
from vitrail.models.configs.dit import DiTConfig
from vitrail.models.cost import totals
from vitrail.models.registry import create_model, model_config

TINY = {"dim": 32, "depth": 2, "heads": 4, "mlp_dim": 128, "image_size": 8, "num_classes": 5}
PARAMETERS = {
    2: (32_865_056, 130_315_808, 457_840_672, 674_834_720),
    4: (32_920_448, 130_426_496, 457_988_224, 675_000_704),
    8: (33_142_016, 130_869_248, 458_578_432, 675_664_640),
}
MULTIPLY_ADDS = {
    2: (6_055_673_856, 23_005_102_080, 80_697_622_528, 118_621_421_568),
    4: (1_412_579_328, 5_565_186_048, 19_695_665_152, 29_043_671_040),
    8: (357_974_016, 1_417_543_680, 5_011_406_848, 7_392_411_648),
}


@pytest.mark.parametrize("patch", [2, 4, 8])
def test_the_sizes_have_the_authors_counts(patch):
    found = [totals(model_config(f"DiT-{size}/{patch}")) for size in ("S", "B", "L", "XL")]
    assert found == list(zip(PARAMETERS[patch], MULTIPLY_ADDS[patch], strict=True))


def batch(model, count=3):
    c = model.config
    images = torch.randn(count, c.channels, *c.image_size)
    return images, torch.tensor([0.0, 500.0, 999.0])[:count], torch.arange(count)


def randomized(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.1)
    return model.eval()


def test_a_fresh_model_gives_zeros():
    model = create_model("DiT-S/2", **TINY)
    assert not model(*batch(model)).any()


@pytest.mark.parametrize("shift", [0, 1])
def test_diffusers_model_gives_the_same_with_the_same_weights(shift):
    model = randomized(create_model("DiT-S/2", **TINY, time_shift=shift))
    other = DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=8, in_channels=4, out_channels=8, num_layers=2, sample_size=8, patch_size=2,
        num_embeds_ada_norm=5, norm_eps=1e-6,
    ).eval()  # fmt: skip
    other.load_state_dict({**other.state_dict(), **in_diffusers(model)})
    for block in other.transformer_blocks:
        block.norm1.emb.time_proj.downscale_freq_shift = shift
    images, times, labels = batch(model)
    with torch.no_grad():
        expected = other(images, timestep=times, class_labels=labels).sample
        torch.testing.assert_close(model(images, times, labels), expected, atol=1e-5, rtol=1e-5)


def in_diffusers(model):
    """The weights by their names in diffusers, which copies the embeddings of time and class into every block."""
    ours, theirs = model.state_dict(), {}
    for end in ("weight", "bias"):
        theirs[f"pos_embed.proj.{end}"] = ours[f"embedding.projection.{end}"]
        theirs[f"proj_out_1.{end}"] = ours[f"head.modulation.{end}"]
        theirs[f"proj_out_2.{end}"] = ours[f"head.linear.{end}"]
        for number in range(model.config.depth):
            block, other = f"blocks.{number}", f"transformer_blocks.{number}"
            q, k, v = ours[f"{block}.attention.layer.qkv.{end}"].chunk(3)
            theirs |= {f"{other}.attn1.to_{name}.{end}": part for name, part in (("q", q), ("k", k), ("v", v))}
            theirs[f"{other}.attn1.to_out.0.{end}"] = ours[f"{block}.attention.layer.output.{end}"]
            theirs[f"{other}.ff.net.0.proj.{end}"] = ours[f"{block}.mlp.layer.expand.{end}"]
            theirs[f"{other}.ff.net.2.{end}"] = ours[f"{block}.mlp.layer.contract.{end}"]
            modulations = [ours[f"{block}.{branch}.modulation.{end}"] for branch in ("attention", "mlp")]
            theirs[f"{other}.norm1.linear.{end}"] = torch.cat(modulations)
            for own, name in (("expand", "linear_1"), ("contract", "linear_2")):
                theirs[f"{other}.norm1.emb.timestep_embedder.{name}.{end}"] = ours[f"time.{own}.{end}"]
            theirs[f"{other}.norm1.emb.class_embedder.embedding_table.weight"] = ours["label.weight"]
    return theirs


def test_the_class_beyond_the_last_is_none_and_models_without_classes_take_no_labels():
    model = create_model("DiT-S/2", **TINY)
    model(*batch(model)[:2], torch.full((3,), 5))
    free = create_model("DiT-S/2", **{**TINY, "num_classes": 0})
    assert free.label is None and "labels" not in free.inputs()
    with pytest.raises(ConfigError, match="no classes"):
        free(*batch(free))
    with pytest.raises(ConfigError, match="was given none"):
        model(*batch(model)[:2])


def test_images_of_another_size_are_refused():
    model = create_model("DiT-S/2", **TINY)
    with pytest.raises(ConfigError, match="the model takes"):
        model(torch.zeros(1, 4, 16, 16), torch.zeros(1), torch.zeros(1, dtype=torch.long))


def test_the_defaults_are_those_of_the_smallest_size():
    assert DiTConfig(num_classes=1000) == model_config("DiT-S/2")


def test_rows_and_columns_of_patches_are_counted_apart():
    model = randomized(create_model("DiT-S/2", **{**TINY, "image_size": (8, 24), "patch_size": (4, 2)}))
    assert model.config.grid == (2, 12)
    assert model(*batch(model)).shape == (3, 8, 8, 24)
