"""Images of many sizes in one sequence beside the same images padded to the largest of them: images per second.

    python benchmarks/packing.py [--quick]

The model is a ViT-Ti/16 with random weights, the images are noise of the sizes of photographs; nothing else is needed.
"""

import argparse
import random

import side_by_side
import torch
import torch.nn.functional as F

from vitrail.models.configs.vit import ViTConfig
from vitrail.models.packing import forward_packed
from vitrail.models.vision.vit import ViT

IMAGES, LARGEST = 32, 384


def sizes(chance: random.Random) -> list[tuple[int, int]]:
    """Photographs as they come: the longer side of 128 to 384 pixels, upright or lying, 3:2 to square; multiples of 16."""
    found = []
    for _ in range(IMAGES):
        longer = chance.randrange(128, LARGEST + 1, 16)
        shorter = round(longer / chance.uniform(1, 1.5) / 16) * 16
        found.append((longer, shorter) if chance.random() < 0.5 else (shorter, longer))
    return [*found[:-1], (LARGEST, LARGEST)]


@torch.inference_mode()
def main(*, quick: bool) -> str:
    """The table, in Markdown."""
    torch.manual_seed(0)
    fields = {"dim": 192, "depth": 12, "heads": 3, "mlp_dim": 768, "patch_size": 16, "num_classes": 1000}
    model = ViT(ViTConfig(**fields, image_size=224)).eval()
    large = ViT(ViTConfig(**fields, image_size=LARGEST)).eval()
    images = [torch.randn(3, *size) for size in sizes(random.Random(0))]
    padded = torch.stack([F.pad(image, (0, LARGEST - image.shape[2], 0, LARGEST - image.shape[1])) for image in images])

    together = forward_packed(model, images)
    alone = torch.cat([forward_packed(model, [image]) for image in images])
    worst = (together - alone).abs().max().item()
    rows, others = [], []
    for precision in side_by_side.PRECISIONS:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            measured = side_by_side.measure(
                {
                    "packed": lambda: forward_packed(model, images),
                    "padded to the largest": lambda: [large(part) for part in padded.split(8)],
                    "one at a time": lambda: [forward_packed(model, [image]) for image in images],
                },
                rounds=5 if quick else 14,
            )
        others.append(measured.others)
        for name in measured.rounds:
            rate, ratio = IMAGES / measured.seconds(name), measured.ratio(name, "padded to the largest")
            rows.append([f"{precision}, {name}", f"{rate:.1f}", ratio])
    text = f"Logits in fp32 differ by at most {worst:.0e} from the logits of each image alone.\n"
    return side_by_side.table(["", "images/s", "× padded"], rows) + "\n" + text + side_by_side.note(*others)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="five rounds instead of fourteen")
    print(main(quick=parser.parse_args().quick))
