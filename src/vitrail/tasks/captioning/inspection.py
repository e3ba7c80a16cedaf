"""A check and samples of images with captions."""

import textwrap
from typing import Any

from vitrail.data.checks.found import Found
from vitrail.runtime.observer import Note
from vitrail.tasks.captioning.images.sources import open_captions, tells_captions
from vitrail.tasks.inspection import Inspection, InspectionRequest


class CaptionInspection(Inspection):
    """A check of all images and captions, and a sheet of sample images with a caption each."""

    def tells(self, source: str) -> bool:
        return tells_captions(source)

    def check(self, request: InspectionRequest) -> Found:
        from vitrail.tasks.captioning.images.check import check_captions

        return check_captions(request.data, **request.progress)

    def sheet(self, run: Any, split: str, count: int, note: Note) -> Any:
        from vitrail.data.loading.dataset import ImageDataset
        from vitrail.data.loading.sampler import some_items
        from vitrail.data.targets import Nothing
        from vitrail.study.page.samples import augmentation_sheet
        from vitrail.tasks.captioning import data as captions

        captions.require_of_captions(run)
        opened = open_captions(run.data.source, **run.data.splitting)
        opened.tell(note)
        picked: Any = some_items(opened.split(split), count, run.training.seed)
        preparation = captions.DATA.preparation_of(run, opened)
        dataset = ImageDataset(picked, preparation, run.augmentation, run.training.seed, targets=Nothing())
        return augmentation_sheet(dataset, range(len(picked)), [], about=lambda item: textwrap.fill(item.target[0], 24))


INSPECTION = CaptionInspection()
