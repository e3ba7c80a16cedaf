"""Translation beside its peers: tokens per second in training, and in writing, in one process, in turns.

    python benchmarks/translation.py            both
    python benchmarks/translation.py --only train
    python benchmarks/translation.py --only ctranslate2 --model EXPORTED --data pairs.tsv --source en

The sentences are random: what is measured does not depend on them. Training: a step with its optimizer, bf16, of the shape of
Transformer-small beside torch's nn.Transformer under autocast. Writing: greedy and beam 4 of a Transformer-base with random
weights, as vitrail translate writes and as the model itself does, beside transformers' Marian of the same shape and the same
model in CTranslate2, all in float32. Exported: sentences a second of Vitrail's Translator, texts to texts, beside
ctranslate2.Translator alone, which gets tokens and gives tokens, on the same folder with the same threads.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data.text.dataset import PairDataset
from vitrail.data.text.tokenizer import END, PAD, START
from vitrail.deploy.fast_writing import fast_copy
from vitrail.models.registry import create_model
from vitrail.models.text.search import beam_search, greedy
from vitrail.parts import token_loss

VOCABULARY, STEPS, TURNS, SENTENCES = 6000, 12, 3, 512


class Peer(nn.Module):
    """torch's nn.Transformer with the same embeddings, positions and tied logits as ours."""

    def __init__(self, dim: int, depth: int, heads: int, mlp_dim: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, dim)
        self.body = nn.Transformer(dim, heads, depth, depth, mlp_dim, dropout, batch_first=True)
        self.ours = create_model("Transformer-tiny", dim=dim, heads=heads, vocabulary=VOCABULARY, depth=1, decoder_depth=1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = (self.dropout(self.ours.position(self.embedding(t) * self.embedding.embedding_dim**0.5)) for t in (source, target))
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1]) < 0
        pads = {"src_key_padding_mask": source == PAD, "memory_key_padding_mask": source == PAD}
        found = self.body(x, y, tgt_mask=causal, **pads)
        return F.linear(found, self.embedding.weight)


def batches(tokens: int) -> list[dict[str, Tensor]]:
    """Random sentences of the lengths that captions have."""
    random = np.random.default_rng(0)
    lengths = random.normal(15, 5, (4000, 2)).clip(4, 40).astype(int)
    sides = ([[*random.integers(3, VOCABULARY, n - 1).tolist(), END] for n in column] for column in lengths.T)
    data = PairDataset([str(number) for number in range(4000)], *sides, pad=PAD, start=START)
    from vitrail.data.loading.batches import Wanted

    return [data.__getitems__(Wanted(keys, slice(None))) for keys in data.batches(0, tokens, shuffle=True)]


