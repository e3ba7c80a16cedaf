"""Samples of images with captions: the augmented image, and its captions as tokens."""

from collections.abc import Sequence

from vitrail.data.images.augment import Augmentation
from vitrail.data.images.preparation import Preparation
from vitrail.data.images.transform import Transform
from vitrail.data.loading.batches import Batch, Key
from vitrail.data.loading.dataset import NumberedDataset
from vitrail.data.targets import Nothing
from vitrail.data.text.dataset import behind_start, filled
from vitrail.data.text.tokens import Tokens
from vitrail.tasks.captioning.images.captioned_images import Captioned


class CaptionDataset(NumberedDataset):
    """Images prepared for a model, as in `ImageDataset`; a batch also has the K captions of each image.

    A batch has ``target``, int64 (B, K, T), which begins with the start token; ``labels`` (B, K, T), the token that follows
    each token of the target; and ``number``, the index of each item (B,). Captions are cut to ``most`` tokens and padded with
    ``pad``. If an image has fewer than K captions, its remaining rows consist of ``pad``.
    """

    def __init__(
        self,
        items: Sequence[Captioned],
        preparation: Preparation,
        tokens: Tokens,
        augmentation: Augmentation | None = None,
        seed: int = 0,
        *,
        most: int,
        transform: Transform | None = None,
    ):
        super().__init__(items, preparation, augmentation, seed, targets=Nothing(), transform=transform)  # type: ignore[arg-type]
        self.pad, self.start, self.most = tokens.pad, tokens.start, most
        encoded = iter(tokens.encode_targets([caption for item in items for caption in item.target]))
        self.captions = [[next(encoded)[:most] for _ in item.target] for item in items]

    def units(self, keys: Sequence[Key]) -> int:
        """Return the number of tokens to predict, including end tokens."""
        return sum(len(caption) for _, number in keys for caption in self.captions[number % len(self)])

    def batch(self, keys: Sequence[Key], own: slice = slice(None)) -> Batch:
        batch = super().batch(keys, own)
        captions = [self.captions[number] for number in batch["number"].tolist()]
        each = max(map(len, captions))
        rows = [row for several in captions for row in (*several, *[[]] * (each - len(several)))]
        labels = filled(rows, self.pad, self.most)  # (B·K, T)
        target = behind_start(labels, self.start, self.pad)
        return {**batch, **{name: table.unflatten(0, (-1, each)) for name, table in (("target", target), ("labels", labels))}}
