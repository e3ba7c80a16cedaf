"""Settings of a run of segmentation. Imports no torch."""

from typing import Annotated, Any

from pydantic import BeforeValidator

from vitrail.tasks.settings import TaskSettings


def names(value: Any) -> Any:
    """Split ``sky,7,#00ff00``, as the command line gives it, into its parts."""
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


class SegmentationSettings(TaskSettings):
    """Settings of segmentation: a class for every pixel."""

    name: str = "segment"
    void: Annotated[tuple[str, ...], BeforeValidator(names)] = ()
    """Classes that are neither learned nor scored, beside those called void, unlabeled or ignore: names, values in the masks, or
    colours such as #000000."""

    def require_data(self, source: str) -> None:
        from vitrail.tasks.segmentation.files.sources import require_there

        require_there(source)


SETTINGS = SegmentationSettings
