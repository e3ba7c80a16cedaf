"""The lines of ``vitrail export`` are true sentences."""

from deploy.small import GOOD
from vitrail.cli.ship.export import _tell, _tell_of_translator


def test_of_int8_a_line_says_that_an_image_alone_and_in_a_batch_were_compared(capsys):
    figures = {"gives": "logits", "verified": {"largest_difference": 0.0, "batches": [1, 2]}, "token_merging": 0}
    _tell(figures | {"precision": "int8", "judged": GOOD.to_dict()})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "verified   logits of an image alone and in a batch differ by at most 0.0e+00, batches [1, 2]"
    assert lines[1] == "judged     int8 loses 0.2 ± 0.1 points on 330 views of 33 images; 98.0 % of the predictions are the same"
    _tell(figures | {"precision": "fp32"})
    assert capsys.readouterr().out == "verified   logits within 0.0e+00 of the model's, batches [1, 2]\n"


def test_of_a_translator_a_line_says_how_sure_its_loss_is(capsys):
    figures = {"verified": {"largest_difference": 0.1, "same": 1.0, "sentences": 3}, "sentences": 40, "precision": "int8"}
    _tell_of_translator(figures | {"judged": {"points": 0.21, "error": 0.1}})
    assert capsys.readouterr().out.endswith("judged     int8 loses 0.2 ± 0.1 points of chrF on 40 sentences\n")
