"""Scores of captions against COCO's own evaluation, and by hand."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from vitrail.tasks.captioning.scores import Rarity, caption_scores, most_like_all, words

CASES = json.loads((Path(__file__).parent / "coco_caption_scores.json").read_text())["cases"]
"""Random sentences with their scores by pycocoevalcap 1.2, which is COCO's evaluation."""


def test_scores_are_those_of_cocos_evaluation():
    for case in CASES:
        references = [[caption.split() for caption in own] for own in case["references"]]
        scores = caption_scores([caption.split() for caption in case["written"]], references)
        different = {"different_captions": len(set(case["written"]))}
        assert scores == pytest.approx({**case["scores"], **different}, abs=1e-9)


def test_the_caption_most_like_all_others_has_the_best_score_where_all_words_are_as_rare():
    random = np.random.default_rng(0)
    for _ in range(50):
        captions, others = ([random.integers(0, 6, random.integers(0, 9)).tolist() for _ in range(n)] for n in (7, 9))
        scores = [Rarity(5, Counter()).cider_d(caption, others) for caption in captions]
        assert most_like_all(captions, others) == int(np.argmax(scores))


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A man's dog isn't here .", "a man 's dog is n't here"),
        ("Two black-and-white dogs, running!", "two black-and-white dogs running"),
        ("It doesn’t say 'stop now'", "it does n't say stop now"),
        ("Größe 3.5 №7", "größe 3.5 7"),
        ("  ... ", ""),
        ("बाईं ओर एक सफ़ेद वर्ग है।", "बाईं ओर एक सफ़ेद वर्ग है"),  # signs belong to the word of their letter
        ("می\u200cروم، خانه", "می\u200cروم خانه"),
        ("E\u0301te\u0301, na\u00efve!", "e\u0301te\u0301 na\u00efve"),
        ("一个男人在走路。", "一 个 男 人 在 走 路"),  # each character is a word in a script without spaces
        ("赤いボール・ゲーム、人々", "赤 い ボ ー ル ゲ ー ム 人 々"),
        ("ผู้ชายกำลังเดิน", "ผู้ ช า ย ก ำ ลั ง เ ดิ น"),
        ("ຊາຍ ຄົນໜຶ່ງ", "ຊ າ ຍ ຄົ ນ ໜຶ່ ງ"),
        ("បុរសម្នាក់", "បុ រ ស ម្ នា ក់"),
        ("ယောကျ်ား", "ယော ကျ်ား"),
        ("两只iPhone-15手机", "两 只 iphone-15 手 机"),
        ("한 남자가 걷는다", "한 남자가 걷는다"),
    ],
)
def test_words_are_in_small_letters_without_punctuation(caption, expected):
    assert words(caption) == expected.split()
