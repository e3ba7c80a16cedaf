"""Training steps and inference of the relatives of the ViT, beside timm and transformers.

    python benchmarks/relatives.py [--quick] [--only Swin …]

Every model has random weights, the images are noise: 16 of 224 pixels of a published size, 128 of 32 pixels of a small one. A
peer computes in bf16 by autocast in training and with weights of that type in inference, as is fastest. Needs the peers that the
extra dev installs.
"""

import argparse
import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import side_by_side
import torch
import torch.nn.functional as F
from torch import nn

import vitrail
from vitrail.config.settings import RunSettings
from vitrail.data.images.preparation import Preparation
from vitrail.models.registry import architecture_of, build, model_config
from vitrail.tasks.classification.labels.single_label import Classification
from vitrail.training.loop.learner import Learner

PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class Case:
    """One of ours beside one of a peer's."""

    name: str
    peer: str
    build: Callable[[], nn.Module]
    image_size: int = 224
    batch: int = 16
    classes: int = 1000
    fields: Any = ()

    @property
    def title(self) -> str:
        return f"{self.name} at {self.image_size} px, batch {self.batch}"


def timm_model(name: str, **fields: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import timm

        return timm.create_model(name, **fields)

    return build


def transformers_model(kind: str, **fields: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        made = getattr(transformers, f"{kind}ForImageClassification")
        return made(made.config_class(**{"num_labels": 1000, **fields}))

    return build


def pvt_v2(fields: dict[str, Any]) -> Callable[[], nn.Module]:
    """timm's, whose first patches are 7 wide, 4 apart; here 3 wide, 2 apart."""

    def build() -> nn.Module:
        from timm.models.pvt_v2 import OverlapPatchEmbed, PyramidVisionTransformerV2

        model = PyramidVisionTransformerV2(**fields)
        model.patch_embed = OverlapPatchEmbed(3, 2, 3, fields["embed_dims"][0])
        return model

    return build


SMALL: dict[str, Any] = {"image_size": 32, "batch": 128, "classes": 10}
THREE = {"depths": (2, 2, 2), "heads": (2, 4, 8)}
SWIN = {"dim": 48, "patch_size": 2, "window_size": 4, **THREE}
THEIR_SWIN = {"img_size": 32, "num_classes": 10, "embed_dim": 48, "depths": (2, 2, 2), "num_heads": (2, 4, 8), "patch_size": 2,
              "window_size": 4}  # fmt: skip
PVT = {"dims": (32, 64, 128), "depths": (2, 2, 2), "heads": (1, 2, 4), "reductions": (4, 2, 1), "mlp_ratios": (4, 4, 4),
       "patch_sizes": (4, 2, 2)}  # fmt: skip
THEIR_PVT = {"image_size": 32, "num_labels": 10, "num_encoder_blocks": 3, "hidden_sizes": [32, 64, 128], "depths": [2, 2, 2],
             "num_attention_heads": [1, 2, 4], "sequence_reduction_ratios": [4, 2, 1], "mlp_ratios": [4, 4, 4],
             "patch_sizes": [4, 2, 2], "strides": [4, 2, 2]}  # fmt: skip
PVT_V2 = {**PVT, "patch_sizes": (3, 3, 3), "strides": (2, 2, 2)}
THEIR_PVT_V2 = {"num_classes": 10, "embed_dims": (32, 64, 128), "depths": (2, 2, 2), "num_heads": (1, 2, 4),
                "sr_ratios": (4, 2, 1), "mlp_ratios": (4.0, 4.0, 4.0)}  # fmt: skip
CVT = {"dims": (32, 64, 128), "depths": (1, 2, 3), "heads": (1, 2, 4), "patch_sizes": (3, 3, 3), "strides": (2, 2, 2),
       "paddings": (1, 1, 1), "activation": "gelu"}  # fmt: skip
THEIR_CVT = {"num_labels": 10, "embed_dim": [32, 64, 128], "depth": [1, 2, 3], "num_heads": [1, 2, 4], "patch_sizes": [3, 3, 3],
             "patch_stride": [2, 2, 2], "patch_padding": [1, 1, 1]}  # fmt: skip
TNT = {"patch_size": 4, "word_stride": 2, "dim": 128, "depth": 4, "heads": 4, "word_dim": 16, "word_heads": 2}
THEIR_TNT = {"img_size": 32, "num_classes": 10, "patch_size": 4, "first_stride": 2, "embed_dim": 128, "depth": 4,
             "num_heads_outer": 4, "inner_dim": 16, "num_heads_inner": 2}  # fmt: skip
CASES = (
    Case("Swin-T", "timm", timm_model("swin_tiny_patch4_window7_224")),
    Case("Swin-T", "transformers", transformers_model("Swin")),
    Case("PVT-Tiny", "transformers", transformers_model("Pvt")),
    Case("PVTv2-b1", "timm", timm_model("pvt_v2_b1")),
    Case("CvT-13", "transformers", transformers_model("Cvt"), fields={"activation": "gelu"}),
    Case("TNT-S", "timm", timm_model("tnt_s_patch16_224")),
    Case("DeiT-S-distilled", "timm", timm_model("deit_small_distilled_patch16_224")),
    Case("Swin-T", "timm", timm_model("swin_tiny_patch4_window7_224", **THEIR_SWIN), fields=SWIN, **SMALL),
    Case("PVT-Tiny", "transformers", transformers_model("Pvt", **THEIR_PVT), fields=PVT, **SMALL),
    Case("PVTv2-b1", "timm", pvt_v2(THEIR_PVT_V2), fields=PVT_V2, **SMALL),
    Case("CvT-13", "transformers", transformers_model("Cvt", **THEIR_CVT), fields=CVT, **SMALL),
    Case("TNT-S", "timm", timm_model("tnt_s_patch16_224", **THEIR_TNT), fields=TNT, **SMALL),
)


def training(case: Case, precision: str) -> dict[str, side_by_side.Work]:
    """A step of ours as `vitrail train` makes it, and a peer's without anything that a step does not need."""
    config = model_config(case.name, image_size=case.image_size, num_classes=case.classes, **dict(case.fields))
    row = {"architecture": architecture_of(config).name, **config.model_dump(mode="json")}
    task_of_run = {"precision": precision, "device": "cpu"}
    settings = RunSettings.read({"data": {"source": "noise"}, "model": {"name": case.name, **row}, "training": task_of_run})
    task = Classification(build(config).train(), Preparation.standard(config.image_size), [str(i) for i in range(case.classes)])
    learner = Learner(settings, task, total=10**6, warmup=0)
    labels = torch.randint(0, case.classes, (case.batch,))
    pixels = torch.randint(0, 256, (case.batch, 3, case.image_size, case.image_size), dtype=torch.uint8)
    theirs = case.build().train()
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-4, fused=True)
    images = torch.randn(case.batch, 3, case.image_size, case.image_size)

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            answers = theirs(images)
        F.cross_entropy(getattr(answers, "logits", answers).float(), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    batch = {"images": pixels, "labels": labels}
    return {"Vitrail": lambda: learner.step(batch, done=0, size=case.batch, own=case.batch), case.peer: step}


def inference(case: Case, precision: Any) -> dict[str, side_by_side.Work]:
    """A forward pass of ours as `vitrail predict` makes it, and a peer's."""
    config = model_config(case.name, image_size=case.image_size, num_classes=case.classes, **dict(case.fields))
    images = torch.randn(case.batch, 3, case.image_size, case.image_size)
    ours = vitrail.for_inference(build(config).eval(), precision)
    theirs = copy.deepcopy(case.build().eval()).to(torch.bfloat16 if precision == "bf16" else torch.float32)
    given = images.to(next(theirs.parameters()).dtype)

    def inferred(model: nn.Module, images: torch.Tensor) -> side_by_side.Work:
        def work() -> None:
            with torch.inference_mode():
                model(images)

        return work

    return {"Vitrail": inferred(ours, images), case.peer: inferred(theirs, given)}


def main(only: list[str], *, quick: bool) -> str:
    """The table, in Markdown."""
    rounds, at_least = (4, 0.5) if quick else (15, 1.0)
    rows, others = [], []
    for case in CASES:
        if only and not any(case.name.startswith(name) for name in only):
            continue
        for what, works in (("training", training), ("inference", inference)):
            for precision in PRECISIONS:
                torch.manual_seed(0)
                measured = side_by_side.measure(works(case, precision), rounds=rounds, at_least=at_least)
                ours, theirs = (case.batch / measured.seconds(name) for name in ("Vitrail", case.peer))
                ratio = measured.ratio("Vitrail", case.peer)
                rows.append([case.title, what, precision, f"{ours:.1f}", f"{case.peer} {theirs:.1f}", ratio])
                others.append(measured.others)
                sys.stderr.write(" ".join(rows[-1]) + "\n")
    head = ["model", "what", "precision", "images/s", "peer, images/s", "ratio"]
    return side_by_side.table(head, rows) + "\n" + side_by_side.note(*others)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", nargs="*", default=[], help="models whose names begin so")
    given = parser.parse_args()
    print(main(given.only, quick=given.quick))
