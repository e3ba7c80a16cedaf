"""Captioners: their encoder is a ViT to the bit, and images are looked at once for all of their captions."""

import pytest
import torch
from torch import nn

from vitrail.deploy.export.packed_linear import plain
from vitrail.errors import ConfigError
from vitrail.models.configs.captioner import CaptionerConfig, caption_config
from vitrail.models.registry import build, create_model, model_config
from vitrail.models.text.captioner import Encoder as ViTEncoder
from vitrail.models.text.search import beam_search
from vitrail.models.text.transformer_decoder import Encoded
from vitrail.study.maps.captures import capture
from vitrail.weights.transfer import transfer

SMALL = {"image_size": 16, "patch_size": 4, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 24, "num_classes": 5}
KINDS = {
    "mean": {"pool": "mean"},
    "attention": {"pool": "attention", "pool_heads": 4, "final_norm": "tokens"},
    "distilled": {"distillation_token": True},
    "registers": {"registers": 3},
    "pooled norm": {"pool": "mean", "final_norm": "pooled"},
    "no norm": {"final_norm": "none"},
    "rotary": {"position": "rotary"},
}
NAMES = ("Captioner-Ti/16", "Captioner-LSTM-Ti/16")


def random_vit(**fields) -> nn.Module:
    torch.manual_seed(0)
    model = create_model("ViT-Ti/16", **{**SMALL, **fields}).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def small(name: str = NAMES[0], **fields) -> nn.Module:
    torch.manual_seed(0)
    encoder = {key: value for key, value in SMALL.items() if key != "num_classes"}
    sizes = {"dim": 16, "heads": 2, "mlp_dim": 24} if name == NAMES[0] else {"dim": 16, "hidden_dim": 24}
    return create_model(name, vocabulary=20, encoder=encoder, **sizes, **fields).eval()


@pytest.mark.parametrize("kind", KINDS)
def test_the_encoder_gives_the_tokens_of_the_vit_that_it_starts_from(kind):
    vit, images = random_vit(**KINDS[kind]), torch.randn(2, 3, 16, 16)
    config = caption_config(vit.config).changed(vocabulary=20, dim=16, heads=2, mlp_dim=24, patches_behind="last")
    model = build(config).eval()
    transfer(vit, model.encoder, keep_head=False)
    expected = vit.encode(images)
    if vit.config.final_norm == "pooled":
        expected = model.encoder.norm(expected)
    torch.testing.assert_close(model.encode(images).memory, expected)
    assert config == CaptionerConfig.read(config.model_dump(mode="json"), where="config")


@pytest.mark.parametrize("kind", ["registers", "no norm", "relative", "parallel"])
def test_patches_are_read_behind_the_second_last_block_and_other_tokens_behind_the_last(kind):
    of_kind = {**KINDS, "relative": {"position": "relative-per-block"}, "parallel": {"block": "parallel"}}[kind]
    vit, images = random_vit(depth=3, **of_kind), torch.randn(2, 3, 16, 16)
    config = caption_config(vit.config).changed(vocabulary=20, dim=16, heads=2, mlp_dim=24, patches_behind="second-last")
    model = build(config).eval()
    transfer(vit, model.encoder, keep_head=False)
    whole, prefix = vit.encode(images), vit.config.prefix
    vit.blocks[-1] = Same()
    expected = torch.cat([whole[:, :prefix], vit.encode(images)[:, prefix:]], dim=1)
    torch.testing.assert_close(model.encode(images).memory, expected)


@pytest.mark.parametrize(
    ("fields", "behind"),
    [
        ({}, "second-last"),
        ({"distillation_token": True}, "second-last"),
        ({"pool": "mean", "class_token": True}, "last"),
        ({"pool": "attention", "pool_heads": 4}, "last"),
    ],
    ids=str,
)
def test_of_a_vit_that_is_read_by_its_class_token_patches_are_read_before_its_last_block(fields, behind):
    assert caption_config(random_vit(**fields).config).patches_behind == behind


