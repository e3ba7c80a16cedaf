"""Measure a server: images per second beside the model's own, latency alone and under load, and overload.

    python benchmarks/serving.py [MODEL] [--engine auto] [--quick]

Server and clients share the cores. Needs the extra serve.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import side_by_side
import torch

sys.path += [str(Path(__file__).with_name("soak")), str(Path(__file__).parents[1] / "tests/deploy")]
from server_load import arriving, request, saturating
from server_running import Process
from soak_server import FACTOR
from soak_shared import ms, photographs, save_model

from vitrail.deploy.predict import open_predictor
from vitrail.runtime.processor import Others

BATCH = 16


def alone(model: str, engine: str, batch: int, seconds: float) -> float:
    """Images per second of the model without a server, in batches of that size."""
    predictor = open_predictor(model, engine=engine)
    shape = (batch, predictor.preparation.channels, *predictor.preparation.image_size)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8)
    predictor.best(pixels, 5)
    count, begin = 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        predictor.best(pixels, 5)
        count += batch
    return count / (time.monotonic() - begin)


def served(model: str, engine: str, *, quick: bool) -> str:
    """The table of one model, in Markdown."""
    seconds, requests = 6.0 if quick else 20.0, [request(content, close=False) for content in photographs()]
    others, own = Others(), alone(model, engine, BATCH, seconds)
    with Process("-m", "vitrail", "serve", model, "--port", "0", "--engine", engine) as server:
        one = saturating(server.url, requests, 1, seconds / 2)
        saturating(server.url, requests, 2 * BATCH, seconds / 3)
        full = saturating(server.url, requests, 2 * BATCH, seconds)
        rate = full.counts[200] / max(at + took for _, took, at in full.answers)
        over = arriving(server.url, requests, FACTOR * rate, seconds)
    answered = f"{over.counts[200]} answered, {over.counts[429]} refused"
    rows = [
        [f"the model alone, batches of {BATCH}", f"{own:.1f} images/s"],
        [f"served, {2 * BATCH} clients", f"{rate:.1f} images/s, {100 * rate / own:.0f} %"],
        ["latency, one client", f"{ms(one.share(200, 0.5))}, 99 %: {ms(one.share(200, 0.99))}"],
        [f"latency, {2 * BATCH} clients", f"{ms(full.share(200, 0.5))}, 99 %: {ms(full.share(200, 0.99))}"],
        [
            f"{FACTOR} times as many as it can answer",
            f"{answered}, 99 % of refusals in {ms(over.share(429, 0.99))}",
        ],
    ]
    return side_by_side.table([Path(model).name, "found"], rows) + "\n" + side_by_side.note(others.share())


def main(*, quick: bool) -> str:
    """The table of a ViT-B/16, in Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        return served(str(save_model(Path(folder) / "ViT-B-16", "ViT-B/16")), "auto", quick=quick)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="anything that vitrail serve takes; a ViT-B/16 by default")
    parser.add_argument("--engine", default="auto", help="torch, onnxruntime or openvino; the quickest by default")
    parser.add_argument("--quick", action="store_true", help="6 seconds of every load instead of 20")
    given = parser.parse_args()
    print(served(given.model, given.engine, quick=given.quick) if given.model else main(quick=given.quick))
