"""What the trials of servers share: a model, photographs, and how results are written."""

import io
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_sample_images

import vitrail
from vitrail.weights.model_folder.folder import TrainedModel


def save_model(folder: Path, name: str) -> Path:
    """A model that has learned nothing, but takes its time."""
    model = vitrail.create_model(name, num_classes=1000).eval()
    TrainedModel(model, [f"label {number}" for number in range(1000)], vitrail.Preparation.standard((224, 224))).save_pretrained(
        folder
    )
    return folder


def photographs() -> list[bytes]:
    """Two photographs, as JPEG."""
    found = []
    for pixels in load_sample_images().images:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=85)
        found.append(file.getvalue())
    return found


def marked(good: bool, text: str) -> str:
    """With a mark where a promise is not kept."""
    return text if good else f"{text} **not kept**"


def ms(seconds: float) -> str:
    """Milliseconds."""
    return f"{1000 * seconds:.0f} ms"