def trained(model: nn.Module, loss: Callable[[nn.Module, dict[str, Tensor]], Tensor]) -> Callable[[dict[str, Tensor]], None]:
    """A step of training."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(batch: dict[str, Tensor]) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            found = loss(model, batch)
        found.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def our_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    some = batch["labels"] != PAD
    x = model.decode(batch["target"], model.encode(batch["source"]))[some]
    return token_loss(x, *model.output_table(), batch["labels"][some], smoothing=0.1)


def their_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["source"], batch["target"])
    return F.cross_entropy(logits.flatten(0, 1).float(), batch["labels"].flatten(), ignore_index=PAD, label_smoothing=0.1)


def training() -> None:
    shape = {"dim": 256, "heads": 4, "mlp_dim": 512, "dropout": 0.15}
    ours = create_model("Transformer-small", vocabulary=VOCABULARY, **shape)
    steps = {"vitrail": trained(ours, our_loss), "nn.Transformer": trained(Peer(depth=3, **shape), their_loss)}
    given = batches(3072)
    counts = [int((batch["labels"] != PAD).sum() + (batch["source"] != PAD).sum()) for batch in given]
    rates: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(TURNS + 1):
        for name, step in steps.items():
            places = range(turn * STEPS % len(given), turn * STEPS % len(given) + STEPS)
            begun = time.process_time()
            for place in places:
                step(given[place % len(given)])
            if turn:  # the first makes kernels
                rates[name].append(sum(counts[place % len(given)] for place in places) / (time.process_time() - begun))
    for name, found in rates.items():
        print(f"{name:<16} {statistics.median(found):>8,.0f} tokens a CPU second in training")
    ratios = [a / b for a, b in zip(rates["vitrail"], rates["nn.Transformer"], strict=True)]
    print(f"{'ratio':<16} {statistics.median(ratios):>8.2f}  ({min(ratios):.2f} to {max(ratios):.2f})")


def writing(threads: int) -> None:
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from peers import declare_operators

    _operators = declare_operators()  # as long as it is kept, transformers can be imported
    from transformers import MarianConfig, MarianMTModel

    torch.set_num_threads(threads)
    model = create_model("Transformer-base", vocabulary=8000, norm="post").eval()
    fast = fast_copy(model)
    config = MarianConfig(
        vocab_size=8000, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8, decoder_attention_heads=8,
        encoder_ffn_dim=2048, decoder_ffn_dim=2048, pad_token_id=0, decoder_start_token_id=0, eos_token_id=2,
        forced_eos_token_id=2, max_length=34, num_beams=1,
    )  # fmt: skip
    theirs, engine = MarianMTModel(config).eval(), in_ctranslate2(model, threads)
    for count in (1, 32):
        source = torch.randint(3, 8000, (count, 16))
        source[:, -1] = END
        words = [[f"t{token}" for token in row] for row in source.tolist()]
        limits = {"max_decoding_length": 32, "min_decoding_length": 32}
        for beams in (1, 4):
            ways: dict[str, Callable[[], Any]] = {
                "vitrail": lambda s=source: greedy(fast, s, max_length=32, banned=[0, 1, 2]),
                "vitrail's model": lambda s=source: greedy(model, s, max_length=32, banned=[0, 1, 2]),
                "Marian": lambda s=source, k=beams: theirs.generate(s, num_beams=k, min_length=33, max_length=34),
                "ctranslate2": lambda w=words, k=beams, n=limits: engine.translate_batch(w, beam_size=k, **n),
            }
            if beams > 1:
                ways["vitrail"] = lambda s=source, k=beams: beam_search(fast, s, beams=k, max_length=32, banned=[0, 1, 2])
                ways["vitrail's model"] = lambda s=source, k=beams: beam_search(
                    model, s, beams=k, max_length=32, banned=[0, 1, 2]
                )
            else:
                assert [text.tokens for text in ways["vitrail"]()] == [text.tokens for text in ways["vitrail's model"]()]
            side_by_side(ways, 32 * count, f"beam {beams}, batch {count:>2}")


def side_by_side(ways: dict[str, Callable[[], Any]], tokens: int, what: str) -> None:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(2 * TURNS + 1):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            if turn:
                times[name].append(time.perf_counter() - begun)
    shown = ", ".join(f"{name} {tokens / statistics.median(found):,.0f}" for name, found in times.items())
    ratios = {
        name: statistics.median(their / our for their, our in zip(found, times["vitrail"], strict=True))
        for name, found in times.items()
        if name != "vitrail"
    }
    told = ", ".join(f"{ratio:.2f} x {name}" for name, ratio in ratios.items())
    print(f"{what}: {shown} tokens a second; {told}", flush=True)


def in_ctranslate2(model: nn.Module, threads: int) -> Any:
    """The same model in float32."""
    import ctranslate2

    from vitrail.tasks.translation.ctranslate2 import Description, write_model

    names = ["<pad>", "<s>", "t2", *(f"t{token}" for token in range(3, 8000))]
    tokens = SimpleNamespace(names=names, files=dict)
    with tempfile.TemporaryDirectory() as folder:
        about = Description(name="random", languages=("en", "de"), precision="fp32", max_tokens=512)
        write_model(SimpleNamespace(config=model.config, model=model, preparation=tokens), about, Path(folder))
        return ctranslate2.Translator(folder, intra_threads=threads)


def exported(folder: Path, file: Path, language: str, threads: int) -> None:
    import ctranslate2

    from vitrail.tasks.translation.predictor import Translator

    torch.set_num_threads(threads)
    header, *rows = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
    texts = [row[header.index(language)] for row in rows][:SENTENCES]
    alone = ctranslate2.Translator(str(folder), intra_threads=threads)
    for beams in (1, 5):
        translator = Translator(folder, beams=beams)
        names = translator.tokenizer.names
        tokens = [[names[token] for token in source] for source in translator.tokenizer.encode(texts)]
        for count in (1, 32):
            most = len(texts) if count > 1 else len(texts) // 4
            places = [slice(start, start + count) for start in range(0, most, count)]
            ways = {
                "vitrail": lambda place, t=translator: t.translate(texts[place], scores=False),
                "ctranslate2": lambda place, b=beams, given=tokens: alone.translate_batch(given[place], beam_size=b),
            }
            times = dict.fromkeys(ways, 0.0)
            for turn in range(TURNS + 1):
                for place in places:  # in turns sentence by sentence: whatever else the machine does falls on both
                    for name, way in ways.items():
                        begun = time.perf_counter()
                        way(place)
                        times[name] += (time.perf_counter() - begun) * bool(turn)
            rates = {name: TURNS * most / seconds for name, seconds in times.items()}
            shown = ", ".join(f"{name} {rate:,.1f}" for name, rate in rates.items())
            ratio = rates["vitrail"] / rates["ctranslate2"]
            print(f"beam {beams}, batch {count:>2}: {shown} sentences a second, ratio {ratio:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("train", "write", "ctranslate2"))
    parser.add_argument("--model", type=Path, help="a folder of vitrail export --to ctranslate2")
    parser.add_argument("--data", type=Path, help="a table with tabs and sentences to translate")
    parser.add_argument("--source", default="en", help="the column of the sentences")
    parser.add_argument("--threads", type=int, default=2, help="of all that writes")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if asked.only == "ctranslate2":
        exported(asked.model, asked.data, asked.source, asked.threads)
    else:
        if asked.only != "write":
            training()
        if asked.only != "train":
            writing(asked.threads)
