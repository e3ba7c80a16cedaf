"""The settings of tasks. Imports no torch."""

from typing import Annotated, Literal

from pydantic import Field

from vitrail.models.configs.base import Positive
from vitrail.models.configs.texts import CAPTION_BEAMS, CAPTION_NO_REPEAT, LONGEST_CAPTION
from vitrail.settings import Settings
from vitrail.tasks.pose.people.skeleton import Boxes, BoxScale, Skeleton, SmallerSizes, Smoothing


class TaskSettings(Settings):
    """What is learned."""

    name: str = "classification"
    """A name of `vitrail.tasks.registry`; whether an image may have several labels is for the data to say."""


class ReconstructionSettings(TaskSettings):
    """Masked autoencoding (He et al. 2021, https://arxiv.org/abs/2111.06377)."""

    name: str = "mae"
    mask_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.75
    """Share of the patches that the encoder does not see, and whose pixels the decoder draws."""
    decoder_dim: Positive = 512
    """Width of the decoder."""
    decoder_depth: Positive = 8
    """Blocks of the decoder."""
    decoder_heads: Positive = 16
    """Attention heads of the decoder."""
    normalize_patches: bool = True
    """Whether the pixels of a patch are to be drawn without its mean, divided by its deviation."""


class TranslationSettings(TaskSettings):
    """One language to another."""

    name: str = "translate"
    source: str = ""
    """The language that is read: a column of the data, or the suffix of a file."""
    target: str = ""
    """The language that is written."""
    vocabulary: Positive = 6000
    """Number of tokens that both languages are cut into, at most; a translator to start from brings its own."""
    normalization: Literal["nfkc", "none"] = "nfkc"
    """What texts go through before they are cut into tokens: Unicode's NFKC, as SentencePiece has it, or nothing; a translator to
    start from brings its own."""
    bad_lines: Literal["stop", "skip"] = "stop"
    """What a line that is no pair does: end the run, or stay out of it."""
    max_length: Positive = 256
    """Tokens of a sentence; longer ones are not learned from."""
    beams: Positive = 5
    """Translations that are followed side by side when the model is evaluated."""


class CaptionSettings(TaskSettings):
    """A sentence about an image."""

    name: str = "caption"
    text: str | None = None
    """A file with a sentence in each line, of which the decoder learns to write before it sees an image."""
    text_epochs: Annotated[int, Field(ge=1, le=1000)] = 3
    """Passes over those sentences."""
    vocabulary: Positive = 3000
    """Number of tokens that captions are cut into, at most; a captioner to start from brings its own."""
    normalization: Literal["nfkc", "none"] = "nfkc"
    """What captions go through before they are cut into tokens: Unicode's NFKC, or nothing; a captioner to start from brings its
    own."""
    max_length: Positive = LONGEST_CAPTION
    """Tokens of a caption; of a longer one the rest is not learned from."""
    beams: Positive = CAPTION_BEAMS
    """Captions that are followed side by side when the model is evaluated."""
    samples: Annotated[int, Field(ge=0, le=1024)] = 0
    """Captions that are drawn from the model for each image: of the beams the one most like them is taken (minimum Bayes risk).
    0 takes the likeliest."""
    no_repeat: Annotated[int, Field(ge=0, le=16)] = CAPTION_NO_REPEAT
    """So many tokens in a row are written once in a caption; 0 for no such rule."""


class PoseSettings(TaskSettings):
    """Where the joints of people are."""

    name: str = "pose"
    skeleton: Skeleton | None = None
    """Limbs, pairs and sigmas in place of those that the data tells or that follow from the joints' names."""
    boxes: Boxes = "annotations"
    """Whether people are cut out by the data's own boxes, by the smallest around their joints (joints), or not at all (image);
    or a file of a detector's boxes in COCO's format: each person, in validation, too, takes the one that overlaps the own box
    the most, and keeps the own one where none does by half."""
    upright: Literal["auto", "always", "never"] = "auto"
    """Whether people are turned upright by their shoulders and hips before they are learned from, for people who stand, lie and
    fall in every direction. Where they are to be found, a box is looked at in eight turns, which takes eight times the time. It
    needs a square input; auto does it with one, where a fifth of the people lean by more than 45 degrees, and goes on as
    before with a model that has been trained on people."""
    box_scale: BoxScale | None = None
    """How much larger than the box is what the model sees. By default as in the model to start from, else 1.25, as is usual. The
    model keeps it."""
    smaller_sizes: SmallerSizes | None = None
    """Sizes in which a box is looked at beside the model's own where joints are to be found, as shares of it. With 0.9 and 0.8 it
    takes two and a half times the time, and finds more of a model that has learned from smaller images than its own size
    (``schedule.last_image_size``). Epochs are compared without. By default as in the model to start from, else none. The model
    keeps it."""
    sigma: Annotated[float, Field(gt=0, le=100)] = 2.0
    """Deviation of the bells that are learned, in places of the heatmap, of which a patch has four along each side."""
    smoothing: Smoothing | None = None
    """Deviation by which heatmaps are smoothed before a joint is read from them, in places; 0 for none. By default as in the
    model to start from, else 2. The model keeps it."""
    mirror: bool = True
    """Whether evaluation takes the mean of the answers to an image and to its mirror image, which takes twice the time. Where a
    box is looked at in eight turns, mirror images add nothing and are left out."""


class DistillationSettings(Settings):
    """Learning from a teacher's answers as well (Touvron et al. 2021, https://arxiv.org/abs/2012.12877)."""

    teacher: str | None = None
    """A trained model of the same classes (``--teacher``); a student with a class token gets one that learns from it."""
    given: str = ""
    """A teacher that was given in Python, in a few words; settings cannot hold it, and who resumes the run gives it again."""
    kind: Literal["hard", "soft"] = "hard"
    """Learn the class that the teacher is surest of, or all its probabilities."""
    weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the loss that is the teacher's."""
    temperature: Annotated[float, Field(gt=0, le=1e3)] = 3.0
    """What both models' logits are divided by where probabilities are learned."""
    once: bool = False
    """Whether the teacher answers once for every training image as it is, before the first step, and not for every view of it:
    much cheaper where it is large, or epochs are many. Needs memory for its logits; images cannot be mixed."""

    @property
    def has_teacher(self) -> bool:
        """Whether there is one at all."""
        return bool(self.teacher or self.given)
