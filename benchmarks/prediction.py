"""Images per second from files on a disk to labels, beside what the model makes of pixels that are there already.

    python benchmarks/prediction.py MODEL FOLDER [--precision bf16] [--images 1000]

The images of FOLDER are read again and again until there are enough.
"""

import argparse
import time
from itertools import cycle, islice

import torch

from vitrail.data.readers.sources import image_files
from vitrail.deploy.predict import open_predictor
from vitrail.deploy.predictor import predict_each
from vitrail.runtime.memory import kept_memory

BATCH = 32


def main(model: str, folder: str, precision: str | None, images: int, rounds: int = 3) -> str:
    """One line."""
    predictor, files = open_predictor(model, precision), list(islice(cycle(image_files([folder])), images))
    pixels = torch.from_numpy(predictor.preparation.pixels(files[0]))[None].repeat(BATCH, 1, 1, 1)
    whole, alone = [], []
    for _ in range(rounds):
        begin = time.perf_counter()
        count = sum(len(answers) for answers in predict_each(predictor, files, batch_size=BATCH))
        whole.append(count / (time.perf_counter() - begin))
        begin, calls = time.perf_counter(), max(1, images // BATCH)
        with kept_memory():
            for _ in range(calls):
                predictor.logits(pixels)
        alone.append(calls * BATCH / (time.perf_counter() - begin))
    share = sorted(own / most for own, most in zip(whole, alone, strict=True))[rounds // 2]
    told = f"{max(whole):.1f} images/s from files, {max(alone):.1f} of the model alone"
    return f"{predictor.name}: {told}; the median of {rounds} ratios is {share:.2f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="anything that vitrail predict takes")
    parser.add_argument("folder", help="images, without labels")
    parser.add_argument("--precision", choices=("fp32", "bf16"), help="of a model in Python; an exported one has its own")
    parser.add_argument("--images", type=int, default=1000, help="that are read in each of three rounds")
    given = parser.parse_args()
    print(main(given.model, given.folder, given.precision, given.images))