@pytest.mark.parametrize("prefix", [{}, {"registers": 3}], ids=["class token", "registers"])
@pytest.mark.parametrize("several", [(), (3,)], ids=["one caption", "three captions"])
def test_in_training_some_images_are_seen_by_their_patches_alone(prefix, several):
    model = small(class_token_dropout=0.5, dropout=0.0)
    model.encoder = ViTEncoder(model.config.encoder.changed(**prefix))
    model.config = model.config.changed(encoder=model.encoder.config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    images, captions = torch.randn(40, 3, 16, 16), torch.randint(3, 20, (40, *several, 5))
    whole = model(images, captions)
    memory = model.encode(images).memory[:, model.config.encoder.prefix :]
    alone = model.logits(model.decode(captions, Encoded(memory)))
    model.decoder.train()  # as where the ViT is frozen
    mixed = model(images, captions)
    with_all, without = (
        torch.isclose(mixed, expected, rtol=1e-4, atol=1e-4).flatten(1).all(dim=1) for expected in (whole, alone)
    )
    assert (with_all ^ without).all() and 8 < with_all.sum() < 32
    assert model.of_nothing(2).mask is None


def test_the_class_token_is_always_seen_unless_it_is_told_otherwise_and_in_evaluation():
    images = torch.randn(4, 3, 16, 16)
    assert small().train().encode(images).mask is None
    assert small(class_token_dropout=0.5).encode(images).mask is None
    of_patches = {key: value for key, value in SMALL.items() if key != "num_classes"} | {"class_token": False}
    model = create_model(NAMES[0], vocabulary=20, encoder=of_patches, dim=16, heads=2, mlp_dim=24, class_token_dropout=0.5)
    assert model.train().encode(images).mask is None


@pytest.mark.parametrize("name", NAMES)
def test_the_summary_says_which_patches_the_decoder_looks_at(name):
    assert "second last" not in model_config(name).summary
    assert name != NAMES[0] or "4 heads (1 for the image), pre-norm" in model_config(name, cross_heads=1).summary
    assert "no head, patches of the second last block; " in model_config(name, patches_behind="second-last").summary


class Same(nn.Module):
    """A block that leaves tokens as they are."""

    def forward(self, x, **options):
        return x


@pytest.mark.parametrize("cross_heads", [None, 4])
def test_the_image_is_looked_at_with_as_many_heads_as_told(cross_heads):
    model = small(cross_heads=cross_heads)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    words, tokens = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    for block in model.decoder:
        ours = block.cross.layer
        theirs = nn.MultiheadAttention(16, cross_heads or 2, batch_first=True)
        theirs.in_proj_weight.data = torch.cat([ours.query.weight, ours.key_value.weight])
        theirs.in_proj_bias.data = torch.cat([ours.query.bias, ours.key_value.bias])
        theirs.out_proj.load_state_dict(ours.output.state_dict())
        expected, looks = theirs(words, tokens, tokens, average_attn_weights=False)
        torch.testing.assert_close(ours(words, context=tokens), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours.weights(words, context=tokens), looks, rtol=1e-5, atol=1e-5)
        assert block.attention.layer.heads == 2


def test_the_alignment_is_the_mean_of_all_blocks_and_heads():
    model, images, tokens = small(), torch.randn(2, 3, 16, 16), torch.randint(3, 20, (2, 5))
    with torch.no_grad(), capture(model, "decoder.*.cross.weights") as seen:
        model(images, tokens)
    expected = torch.stack([seen[f"decoder.{number}.cross.weights"].mean(dim=1) for number in range(2)]).mean(dim=0)
    torch.testing.assert_close(model.alignment(images, tokens), expected)
    assert (seen["decoder.0.cross.weights"] - seen["decoder.1.cross.weights"]).abs().max() > 1e-3


def test_a_search_looks_with_the_same_heads():
    model, images = small(cross_heads=1), torch.randn(6, 3, 16, 16)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    for found, wanted in zip(
        beam_search(model.for_writing(plain), images, beams=3, max_length=9),
        beam_search(model, images, beams=3, max_length=9),
        strict=True,
    ):
        assert found[0].tokens == wanted[0].tokens
        assert found[0].score == pytest.approx(wanted[0].score, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("fields", [{"heads": 4}, {"final_norm": "none"}, {"depth": 3}])
def test_a_vit_that_computes_something_else_is_refused(fields):
    model, (name,) = small(), fields
    with pytest.raises(ConfigError, match=f"does not fit: {name} "):
        transfer(random_vit(**fields), model.encoder, keep_head=False)


@pytest.mark.parametrize("name", NAMES)
def test_all_but_the_encoder_is_the_readout(name):
    model = small(name)
    told = {parameter for part in model.readout().values() for parameter in part.parameters()}
    assert told == set(model.parameters()) - set(model.encoder.parameters())
    assert not {*model.readout()} & {"encoder"}


@pytest.mark.parametrize("name", NAMES)
def test_keys_and_values_of_an_image_are_made_once_for_all_of_its_captions(name):
    model, sizes = small(name), []
    layer = model.decoder[0].cross.layer.key_value if name == NAMES[0] else model.narrow
    layer.register_forward_hook(lambda module, inputs, output: sizes.append(tuple(inputs[0].shape)))
    model(torch.randn(2, 3, 16, 16), torch.randint(3, 20, (2, 5, 7)))
    assert sizes == [(2, 17, 16)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder": {"num_classes": 3}}, "leave out num_classes"),
        ({"encoder": {"pool": "class"}}, "leave out pool"),
        ({"encoder": {"patch_dropout": 0.5}}, "leave out patch_dropout"),
        ({"encoder": {"final_norm": "pooled"}}, "no pooled vector"),
        ({"output_bias": True}, "remove output_bias"),
        ({"encoder": 3}, "encoder"),
        ({"dim": 30}, "heads"),
        ({"cross_heads": 3}, "cross_heads"),
        ({"class_token_dropout": 1.0}, "class_token_dropout"),
        ({"patches_behind": "second-last", "encoder": {"class_token": False, "registers": 0}}, "class token"),
        ({"encoder": {"patch_size": 16}, "image_size": 20}, "patch"),
    ],
)
def test_what_has_no_meaning_is_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        model_config(NAMES[0], **fields)
