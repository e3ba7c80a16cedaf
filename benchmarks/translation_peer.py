"""Train torch's nn.Transformer on the same sentences for the same time, beside `vitrail train --task translate`.

    python benchmarks/translation_peer.py --data FOLDER --source en --target de --minutes 9

A plain loop as tutorials have it: post-norm, 256 wide, three and three layers, with as many parameters as Transformer-small,
AdamW with a warm-up and a fall to zero when the time is over, label smoothing, bf16 under autocast, batches by tokens and
length. It has our tokens, batches and beam search, so that what differs is the model and how it is trained. Printed is the
BLEU of the validation sentences.
"""

import argparse
import itertools
import time
from dataclasses import dataclass
from pathlib import Path

import sacrebleu
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data.loading.loader import EpochLoader
from vitrail.data.text.dataset import filled
from vitrail.data.text.tokenizer import PAD, Tokenizer
from vitrail.models.configs.texts import TextConfig
from vitrail.models.registry import model_config
from vitrail.models.text.search import beam_search, greedy
from vitrail.models.text.text_model import TextModel
from vitrail.parts import SequencePosition
from vitrail.tasks.translation.pairs import open_pairs
from vitrail.tasks.translation.task import pair_dataset

DIM, HEADS, DEPTH, MLP, DROPOUT, SMOOTHING = 256, 4, 3, 512, 0.1, 0.1
RATE, WARM, TOKENS = 1e-3, 0.08, 4096


class Peer(nn.Module):
    """nn.Transformer with embeddings that are logits' weights, too, and sines for places."""

    def __init__(self, vocabulary: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, DIM)
        nn.init.normal_(self.embedding.weight, std=DIM**-0.5)
        self.position, self.dropout = SequencePosition(DIM), nn.Dropout(DROPOUT)
        self.body = nn.Transformer(DIM, HEADS, DEPTH, DEPTH, MLP, DROPOUT, batch_first=True)
        for weight in self.body.parameters():
            if weight.ndim > 1:
                nn.init.xavier_uniform_(weight)

    def placed(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.dropout(self.position(self.embedding(tokens) * DIM**0.5))
        return x

    def encode(self, source: Tensor) -> Tensor:
        memory: Tensor = self.body.encoder(self.placed(source), src_key_padding_mask=source == PAD)
        return memory

    def decode(self, target: Tensor, memory: Tensor, pads: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1]) < 0
        found = self.body.decoder(self.placed(target), memory, tgt_mask=causal, memory_key_padding_mask=pads)
        return F.linear(found, self.embedding.weight)


@dataclass
class Prefixes:
    """A search without a cache: all that is written so far, (A, W, T)."""

    memory: Tensor
    pads: Tensor
    written: Tensor

    def select(self, rows: Tensor) -> None:
        self.memory, self.pads, self.written = self.memory[rows], self.pads[rows], self.written[rows]

    def follow(self, parents: Tensor) -> None:
        self.written = self.written.gather(1, parents[..., None].expand(-1, -1, self.written.shape[2]))


class Searched(TextModel):
    """The peer as our search asks for it."""

    def __init__(self, peer: Peer, config: TextConfig):
        super().__init__()
        self.peer, self.config = peer, config

    def begin(self, source: Tensor) -> Prefixes:
        return Prefixes(self.peer.encode(source), source == PAD, torch.zeros(len(source), 1, 0, dtype=torch.int64))

    def step(self, tokens: Tensor, state: Prefixes) -> Tensor:
        if state.written.shape[1] != tokens.shape[1]:
            state.written = state.written.expand(-1, tokens.shape[1], -1)
        state.written = torch.cat([state.written, tokens[..., None]], dim=2)
        count, width, length = state.written.shape
        memory, pads = (t.repeat_interleave(width, dim=0) for t in (state.memory, state.pads))
        logits = self.peer.decode(state.written.reshape(count * width, length), memory, pads)[:, -1]
        return logits.float().reshape(count, width, -1)


def learn(peer: Peer, loader: EpochLoader, seconds: float) -> None:
    """Train until the time is over."""
    optimizer = torch.optim.AdamW(peer.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    begun, steps = time.perf_counter(), 0
    for epoch in itertools.count():
        for batch in loader.epoch(epoch):
            share = (time.perf_counter() - begun) / seconds
            if share >= 1:
                print(f"{epoch} epochs, {steps:,} steps, {time.process_time():,.0f} CPU seconds")
                return
            optimizer.param_groups[0]["lr"] = RATE * min(share / WARM, (1 - share) / (1 - WARM))
            with torch.autocast("cpu", torch.bfloat16):
                logits = peer.decode(batch["target"], peer.encode(batch["source"]), batch["source"] == PAD)
            loss = F.cross_entropy(
                logits.flatten(0, 1).float(), batch["labels"].flatten(), ignore_index=PAD, label_smoothing=SMOOTHING
            )
            loss.backward()
            nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            steps += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--minutes", type=float, default=9)
    asked = parser.parse_args()
    torch.manual_seed(0)
    data = open_pairs(asked.data, (asked.source, asked.target))
    pairs, validation = data.split("train"), data.split("val")
    tokenizer = Tokenizer.learned((text for pair in pairs for text in (pair.source, pair.target)), 6000)
    peer = Peer(len(tokenizer))
    print(f"{sum(weight.numel() for weight in peer.parameters()):,} parameters")
    learn(peer, EpochLoader(pair_dataset(tokenizer, pairs), TOKENS, shuffle=True), 60 * asked.minutes)
    model = Searched(peer, model_config("Transformer-small", vocabulary=len(tokenizer))).eval()
    sources, references = tokenizer.encode([pair.source for pair in validation]), [pair.target for pair in validation]
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    for beams in (1, 5):
        written = [""] * len(sources)
        for begin in range(0, len(order), 64):
            places = order[begin : begin + 64]
            source = filled([sources[place] for place in places], PAD)
            if beams == 1:
                found = greedy(model, source, max_length=60)
            else:
                found = [best[0] for best in beam_search(model, source, beams=beams, max_length=60)]
            for place, text in zip(places, found, strict=True):
                written[place] = tokenizer.decode(text.tokens)
        print(f"beam {beams}: BLEU {sacrebleu.corpus_bleu(written, [references]).score:.2f} on {len(written)} sentences")


if __name__ == "__main__":
    main()
