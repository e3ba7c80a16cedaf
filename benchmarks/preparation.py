"""Answers of one model to photographs as Vitrail and as timm prepare them.

    python benchmarks/preparation.py DATA WEIGHTS [NAME]

The model is timm's NAME (vit_tiny_patch16_224) with WEIGHTS, a file of safetensors, for both; timm prepares images by its own
transform of that name. Prints for how many images the class is the same, and how far the pixels are apart, in levels of 256.
"""

import argparse
import sys
from pathlib import Path

import torch
from PIL import Image

import vitrail
from vitrail.data.readers.sources import open_data

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from peers import declare_operators

OPERATORS = declare_operators()  # timm imports torchvision


def main(data: str, weights: str, name: str) -> None:
    import timm
    from timm.data import create_transform, resolve_data_config

    model = timm.create_model(name, checkpoint_path=weights).eval()
    transform = create_transform(**resolve_data_config(model.pretrained_cfg))
    preparation = vitrail.from_pretrained(weights).preparation
    level = 1 / (255 * torch.tensor(preparation.std).view(-1, 1, 1))
    items = open_data(data).split("all")
    same, largest, farthest = 0, 0.0, 0.0
    with torch.inference_mode():
        for item in items:
            assert isinstance(item.image, Path)
            with Image.open(item.image) as file:
                theirs = transform(file.convert("RGB"))
            ours = preparation(item.image)[0]
            answers = model(torch.stack([ours, theirs]))
            same += int(answers[0].argmax() == answers[1].argmax())
            largest = max(largest, float(((ours - theirs) / level).abs().max()))
            farthest = max(farthest, float((answers[0] - answers[1]).abs().max()))
    print(f"images of the same class: {same} of {len(items)}")
    print(f"largest difference of a pixel: {largest:.2f} levels; of a logit: {farthest:.2g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a folder or a table of images")
    parser.add_argument("weights", help="a file of safetensors")
    parser.add_argument("name", nargs="?", default="vit_tiny_patch16_224", help="a model of timm's")
    main(**vars(parser.parse_args()))
