"""The authors' ViT-Adapter: every key and shape of their checkpoints, and the logits of their formulas from the same weights."""

import math

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from vitrail.cli.app import main
from vitrail.errors import ModelFileError
from vitrail.models.configs.segmenter import segmenter_config
from vitrail.models.registry import build, model_config
from vitrail.weights.layouts import LAYOUTS
from vitrail.weights.reference import from_pretrained
from vitrail.weights.state_dict import recognise
from vitrail.weights.transfer import transfer

Shapes = dict[str, tuple[int, ...]]
SMALL = {"dim": 64, "depth": 4, "heads": 2, "ratio": 0.5, "side": 3, "classes": 3, "width": 16, "second": 8}
PUBLISHED = {
    "Ti": ({"dim": 192, "heads": 6}, 36_062_428),
    "S": ({"dim": 384, "heads": 6}, 57_614_908),
    "B": ({"dim": 768, "heads": 12, "ratio": 0.5}, 133_636_876),
    "L": ({"dim": 1024, "heads": 16, "ratio": 0.5, "depth": 24, "side": 24}, 363_802_092),
}
"""The authors' sizes, with the heads of the deformable attention, and the number of parameters."""


def _layers(prefix: str, rows: dict[str, tuple[int, ...]]) -> Shapes:
    """Weights of these shapes, with biases."""
    return {f"{prefix}{name}.{part}": shape if part == "weight" else shape[:1] for name, shape in rows.items()
            for part in ("weight", "bias")}  # fmt: skip


def _batch_norm(name: str, dim: int) -> Shapes:
    own = {f"{name}.{part}": (dim,) for part in ("weight", "bias", "running_mean", "running_var")}
    return {**own, f"{name}.num_batches_tracked": ()}


def _block(name: str, shape: tuple[int, ...]) -> Shapes:
    """A convolution of MMSegmentation with its norm."""
    return {f"{name}.conv.weight": shape, **_batch_norm(f"{name}.bn", shape[0])}


def _deformable(name: str, dim: int, heads: int, ratio: float, levels: int) -> Shapes:
    width = int(dim * ratio)
    rows = {"sampling_offsets": (heads * levels * 8, dim), "attention_weights": (heads * levels * 4, dim)}
    rows |= {"value_proj": (width, dim), "output_proj": (dim, width)}
    return {**_layers(f"{name}.", {"query_norm": (dim,), "feat_norm": (dim,)}), **_layers(f"{name}.attn.", rows)}


