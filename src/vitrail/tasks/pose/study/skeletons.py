"""Drawing of joints and limbs on images, visible on any background and to colour-blind readers.

Positions are (x, y) in pixels of the image; the centre of the first pixel is (0, 0).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageColor, ImageDraw, ImageFont

from vitrail.data.images.box_preparation import Box
from vitrail.data.images.decode import decode
from vitrail.study.page.figures import BLUE, ORANGE, bare, canvas, short_path, styled
from vitrail.tasks.pose.metrics import Found, marked_joints
from vitrail.tasks.pose.people.limbs import drawn_limbs
from vitrail.tasks.pose.people.people import Person
from vitrail.tasks.pose.people.skeleton import Skeleton

LEFT, RIGHT, MIDDLE = BLUE, ORANGE, "#222222"
"""Colours of the left and right side and the middle, which colour-blind readers can tell apart."""
SHADES = (0.0, 0.5, 0.25)
"""Fractions of white in the colours of successive people."""
CONFIDENT = 0.3
"""Score below which joints are drawn fainter."""
FAINT = 95
"""Opacity of faint joints, of 255."""
LINE, RIM, DOT = 0.011, 0.4, 0.85
"""Width of a limb as a fraction of the image's size; white outline and radius of a joint as fractions of that width."""
THIN, NUMBER, LEAST_NUMBER = 0.5, 4.0, 12.0
"""Line width of a box and height of its number as fractions of a limb's width, and the number's least height in pixels."""
RING = 0.045
"""Radius of a ring around a joint, as a fraction of the image's longer side."""
FINE, FINEST = 2048, 4
"""Size in pixels, and maximum factor, to which small images are enlarged for drawing, which makes lines smooth."""
SHOWN, PAIRS = 12, 3
"""Number of worst predictions on a sheet, and number in a row."""
CELL, BOLD = 340, 0.02
"""Pixels of an image's longer side on the sheet, and `LINE` for these small images."""
AROUND = 1.25
"""Size of the shown part, relative to a box around the person and the joints."""


