"""Captions a second beside transformers, and what it costs to tell where the model looked.

    python benchmarks/captions.py [--quick] [--model RUN] [--images FOLDER]

One model in both libraries, in fp32, and with Vitrail's ViT in bf16: the ViT and the decoder of Captioner-Ti/16 with random
weights, which write sixteen tokens about each image of noise; or a trained captioner and photographs, already decoded.
transformers takes captioners with as many heads for the image as for the text and the patches of the last block, as a run with
--model.cross-heads 4 --model.patches-behind last has them. Vitrail gives captions with the probability of each word,
``generate`` of transformers gives tokens. Needs transformers, which the extra dev installs.
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import side_by_side
import torch
from torch import Tensor, nn

from vitrail.data.images.pictures import pictures_of
from vitrail.data.images.preparation import Preparation
from vitrail.data.readers.tree import images_below
from vitrail.data.text.tokenizer import Tokenizer
from vitrail.models.registry import build, model_config
from vitrail.tasks.captioning.predictor import Writer
from vitrail.tasks.captioning.task import write
from vitrail.tasks.captioning.weights import TrainedCaptioner, open_captioner
from vitrail.weights.layouts.vision_encoder_decoder import MODEL_TYPE

BATCH, BEAMS, TOKENS = 16, 3, 16
NEVER = -20.0
"""Added to what ends a text, so that random weights write as many tokens as people do."""


def random_captioner() -> TrainedCaptioner:
    """The usual small one, of as many tokens as the recipe has at most."""
    torch.manual_seed(0)
    tokens = Tokenizer.learned([f"{number} words" for number in range(9999)], 3000)
    config = model_config("Captioner-Ti/16", vocabulary=len(tokens), position="learned", scale_embedding=False, tied=False)
    model: Any = build(config).eval()
    nn.init.normal_(model.output.weight, std=1.0)
    return TrainedCaptioner(model, tokens, Preparation.standard((224, 224)))


def main(reference: Path | None, folder: Path | None, *, quick: bool) -> str:
    """Both tables, in Markdown."""
    from transformers import VisionEncoderDecoderModel

    trained = random_captioner() if reference is None else open_captioner(reference)
    c, longest = trained.config, TOKENS if reference is None else 64
    with tempfile.TemporaryDirectory() as place:
        trained.save_pretrained(Path(place) / "theirs", layout=MODEL_TYPE)
        theirs: Any = VisionEncoderDecoderModel.from_pretrained(Path(place) / "theirs").eval()
    if folder is None:
        pixels = torch.randint(0, 256, (BATCH, 3, *c.image_size), dtype=torch.uint8)
    else:
        files = images_below(folder)[:BATCH]
        if len(files) < BATCH:
            sys.exit(f"{folder} has {len(files)} images, and a batch {BATCH}")
        pixels = torch.stack([torch.from_numpy(trained.preparation.pixels(file)) for file in pictures_of(files)])
    writer, half = Writer(trained, beams=BEAMS), Writer(trained, beams=BEAMS, precision="bf16")
    banned = [[token] for token in sorted({c.pad, c.start} - {c.end})] + ([[c.end]] if reference is None else [])

    @torch.inference_mode()
    def their_tokens() -> Tensor:
        images = trained.preparation.normalize(pixels)
        options = {"num_beams": BEAMS, "do_sample": False, "max_length": longest + 1, "bad_words_ids": banned}
        found: Tensor = theirs.generate(pixel_values=images, **options)
        return found

    @torch.inference_mode()
    def our_tokens(writer: Writer) -> list[list[int]]:
        images = trained.preparation.normalize(pixels)
        options: dict[str, Any] = {"max_length": longest, "encoded": writer.looking.encode(images)}
        options |= {"banned": [token for (token,) in banned]} if reference is None else {}
        return [one.tokens for one in write(writer.fast, images, beams=BEAMS, **options)]

    marks = {c.pad, c.start, c.end}
    expected = [[token for token in row if token not in marks] for row in their_tokens().tolist()]
    same, nearly = (sum(map(list.__eq__, our_tokens(one), expected)) for one in (writer, half))
    works = {
        "transformers, tokens": their_tokens,
        "Vitrail, tokens": partial(our_tokens, writer),
        "Vitrail, ViT in bf16, tokens": partial(our_tokens, half),
    }
    if reference is not None:
        works |= {
            "Vitrail, words": partial(writer.captions, pixels),
            "Vitrail, words and looks": partial(writer.captions, pixels, attention=True),
        }
    measured = side_by_side.measure(works, rounds=6 if quick else 18, at_least=0.25 if quick else 1.0)
    rows = [
        [name, f"{BATCH / measured.seconds(name):.1f}", measured.ratio(name, "transformers, tokens")] for name in measured.rounds
    ]
    sys.stderr.write(f"{same} of {BATCH} captions are the same, {nearly} with the ViT in bf16\n")
    head = [f"batch {BATCH}, beam {BEAMS}", "captions/s", "× transformers"]
    return side_by_side.table(head, rows) + "\n" + side_by_side.note(measured.others)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--model", type=Path, help="a run, or the folder of a captioner")
    parser.add_argument("--images", type=Path, help=f"a folder with {BATCH} images or more")
    given = parser.parse_args()
    print(main(given.model, given.images, quick=given.quick))
