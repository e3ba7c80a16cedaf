"""Names beside points."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text

from vitrail.study.page.label_placement import Label, place


def written(points, *, names=("ResNet-18",) * 10, line=False):
    """A picture with these points and names, and what was written into it."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*points, strict=True), "o-" if line else "o")
    made = place(figure, axes, [Label(x, y, name, "black") for (x, y), name in zip(points, names, strict=False)])
    return figure, axes, made


def boxes(made):
    """Of the words alone, without the lines to their points."""
    made[0].figure.draw_without_rendering()
    return [Text.get_window_extent(words) for words in made]


def meet(a, b):
    return a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(st.floats(1, 9), st.floats(1, 9)), min_size=1, max_size=10))
def test_names_stay_inside_and_off_each_other_wherever_the_points_are(points):
    _, axes, made = written(points)
    found, frame = boxes(made), axes.get_window_extent()
    for box in found:
        assert frame.x0 - 1 <= box.x0 and box.x1 <= frame.x1 + 1 and frame.y0 - 1 <= box.y0 and box.y1 <= frame.y1 + 1
    assert not [pair for pair in itertools.combinations(found, 2) if meet(*pair)]


def test_a_name_with_room_stands_to_the_right_of_its_point_without_a_line_to_it():
    _, axes, (words, _) = written([(1, 1), (9, 9)])
    (box,), (x, y) = boxes([words]), axes.transData.transform((1, 1))
    assert x < box.x0 < x + 25 and box.y0 < y < box.y1
    assert words.arrow_patch is None


def test_a_name_does_not_stand_on_the_line():
    _, axes, made = written([(1, 5), (5, 5), (9, 5)], line=True)
    y = axes.transData.transform((5, 5))[1]
    assert not [box for box in boxes(made)[1:2] if box.y0 < y < box.y1]


def test_names_are_words_whatever_stands_in_them():
    figure, _, made = written([(1, 1)], names=["$x^{$"])
    figure.draw_without_rendering()
    assert made[0].get_text() == "$x^{$"