def authors_shapes(
    dim: int, heads: int, ratio: float = 1.0, depth: int = 12, side: int = 14, classes: int = 150, width: int = 512,
    second: int = 256, scaled: bool = True,
) -> Shapes:  # fmt: skip
    """Every key of their checkpoints with its shape."""
    shapes: Shapes = {"backbone.pos_embed": (1, side * side + 1, dim), "backbone.level_embed": (3, dim)}
    shapes |= _layers("backbone.", {"patch_embed.proj": (dim, 3, 16, 16), "up": (dim, dim, 2, 2)})
    for number in range(depth):
        rows = {"norm1": (dim,), "attn.qkv": (3 * dim, dim), "attn.proj": (dim, dim), "norm2": (dim,)}
        shapes |= _layers(f"backbone.blocks.{number}.", {**rows, "mlp.fc1": (4 * dim, dim), "mlp.fc2": (dim, 4 * dim)})
        shapes |= {f"backbone.blocks.{number}.gamma{n}": (dim,) for n in (1, 2) if scaled}
    spm = {"stem.0": (64, 3), "stem.3": (64, 64), "stem.6": (64, 64), "conv2.0": (128, 64), "conv3.0": (256, 128)}
    for name, sizes in {**spm, "conv4.0": (256, 256)}.items():
        sequence, number = name.split(".")
        shapes |= {f"backbone.spm.{name}.weight": (*sizes, 3, 3)}
        shapes |= _batch_norm(f"backbone.spm.{sequence}.{int(number) + 1}", sizes[0])
    shapes |= _layers("backbone.spm.", {f"fc{n}": (dim, c, 1, 1) for n, c in enumerate((64, 128, 256, 256), 1)})
    for number in range(4):
        own = f"backbone.interactions.{number}"
        shapes |= {**_deformable(f"{own}.injector", dim, heads, ratio, 3), f"{own}.injector.gamma": (dim,)}
        for name in ("extractor", "extra_extractors.0", "extra_extractors.1")[: 3 if number == 3 else 1]:
            shapes |= _deformable(f"{own}.{name}", dim, heads, ratio, 1)
            rows = {"ffn_norm": (dim,), "ffn.fc1": (dim // 4, dim), "ffn.fc2": (dim, dim // 4)}
            shapes |= _layers(f"{own}.{name}.", {**rows, "ffn.dwconv.dwconv": (dim // 4, 1, 3, 3)})
        shapes |= _batch_norm(f"backbone.norm{number + 1}", dim)
    for number in range(4):
        shapes |= _block(f"decode_head.psp_modules.{number}.1", (width, dim, 1, 1))
    for number in range(3):
        shapes |= _block(f"decode_head.lateral_convs.{number}", (width, dim, 1, 1))
        shapes |= _block(f"decode_head.fpn_convs.{number}", (width, width, 3, 3))
    shapes |= _block("decode_head.bottleneck", (width, dim + 4 * width, 3, 3))
    shapes |= _block("decode_head.fpn_bottleneck", (width, 4 * width, 3, 3))
    shapes |= _block("auxiliary_head.convs.0", (second, dim, 3, 3))
    shapes |= _layers("", {"decode_head.conv_seg": (classes, width, 1, 1), "auxiliary_head.conv_seg": (classes, second, 1, 1)})
    return shapes


def random_state(shapes: Shapes) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    state = {}
    for name, shape in shapes.items():
        if name.endswith("running_var"):
            state[name] = torch.rand(shape, generator=generator) + 0.5
        elif name.endswith("tracked"):
            state[name] = torch.tensor(7)
        else:  # as wide as the inputs are many, so that numbers keep their size
            state[name] = torch.randn(shape, generator=generator) / math.sqrt(max(1, math.prod(shape[1:])))
    return state


class Authors:
    """The formulas of the authors' code, on their own state dict."""

    def __init__(self, state: dict[str, torch.Tensor], heads: int):
        self.state, self.heads = state, heads

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], self.state[f"{name}.weight"], self.state[f"{name}.bias"], 1e-6)

    def conv(self, name: str, x: torch.Tensor, **options) -> torch.Tensor:
        return F.conv2d(x, self.state[f"{name}.weight"], self.state.get(f"{name}.bias"), **options)

    def batch_norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        mean, var, weight, bias = (self.state[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, mean, var, weight, bias)

    def block(self, name: str, x: torch.Tensor) -> torch.Tensor:
        padding = self.state[f"{name}.conv.weight"].shape[2] // 2
        return F.relu(self.batch_norm(f"{name}.bn", self.conv(f"{name}.conv", x, padding=padding)))

    def attention(self, name: str, x: torch.Tensor) -> torch.Tensor:
        heads = x.shape[2] // 64
        q, k, v = self.linear(f"{name}.qkv", x).unflatten(2, (3, heads, 64)).permute(2, 0, 3, 1, 4)
        return self.linear(f"{name}.proj", ((q @ k.mT / 8).softmax(-1) @ v).transpose(1, 2).flatten(2))

    def vit_block(self, name: str, x: torch.Tensor) -> torch.Tensor:
        first, second = (self.state.get(f"{name}.gamma{n}", 1) for n in (1, 2))
        x = x + first * self.attention(f"{name}.attn", self.norm(f"{name}.norm1", x))
        hidden = F.gelu(self.linear(f"{name}.mlp.fc1", self.norm(f"{name}.norm2", x)))
        return x + second * self.linear(f"{name}.mlp.fc2", hidden)

    def deformable(self, name: str, x, points, context, grids) -> torch.Tensor:
        """From queries at ``points``, (x, y) as parts of an image's sides, to levels of these grids."""
        query, own = self.norm(f"{name}.query_norm", x), f"{name}.attn"
        values = self.linear(f"{own}.value_proj", self.norm(f"{name}.feat_norm", context)).unflatten(2, (self.heads, -1))
        offsets = self.linear(f"{own}.sampling_offsets", query).unflatten(2, (self.heads, len(grids), 4, 2))
        weights = self.linear(f"{own}.attention_weights", query).unflatten(2, (self.heads, -1)).softmax(-1)
        weights = weights.unflatten(3, (len(grids), 4))
        result = 0
        for level, (own_values, (rows, columns)) in enumerate(
            zip(values.split([r * c for r, c in grids], dim=1), grids, strict=True)
        ):
            at = points[:, None, None] + offsets[:, :, :, level] / torch.tensor([columns, rows])  # (B, Q, heads, 4, 2)
            image = own_values.permute(0, 2, 3, 1).flatten(0, 1).unflatten(2, (rows, columns))
            sampled = F.grid_sample(image, 2 * at.transpose(1, 2).flatten(0, 1) - 1, align_corners=False)
            sampled = sampled.unflatten(0, (-1, self.heads)).permute(0, 3, 1, 4, 2)  # (B, Q, heads, 4, D)
            result = result + (sampled * weights[:, :, :, level, :, None]).sum(3)
        return self.linear(f"{own}.output_proj", result.flatten(2))

    def extractor(self, name: str, c, x, points, grids, grid) -> torch.Tensor:
        c = c + self.deformable(name, c, points, x, [grid])
        hidden = self.linear(f"{name}.ffn.fc1", self.norm(f"{name}.ffn_norm", c))
        levels = hidden.split([r * s for r, s in grids], dim=1)
        maps = [level.mT.unflatten(2, size) for level, size in zip(levels, grids, strict=True)]
        depthwise = [self.conv(f"{name}.ffn.dwconv.dwconv", own, padding=1, groups=own.shape[1]) for own in maps]
        return c + self.linear(f"{name}.ffn.fc2", F.gelu(torch.cat([own.flatten(2).mT for own in depthwise], dim=1)))

    def prior(self, images: torch.Tensor) -> list[torch.Tensor]:
        x, maps = images, []
        for name, stride in (("stem.0", 2), ("stem.3", 1), ("stem.6", 1), ("conv2.0", 2), ("conv3.0", 2), ("conv4.0", 2)):
            sequence, number = name.split(".")
            x = self.conv(f"backbone.spm.{name}", x, stride=stride, padding=1)
            x = F.relu(self.batch_norm(f"backbone.spm.{sequence}.{int(number) + 1}", x))
            x = F.max_pool2d(x, 3, 2, 1) if name == "stem.6" else x
            maps += [x] if name not in ("stem.0", "stem.3") else []
        return [self.conv(f"backbone.spm.fc{n}", level) for n, level in enumerate(maps, 1)]

    def maps(self, images: torch.Tensor) -> list[torch.Tensor]:
        height, width = images.shape[2:]
        grid, grids = (height // 16, width // 16), [(height // s, width // s) for s in (8, 16, 32)]
        first, *coarser = self.prior(images)
        levels = self.state["backbone.level_embed"]
        c = torch.cat([level.flatten(2).mT + own for level, own in zip(coarser, levels, strict=True)], dim=1)
        table = self.state["backbone.pos_embed"][:, 1:]
        side = math.isqrt(table.shape[1])
        table = F.interpolate(table.mT.unflatten(2, (side, side)), size=grid, mode="bicubic", align_corners=False)
        x = (self.conv("backbone.patch_embed.proj", images, stride=16) + table).flatten(2).mT
        depth = 1 + max(int(name.split(".")[2]) for name in self.state if name.startswith("backbone.blocks."))
        of_vit = []
        for number in range(4):
            name = f"backbone.interactions.{number}"
            gamma = self.state[f"{name}.injector.gamma"]
            x = x + gamma * self.deformable(f"{name}.injector", x, centres(grid), c, grids)
            for block in range(number * depth // 4, (number + 1) * depth // 4):
                x = self.vit_block(f"backbone.blocks.{block}", x)
            points = torch.cat([centres(own) for own in grids])
            for own in ("extractor", "extra_extractors.0", "extra_extractors.1")[: 3 if number == 3 else 1]:
                c = self.extractor(f"{name}.{own}", c, x, points, grids, grid)
            of_vit.append(x.mT.unflatten(2, grid))
        c2, c3, c4 = (own.mT.unflatten(2, size) for own, size in zip(c.split([r * s for r, s in grids], 1), grids, strict=True))
        weight, bias = (self.state[f"backbone.up.{part}"] for part in ("weight", "bias"))
        own = [F.conv_transpose2d(c2, weight, bias, stride=2) + first, c2, c3, c4]
        scaled = [of_vit[2] if s == 1 else F.interpolate(of_vit[n], scale_factor=s, mode="bilinear")
                  for n, s in enumerate((4, 2, 1, 0.5))]  # fmt: skip
        return [self.batch_norm(f"backbone.norm{n + 1}", a + b) for n, (a, b) in enumerate(zip(own, scaled, strict=True))]

    def logits(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        maps = self.maps(images)
        last = maps[3]
        pools = [F.adaptive_avg_pool2d(last, size) for size in (1, 2, 3, 6)]
        pools = [self.block(f"decode_head.psp_modules.{n}.1", own) for n, own in enumerate(pools)]
        pools = [F.interpolate(own, size=last.shape[2:], mode="bilinear") for own in pools]
        levels = [self.block(f"decode_head.lateral_convs.{n}", maps[n]) for n in range(3)]
        levels.append(self.block("decode_head.bottleneck", torch.cat([last, *pools], dim=1)))
        for n in (2, 1, 0):
            levels[n] = levels[n] + F.interpolate(levels[n + 1], size=levels[n].shape[2:], mode="bilinear")
        outputs = [self.block(f"decode_head.fpn_convs.{n}", levels[n]) for n in range(3)] + levels[3:]
        outputs = [F.interpolate(own, size=levels[0].shape[2:], mode="bilinear") for own in outputs]
        fused = self.block("decode_head.fpn_bottleneck", torch.cat(outputs, dim=1))
        second = self.block("auxiliary_head.convs.0", maps[2])
        return self.conv("decode_head.conv_seg", fused), self.conv("auxiliary_head.conv_seg", second)


def centres(grid: tuple[int, int]) -> torch.Tensor:
    y, x = ((torch.arange(side) + 0.5) / side for side in grid)
    return torch.stack([x.expand(grid[0], -1), y[:, None].expand(-1, grid[1])], dim=-1).flatten(0, 1)


def write(folder, **fields) -> dict[str, torch.Tensor]:
    """Write a checkpoint as MMSegmentation does."""
    state = random_state(authors_shapes(**{**SMALL, **fields}))
    torch.save({"meta": {"epoch": 1, "CLASSES": ["a", "b", "c"]}, "state_dict": state}, folder / "theirs.pth")
    return state


@torch.no_grad()
@pytest.mark.parametrize("fields", [{}, {"scaled": False, "ratio": 1.0, "heads": 4}], ids=str)
@pytest.mark.parametrize("size", [(64, 64), (64, 96)], ids=str)
def test_a_file_has_the_logits_of_the_authors_formulas(size, fields, tmp_path):
    state = write(tmp_path, **fields)
    ours = from_pretrained(tmp_path / "theirs.pth", trust_pickle=True, image_size=size)
    images = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))
    expected = Authors(state, fields.get("heads", SMALL["heads"])).logits(images)
    for own, other in zip(ours.model(images, separate=True), expected, strict=True):
        assert own.shape == other.shape and other.abs().max() > 0.1
        assert (own - other).abs().max() <= 1e-5 * other.abs().max()


@pytest.mark.parametrize("size", PUBLISHED)
def test_a_published_model_is_told_by_its_shapes_and_every_key_has_its_place(size):
    fields, parameters = PUBLISHED[size]
    shapes = authors_shapes(**fields)
    learned = {name: shape for name, shape in shapes.items() if "running" not in name and "tracked" not in name}
    assert sum(math.prod(shape) for shape in learned.values()) == parameters
    found = recognise(shapes, lambda layout: {}, layouts=list(LAYOUTS.values()), where="x")
    expected = model_config(f"ViT-Adapter-{size}", image_size=512)
    assert found.config == expected.changed(backbone=expected.backbone.changed(image_size=512))
    assert found.match.layout.name == ("vit-adapter-augreg" if size == "L" else "vit-adapter")
    assert found.match.keys == len(shapes) and not found.match.unexpected


def test_a_pickle_is_refused_with_the_command_that_converts_it(tmp_path, capsys, monkeypatch):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFileError, match=r"vitrail convert theirs\.pth \S+ --trust-pickle"):
        from_pretrained("theirs.pth")
    main(["convert", "theirs.pth", "out", "--trust-pickle"])
    told = capsys.readouterr().err
    assert "guessed" in told and "vit-adapter-augreg has the same keys" in told and "attention among all patches" in told
    ours = from_pretrained("out")
    images = torch.zeros(1, 3, 64, 64)
    assert torch.equal(ours(images), from_pretrained("theirs.pth", trust_pickle=True)(images))
    assert ours.config.image_size == (512, 512) and ours.preparation.mean == (0.485, 0.456, 0.406)
    augreg = from_pretrained("theirs.pth", trust_pickle=True, layout="vit-adapter-augreg")
    assert augreg.preparation.mean == augreg.preparation.std == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: {k: t for k, t in s.items() if "ffn" not in k}, r"missing: backbone\.interactions\.0\.extractor\.ffn"),
        (lambda s: {k: t for k, t in s.items() if "extra_extractors" not in k}, r"missing: .*extra_extractors\.0"),
        (lambda s: {k: t for k, t in s.items() if k != "backbone.norm2.running_var"}, r"backbone\.norm2\.running_var"),
        (lambda s: {k: t for k, t in s.items() if k != "backbone.pos_embed"}, r"backbone\.pos_embed"),
        (lambda s: {k: t for k, t in s.items() if k != "decode_head.conv_seg.weight"}, r"no decode_head\.conv_seg\.weight"),
        (lambda s: {**s, "backbone.cls_token": torch.zeros(1, 1, 64)}, r"unexpected: backbone\.cls_token"),
        (lambda s: {**s, "decode_head.query_embed.weight": torch.zeros(5, 8)}, r"unexpected: decode_head\.query_embed"),
        (lambda s: {**s, "backbone.pos_embed": torch.zeros(1, 8, 64)}, r"wrong shape: backbone\.pos_embed \(1, 8, 64\)"),
        (lambda s: {**s, "backbone.level_embed": torch.zeros(4, 64)}, r"wrong shape: backbone\.level_embed"),
    ],
)
def test_other_keys_and_shapes_are_refused_by_name(change, words, tmp_path):
    save_file(change(random_state(authors_shapes(**SMALL))), tmp_path / "theirs.safetensors")
    with pytest.raises(ModelFileError, match=words):
        from_pretrained(tmp_path / "theirs.safetensors")


def test_images_that_the_authors_code_refuses_are_refused(tmp_path):
    write(tmp_path)
    with pytest.raises(ModelFileError, match="for images of 48×48"):
        from_pretrained(tmp_path / "theirs.pth", trust_pickle=True, image_size=48)


def test_without_an_auxiliary_head_the_model_has_none(tmp_path):
    state = random_state(authors_shapes(**SMALL))
    state = {name: tensor for name, tensor in state.items() if not name.startswith("auxiliary_head.")}
    save_file(state, tmp_path / "theirs.safetensors")
    ours = from_pretrained(tmp_path / "theirs.safetensors", image_size=64)
    assert not ours.config.auxiliary and ours(torch.zeros(1, 3, 64, 64)).shape == (1, 3, 16, 16)


def test_training_goes_on_from_such_a_file_with_other_classes(tmp_path):
    write(tmp_path)
    start = from_pretrained(tmp_path / "theirs.pth", trust_pickle=True, image_size=64).model
    model = build(segmenter_config(start.config, image_size=96, classes=5))
    transfer(start, model, keep_head=False)
    old, new = start.state_dict(), model.state_dict()
    changed = {name for name in new if not torch.equal(old[name], new[name])}
    assert changed == {f"{head}.{part}" for head in ("classifier", "auxiliary_classifier") for part in ("weight", "bias")}
    assert new["classifier.weight"].shape[0] == 5 and not any(new[name].any() for name in changed)