def draw_people(
    picture: Image.Image,
    joints: np.ndarray,
    skeleton: Skeleton,
    scores: np.ndarray | None = None,
    *,
    line: float = LINE,
    boxes: Sequence[Box] = (),
) -> Image.Image:
    """Draw the skeletons of people on an image, with different colours for left and right.

    Args:
        picture: upright image of any size.
        joints: (N, K, 2); joints that are NaN are not drawn.
        skeleton: defines the limbs, and the side of each joint.
        scores: (N, K); joints with a low score are drawn fainter; None if all are certain.
        line: width of a limb as a fraction of the image's size.
        boxes: boxes of the N people, drawn with numbers from 1; empty for none.
    """
    factor = max(1, min(FINEST, FINE // max(picture.size)))
    layer = Image.new("RGBA", (factor * picture.width, factor * picture.height))
    pen = ImageDraw.Draw(layer)
    width = factor * max(1.5, line * (picture.width * picture.height) ** 0.5)
    for number, box in enumerate(boxes, 1):
        _draw_box(pen, factor, box, number, width)
    sure = np.ones(joints.shape[:2], bool) if scores is None else scores >= CONFIDENT
    for number, (places, certain) in enumerate(zip(joints, sure, strict=True)):
        strokes = list(_strokes(factor * (places + 0.5) - 0.5, certain, skeleton, SHADES[number % len(SHADES)]))
        for faint in (True, False):
            some = [stroke for stroke in strokes if stroke.faint is faint]
            for rim in (RIM, 0.0):
                for stroke in some:
                    stroke.draw(pen, width, rim * width)
    return Image.alpha_composite(picture.convert("RGBA"), layer.reduce(factor)).convert("RGB")


def _draw_box(pen: ImageDraw.ImageDraw, factor: int, box: Box, number: int, width: float) -> None:
    """Draw a box with a white outline and the person's number in its corner, on a layer ``factor`` times larger."""
    left, top = factor * (box.left + 0.5) - 0.5, factor * (box.top + 0.5) - 0.5
    corners, thin = (left, top, left + factor * box.width, top + factor * box.height), THIN * width
    font = ImageFont.load_default(max(NUMBER * width, factor * LEAST_NUMBER))
    for colour, more in (("white", 2 * RIM), (MIDDLE, 0.0)):
        pen.rectangle(corners, None, colour, max(1, round(thin + more * thin)))
    pen.text((left + 2 * thin, top + thin), str(number), MIDDLE, font, stroke_width=round(thin), stroke_fill="white")


def ringed(picture: Image.Image, place: np.ndarray) -> Image.Image:
    """Draw a white ring around a position (2,)."""
    copy, radius = picture.copy(), max(4.0, RING * max(picture.size))
    pen, centre = ImageDraw.Draw(copy), (place + 0.5).tolist()
    for more, colour, width in ((2, MIDDLE, 5), (0, "white", 2)):
        pen.circle(centre, radius + more, None, colour, width)
    return copy


class Stroke(NamedTuple):
    """A limb between two positions, (2, 2), or a joint at one, (1, 2)."""

    places: np.ndarray
    colour: tuple[int, int, int]
    faint: bool

    def draw(self, pen: ImageDraw.ImageDraw, width: float, rim: float) -> None:
        """Draw the white outline of width ``rim``, or for 0 the stroke in its colour."""
        colour = (*((255, 255, 255) if rim else self.colour), FAINT if self.faint else 255)
        if len(self.places) == 2:
            pen.line([tuple(place) for place in self.places.tolist()], colour, round(width + 2 * rim))
        else:
            pen.circle(self.places[0].tolist(), DOT * width + rim, colour)


def _strokes(places: np.ndarray, certain: np.ndarray, skeleton: Skeleton, shade: float) -> Iterator[Stroke]:
    """Yield all limbs, then all joints, of a person at positions (K, 2)."""
    there, colours = np.isfinite(places).all(axis=1), _colours(skeleton, shade)
    for one, other in ((skeleton.joints.index(one), skeleton.joints.index(other)) for one, other in drawn_limbs(skeleton)):
        if there[one] and there[other]:
            sides = {colours[one], colours[other]} - {colours[-1]}
            colour = sides.pop() if len(sides) == 1 else colours[-1]
            yield Stroke(places[[one, other]], colour, not (certain[one] and certain[other]))
    for joint in np.flatnonzero(there):
        yield Stroke(places[[joint]], colours[joint], not certain[joint])


def _colours(skeleton: Skeleton, shade: float) -> list[tuple[int, int, int]]:
    """Return the colour of each joint, then the colour of limbs on neither side."""
    of = dict.fromkeys(skeleton.joints, MIDDLE)
    for left, right in skeleton.complete.pairs or ():
        of[left], of[right] = LEFT, RIGHT
    plain = [ImageColor.getrgb(colour)[:3] for colour in (*of.values(), MIDDLE)]
    return [(r + round(shade * (255 - r)), g + round(shade * (255 - g)), b + round(shade * (255 - b))) for r, g, b in plain]


@styled
def worst_sheet(
    people: Sequence[Person],
    found: Found,
    skeleton: Skeleton,
    quality: np.ndarray,
    captions: Sequence[str],
    *,
    count: int = SHOWN,
) -> Figure:
    """Draw the ``count`` people of lowest quality (N,), worst first, with predicted next to annotated joints; NaN is skipped."""
    order = [number for number in np.argsort(quality, kind="stable").tolist() if not np.isnan(quality[number])][:count]
    lines, pairs = max(1, -(-len(order) // PAIRS)), min(PAIRS, max(1, len(order)))
    figure, grid = canvas(3.3 * pairs, 2.45 * lines, lines, 3 * pairs - 1, width_ratios=[*([6, 6, 1] * pairs)][:-1])
    for axes in grid.flat:
        bare(axes)
        axes.set_anchor("N")
    for place, number in enumerate(order):
        shown = grid[place // PAIRS, 3 * (place % PAIRS) :][:2]
        said = (short_path(people[number].name, 24), captions[number])
        for axes, picture, words in zip(shown, _both(people[number], found, number, skeleton), said, strict=True):
            axes.imshow(picture)
            axes.set_xlabel(words, fontsize=7, parse_math=False)
        if place < PAIRS:
            for axes, title in zip(shown, ("found", "marked"), strict=True):
                axes.set_title(title, fontsize=9)
    return figure


def _both(person: Person, found: Found, number: int, skeleton: Skeleton) -> tuple[Image.Image, Image.Image]:
    """Draw a person with the predicted joints, and with the annotated ones."""
    (places,), (marked,) = marked_joints([person], skeleton)
    picture = decode(person.image)
    box = _shown(person, places[marked], picture.size)
    left, top, right, bottom = box
    scale = CELL / max(right - left, bottom - top)
    size = max(1, round(scale * (right - left))), max(1, round(scale * (bottom - top)))
    part = picture.resize(size, Image.Resampling.LANCZOS, box)

    def drawn(joints: np.ndarray, scores: np.ndarray | None = None) -> Image.Image:
        return draw_people(part, (scale * (joints + 0.5 - (left, top)) - 0.5)[None], skeleton, scores, line=BOLD)

    answer = drawn(found.joints[number], found.scores[number][None])
    return answer, drawn(np.where(marked[:, None], places, np.nan))


def _shown(person: Person, marked: np.ndarray, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Return the part of an image around a person and the annotated joints (M, 2); the full image if they are outside."""
    box = person.target.box
    corners = np.concatenate([marked, [box[:2], (box.left + box.width, box.top + box.height)]])
    low, high = corners.min(axis=0), corners.max(axis=0) + 1
    rim = (AROUND - 1) / 2 * max(high - low)
    left, top = np.clip(low - rim, 0, size)
    right, bottom = np.clip(high + rim, 0, size)
    return (float(left), float(top), float(right), float(bottom)) if right > left and bottom > top else (0, 0, *size)
