"""MDT: exact counts, DiT without its own pieces, and its own pieces against a computation that is written out."""

import pytest
import torch
from safetensors.torch import save_file

from vitrail.errors import ConfigError
from vitrail.models.cost import totals
from vitrail.models.registry import create_model, model_config
from vitrail.training.loop.optimizer import layers_above
from vitrail.weights.reference import from_pretrained
from written_mdt import WrittenMDT, authors_weights

OF_DIT = {"dim": 32, "depth": 4, "heads": 4, "mlp_dim": 128, "image_size": 8, "num_classes": 5}
TINY = {**OF_DIT, "decoder_depth": 2}
NAMES = ("MDT-S/2", "MDTv2-S/2")
PARAMETERS = {
    "MDT": (35_797_208, 141_488_528, 477_641_312, 699_778_144),
    "MDTv2": (38_159_576, 150_931_856, 507_015_776, 742_263_904),
}
MULTIPLY_ADDS = {
    "MDT": (6_055_673_856, 23_005_102_080, 80_697_622_528, 118_621_421_568),  # DiT's: without a mask there is no side block
    "MDTv2": (6_659_653_632, 25_421_021_184, 88_213_815_296, 129_493_057_536),
}
DEEPER_DECODER = (38_454_872, 152_112_272, 509_113_952, 744_919_264)


@pytest.mark.parametrize("version", PARAMETERS)
def test_the_sizes_have_the_authors_counts(version):
    found = [totals(model_config(f"{version}-{size}/2")) for size in ("S", "B", "L", "XL")]
    assert found == list(zip(PARAMETERS[version], MULTIPLY_ADDS[version], strict=True))


def test_a_decoder_of_six_blocks_joins_six_times():
    configs = [model_config(f"MDTv2-{size}/2", decoder_depth=6) for size in ("S", "B", "L", "XL")]
    assert tuple(totals(config)[0] for config in configs) == DEEPER_DECODER


def randomized(name, **fields):
    torch.manual_seed(0)
    model = create_model(name, **{**TINY, **fields})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
    return model.eval()


def batch(count=3):
    images = torch.randn(count, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    return images, torch.tensor([0.0, 500.0, 999.0])[:count], torch.arange(count)


def masks(*counts, patches=16):
    """A mask for each count of hidden patches."""
    orders = [torch.randperm(patches, generator=torch.Generator().manual_seed(number)) for number in range(len(counts))]
    return torch.stack([order < count for order, count in zip(orders, counts, strict=True)])


@pytest.mark.parametrize("name", NAMES)
def test_a_fresh_model_gives_zeros_with_and_without_a_mask(name):
    model = create_model(name, **TINY)
    assert not model(*batch()).any() and not model(*batch(), masked=masks(5, 5, 5)).any()
    fixed = create_model("DiT-S/2", **OF_DIT).position.embedding
    assert torch.equal(model.position.embedding, fixed) and torch.equal(model.decoder_position.embedding, fixed)


def test_without_masks_biases_and_second_positions_it_is_a_dit_of_the_same_weights():
    model = randomized("MDT-S/2")
    dit = create_model("DiT-S/2", **OF_DIT).eval()
    own = model.state_dict()
    dit.load_state_dict({name: own[name] for name in dit.state_dict()})
    with torch.no_grad():
        model.position.embedding.copy_(dit.position.embedding)
        model.decoder_position.embedding.zero_()
        for block in model.blocks:
            block.relative.table.zero_()
        torch.testing.assert_close(model(*batch()), dit(*batch()), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("counts", [None, (5, 5, 5), (5, 7, 11)], ids=["whole", "masked", "masked unequally"])
@pytest.mark.parametrize("version", PARAMETERS)
def test_it_computes_what_is_written_out(version, counts, tmp_path):
    state = authors_weights(version)
    save_file(state, tmp_path / "weights.safetensors")
    model, (images, times, labels) = from_pretrained(tmp_path / "weights.safetensors").model.double(), batch()
    masked = None if counts is None else masks(*counts)
    with torch.no_grad():
        result = model(images.double(), times, labels, masked=masked)
    assert result.abs().mean() > 0.1
    for number in range(3):
        mask = None if masked is None else masked[number]
        expected = WrittenMDT(state).output(images[number].double(), times[number], labels[number], mask)
        torch.testing.assert_close(result[number], expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(("name", "sees"), [("MDT-S/2", False), ("MDTv2-S/2", True)])
def test_a_masked_patch_is_seen_by_nothing_but_the_second_versions_decoder(name, sees):
    model, (images, times, labels), masked = randomized(name), batch(), masks(5, 5, 5)
    others = images.clone()
    hidden = masked[0].nonzero()[0].item()
    row, column = 2 * (hidden // 4), 2 * (hidden % 4)
    others[0, :, row : row + 2, column : column + 2] += 3
    with torch.no_grad():
        before, after = (model(given, times, labels, masked=masked) for given in (images, others))
    assert torch.equal(before, after) is not sees


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_called_in_their_order_and_parameters_are_registered_in_it(name):
    model, called = randomized(name), []
    for number, layer in enumerate(model.layers()):
        layer.register_forward_hook(lambda module, given, result, number=number: called.append(number))
    model(*batch(), masked=masks(5, 5, 5))
    assert called == [0, 1, 2, 3]
    above = [count for parameter, count in layers_above(model).items() if parameter.requires_grad]
    assert above == sorted(above, reverse=True) and above[0] == 5 and above[-1] == 0


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("MDTv2-S/2", {"decoder_depth": 3}, "an encoder of 1 blocks .* has no two halves"),
        ("MDT-S/2", {"decoder_depth": 4}, "leaves no encoder"),
        ("MDT-S/2", {"mask_ratio": 0.8, "mask_spread": 0.2}, "can mask every patch"),
    ],
)
def test_what_leaves_no_blocks_or_patches_is_refused(name, fields, message):
    with pytest.raises(ConfigError, match=message):
        model_config(name, **{**TINY, **fields})


def test_a_first_version_may_have_an_encoder_of_any_depth():
    assert model_config("MDT-S/2", **{**TINY, "decoder_depth": 3}).decoder_depth == 3
