"""The lines of ``vitrail export`` are true sentences."""

from vitrail.cli.ship.export import _tell


def test_of_int8_a_line_says_that_an_image_alone_and_in_a_batch_were_compared(capsys):
    figures = {"gives": "logits", "verified": {"largest_difference": 0.0, "batches": [1, 2]}, "token_merging": 0}
    judged = {"points": 0.21, "error": 0.1, "views": 330, "images": 33}
    _tell(figures | {"precision": "int8", "judged": judged})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "verified   logits of an image alone and in a batch differ by at most 0.0e+00, batches [1, 2]"
    assert lines[1] == "judged     int8 loses 0.2 ± 0.1 points on 330 views of 33 images"
    _tell(figures | {"precision": "fp32"})
    assert capsys.readouterr().out == "verified   logits within 0.0e+00 of the model's, batches [1, 2]\n"
