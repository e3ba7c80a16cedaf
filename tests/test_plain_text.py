"""Cleaning of texts: what nobody can see goes, what a script needs stays."""

import pytest

from vitrail.files import read_lines
from vitrail.plain_text import clean, is_odd

SAME = {
    "two blanks": "the  red dog", "tab": "the\tred dog", "no-break": "the\u00a0red dog", "narrow no-break": "the\u202fred dog",
    "ideographic": "the\u3000red dog", "thin": "the\u2009red dog", "line ends": "the\r\nred\n dog", "U+2028": "the\u2028red dog",
    "next line": "the\x85red dog", "NUL": "the\0red dog", "escape": "the\x1bred dog", "zero width": "the \u200bred dog",
    "mark of order": "\ufeffthe red dog", "soft hyphen": "the red d\u00adog", "direction": "\u200ethe \u202ered\u202c dog\u2069",
    "word joiner": "the r\u2060ed dog", "joiner": "the red\u200d dog", "selector": "the red dog\ufe0f",
    "tag": "the red d\U000e0041og",
    "filler": "the red dog\u3164", "variation beside a blank": "the \ufe0fred dog", "grapheme joiner": "the red d\u034fog",
    "around": "\u200b \u00a0the red dog\u200f\n",
}  # fmt: skip


@pytest.mark.parametrize("kind", SAME)
def test_invisible_characters_and_blanks_of_all_kinds_make_no_difference(kind):
    assert clean(SAME[kind]) == "the red dog"
    assert is_odd(SAME[kind]) == (kind not in ("two blanks", "tab", "line ends"))


@pytest.mark.parametrize("text", ["\u00a0", "\u200b", "\ufeff", "\u200e", "\u2060\u00ad", "\0", "\u200d", "\u3000\n", "\ufe0f"])
def test_a_text_of_them_alone_is_empty(text):
    assert clean(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم",
        "क्\u200dष",
        "👩\u200d👩\u200d👧",
        "❤\ufe0f ok",
        "🏴\U000e0067\U000e0062\U000e007f",
        "葛\U000e0100",
        "naïve – “x”",
        "50 %",
    ],
)
def test_what_a_script_needs_stays(text):
    assert clean(text) == text and not is_odd(text)


def test_letters_are_composed_and_half_a_letter_is_a_question_mark():
    assert clean("e\u0301tude") == "étude" and clean("a\ud83d") == "a?"


def test_the_lines_of_a_file_end_at_line_ends_alone_and_are_clean(tmp_path):
    (tmp_path / "labels.txt").write_bytes("\ufeffcat\u200b\r\n\u00a0\nred\u2028dog\x0cx\rant".encode())
    assert read_lines(tmp_path / "labels.txt") == ["cat", "red dog x", "ant"]
