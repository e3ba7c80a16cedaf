"""What the server makes of a model: images per second beside the model's own, latency alone and under load, and overload.

python benchmarks/serving.py [MODEL] [--engine auto] [--quick]
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parent.parent / "tests/deploy"))
from reliability import FACTOR, ms, photographs, save_model
from server_load import arriving, request, saturating
from server_running import Process

from vitrail import api

BATCH = 16


def alone(model: str, engine: str, batch: int, seconds: float) -> float:
    """Images per second of the model without a server, in batches of that size."""
    answerer = api.open_answerer(model, engine=engine)
    shape = (batch, answerer.preparation.channels, *answerer.preparation.image_size)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8)
    answerer.best(pixels, 5)
    count, begin = 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        answerer.best(pixels, 5)
        count += batch
    return count / (time.monotonic() - begin)


def main() -> None:
    """The table, in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="anything that vitrail serve takes; a ViT-B/16 by default")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    seconds = 6.0 if given.quick else 20.0
    requests = [request(content, close=False) for content in photographs()]
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or str(save_model(Path(folder) / "model", "ViT-B/16"))
        own = alone(model, given.engine, BATCH, seconds)
        with Process("-m", "vitrail", "serve", model, "--port", "0", "--engine", given.engine) as server:
            one = saturating(server.url, requests, 1, seconds / 2)
            saturating(server.url, requests, 2 * BATCH, seconds / 3)
            full = saturating(server.url, requests, 2 * BATCH, seconds)
            served = full.counts[200] / max(at + took for _, took, at in full.answers)
            over = arriving(server.url, requests, FACTOR * served, seconds)
    print("| what | found |\n|---|---|")
    print(f"| the model alone, batches of {BATCH} | {own:.1f} images/s |")
    print(f"| served, {2 * BATCH} clients | {served:.1f} images/s, {100 * served / own:.0f} % |")
    print(f"| latency, one client | {ms(one.share(200, 0.5))}, 99 %: {ms(one.share(200, 0.99))} |")
    print(f"| latency, {2 * BATCH} clients | {ms(full.share(200, 0.5))}, 99 %: {ms(full.share(200, 0.99))} |")
    answered = f"{over.counts[200]} answered, {over.counts[429]} refused"
    print(f"| {FACTOR} times as many as it can answer | {answered}, 99 % of refusals in {ms(over.share(429, 0.99))} |")


if __name__ == "__main__":
    main()
