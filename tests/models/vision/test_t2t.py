"""T2T-ViTs give the logits of their authors' code, at any size of images, and cost what those cost."""

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import vitrail
from vitrail import create_model
from vitrail.deploy.export.artefact import Description
from vitrail.deploy.export.export import export_graph
from vitrail.errors import ConfigError
from vitrail.models.configs.t2t import PRESETS, T2TConfig
from vitrail.models.empty import empty_model
from vitrail.models.registry import model_config
from vitrail.models.vision.t2t import T2T
from vitrail.parts import resize_positions
from vitrail.weights.layouts.relatives.t2t import T2T as LAYOUT
from vitrail.weights.model_folder.folder import TrainedModel
from vitrail.weights.state_dict import recognise
from vitrail.weights.transfer import transfer

GOLDEN = json.loads((Path(__file__).parent / "t2t_golden.json").read_text())["models"]
WITH_TABLES = {
    "T2T-ViT-7": 4_310_222, "T2T-ViT-10": 5_889_230, "T2T-ViT-12": 6_941_902, "T2T-ViT-14": 21_545_550,
    "T2T-ViT-19": 39_177_422, "T2T-ViT-24": 64_105_934, "T2T-ViT_t-14": 21_541_070, "T2T-ViT_t-19": 39_172_942,
    "T2T-ViT_t-24": 64_101_454,
}  # fmt: skip
"""What the authors' code counts: parameters, the table of positions and the random features."""
SMALL = {"dim": 16, "depth": 2, "heads": 2, "mlp_dim": 24, "token_dim": 8, "random_features": 4, "num_classes": 3}


def wave(shape: tuple[int, ...], start: int, scale: float, offset: float = 0.0) -> Tensor:
    """``offset + scale · sin(1.7 n + (n mod 13)²)`` for n from ``start`` on."""
    n = torch.arange(start, start + math.prod(shape), dtype=torch.float64)
    return (offset + scale * torch.sin(n * 1.7 + (n % 13) ** 2)).float().reshape(shape)


def formula(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Weights of the authors' names and shapes, counted through in the order of the alphabet."""
    start, found = 0, {}
    for name in sorted(shapes):
        shape = shapes[name]
        if len(shape) == 1:
            found[name] = wave(shape, start, 0.3, float(name.endswith("weight")))
        elif name in ("pos_embed", "cls_token"):
            found[name] = wave(shape, start, 0.5)
        else:
            found[name] = wave(shape, start, 1 / math.sqrt(shape[-1] / 2))
        start += math.prod(shape)
    return found


def _features(fields: dict) -> dict:
    return {"random_features": fields["token_dim"] // 2} if fields["token_mixer"] == "performer" else {}


def of_formula(**fields) -> tuple[T2T, dict[str, Tensor]]:
    """Our model with the authors' weights of the formula, which are read as any file is; and these weights."""
    config = T2TConfig.read({"depth": 2, "mlp_dim": 2 * fields["dim"], **fields, **_features(fields)})
    theirs = formula({name: tuple(t.shape) for name, t in LAYOUT.write(empty_model(config).state_dict(), config).items()})
    told = {name: fields[name] for name in ("heads", "attention_scale")}
    found = recognise({k: tuple(t.shape) for k, t in theirs.items()}, lambda layout: told, layouts=[LAYOUT], where="formula")
    assert found.config.changed(token_dropout=config.token_dropout) == config
    model = T2T(found.config).eval()
    model.load_state_dict(found.translate(dict(theirs)))
    return model, theirs


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"{row['token_mixer']}-{row['image_size']}")
def test_logits_are_the_authors(row):
    model, _ = of_formula(**{name: value for name, value in row.items() if name != "logits"})
    expected = torch.tensor(row["logits"])
    images = wave((2, row["channels"], row["image_size"], row["image_size"]), 0, 1.0)
    with torch.no_grad():
        difference = (model(images) - expected).abs().max() / expected.abs().max()
    assert difference < 1e-5


@pytest.mark.parametrize("name", PRESETS)
def test_tables_and_random_features_are_kept_and_not_trained(name):
    kept = empty_model(model_config(name)).state_dict()
    assert sum(tensor.numel() for tensor in kept.values()) == WITH_TABLES[name]
    assert model_config(name.lower().replace("-", "_")) == model_config(name)


def test_a_table_for_other_images_is_interpolated_as_the_authors_do_it():
    table = torch.randn(1 + 4 * 4, 6)
    grid = F.interpolate(table[1:].T.reshape(1, 6, 4, 4), size=(7, 7), mode="bicubic")
    expected = torch.cat([table[:1], grid[0].flatten(1).T])
    found = resize_positions(table, (4, 4), (7, 7), prefix=1, interpolation=LAYOUT.interpolation)
    torch.testing.assert_close(found, expected)


def test_a_model_for_larger_images_starts_with_a_table_that_is_interpolated():
    torch.manual_seed(0)
    source, target = (T2T(T2TConfig(image_size=size, **SMALL)).eval() for size in ((64, 64), (96, 64)))
    transfer(source, target, keep_head=True)
    images = torch.randn(2, 3, 96, 64)
    torch.testing.assert_close(target(images), source(images))


def test_a_performer_is_in_single_precision_under_autocast():
    """Its exponentials, of keys as long as these, overflow where the rest is computed."""
    torch.manual_seed(0)
    model, images = T2T(T2TConfig(image_size=64, **SMALL)).eval(), 30 * torch.randn(2, 3, 64, 64)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = model(images)
    torch.testing.assert_close(found.float(), model(images), rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"strides": (4, 2)}, "3 splits in patch_sizes, 2 in strides"),
        ({"strides": (8, 2, 2)}, "leaves gaps between patches"),
        ({"heads": 3}, "not divisible by heads 3"),
        ({"image_size": 2}, "less than one patch"),
    ],
)
def test_parts_that_do_not_fit_are_refused(fields, told):
    with pytest.raises(ConfigError, match=told):
        T2TConfig.read({**SMALL, **fields})


@pytest.mark.soak
def test_a_transformer_between_the_splits_is_exported(tmp_path):
    """A Performer is, by the contract of every architecture."""
    model = T2T(T2TConfig(image_size=32, **SMALL, token_mixer="transformer")).eval()
    trained = TrainedModel(model, ["a", "b", "c"], vitrail.Preparation.standard((32, 32), 3), False)
    written = export_graph(trained, Description.of_model(trained, "tiny", "fp32"), "onnx", tmp_path)
    assert written.verified.largest < 1e-4


def test_a_single_soft_split_has_filters_too():
    model = create_model("T2T-ViT-7", patch_sizes=(7,), strides=(4,), image_size=32, num_classes=10)
    filters = model.filters()
    assert filters.shape == (model.config.dim, 3, 7, 7)
    assert torch.equal(filters.flatten(1), model.embedding.projection.weight)
