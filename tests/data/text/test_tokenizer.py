"""Byte-pair encoding: any text goes in and comes out as it was."""

import json
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitrail.data.text.tokenizer import END, PAD, START, Tokenizer
from vitrail.errors import ConfigError, ModelFileError

TEXTS = ["the cat sat on the mat", "die Katze saß auf der Matte", "the cats sat"]
TOKENIZER, AS_IT_IS = Tokenizer.learned(TEXTS, 300), Tokenizer.learned(TEXTS, 300, "none")


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
@settings(max_examples=60, deadline=None)
def test_every_text_comes_back(text):
    for tokenizer, expected in ((AS_IT_IS, text.strip()), (TOKENIZER, normalize("NFKC", text.strip()).strip())):
        (tokens,) = tokenizer.encode([text.strip()])
        assert tokens[-1] == END and not {PAD, START, END} & set(tokens[:-1])
        assert tokenizer.decode(tokens) == expected


def test_the_marks_of_beginning_end_and_filling_are_never_found_in_a_text_and_left_out_of_one():
    (tokens,) = TOKENIZER.encode(["<s> </s> <pad>"])
    assert not {PAD, START, END} & set(tokens[:-1])
    of_marks = Tokenizer.learned(["<s><s><s></s></s> <pad><pad> </s>x"] * 9, 400)
    (tokens,) = of_marks.encode(["</s> <s>x <pad>"])
    assert not {PAD, START, END} & set(tokens[:-1]) and of_marks.decode(tokens) == "</s> <s>x <pad>"
    assert TOKENIZER.decode([START, *TOKENIZER.encode(["the cat"])[0], PAD, PAD]) == "the cat"


def test_what_often_stands_together_is_one_token_and_learning_is_always_the_same():
    assert len(TOKENIZER.encode(["the cat sat"])[0]) == 4
    assert len(TOKENIZER) <= 300 and Tokenizer.learned(TEXTS, 300).to_json() == TOKENIZER.to_json()
    assert Tokenizer.read(TOKENIZER.to_json(), where="x").encode(TEXTS) == TOKENIZER.encode(TEXTS)
    assert [piece.strip() for piece in TOKENIZER.pieces(TOKENIZER.encode(["the cat"])[0])] == ["the", "cat", "</s>"]


def test_too_few_tokens_and_damaged_files_are_refused():
    with pytest.raises(ConfigError, match="fewer than all bytes"):
        Tokenizer.learned(TEXTS, 258)
    for text in ("", "{}", TOKENIZER.to_json()[:-20], TOKENIZER.to_json().replace('"<pad>"', '"<mask>"')):
        with pytest.raises(ModelFileError):
            Tokenizer.read(text, where="tokenizer.json")


ANY_EXPRESSION = {"type": "Split", "pattern": {"Regex": "(a+)+b"}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told["model"].update(dropout=0.5),
        lambda told: told["pre_tokenizer"].update(add_prefix_space=False),
        lambda told: told.update(pre_tokenizer=ANY_EXPRESSION),
        lambda told: told["added_tokens"].append({**told["added_tokens"][0], "id": 259, "content": "<more>"}),
        lambda told: told["model"]["vocab"].update(other=told["model"]["vocab"].pop("!")),
        lambda told: told["model"]["vocab"].update({"!": 2**31}),  # up to which the library would count
    ],
)  # fmt: skip
def test_a_tokenizer_of_other_rules_is_refused(change):
    told = json.loads(Tokenizer.learned(["one cat"], 259).to_json())
    Tokenizer.read(json.dumps(told), where="here")
    change(told)
    with pytest.raises(ModelFileError):
        Tokenizer.read(json.dumps(told), where="here")


def test_letters_of_other_forms_are_the_same_tokens_unless_nothing_is_normalized_and_a_file_keeps_it():
    for text, plain in {"ﬁne": "fine", "ｃａｔ": "cat", "cafe\u0301": "café", "x²": "x2", "the…": "the..."}.items():
        assert TOKENIZER.encode([text]) == TOKENIZER.encode([plain]), text
        assert AS_IT_IS.encode([text]) != AS_IT_IS.encode([plain]), text
    for tokenizer in (TOKENIZER, AS_IT_IS):
        again = Tokenizer.read(tokenizer.to_json(), where="x")
        assert again.encode(["ﬁne cafe\u0301"]) == tokenizer.encode(["ﬁne cafe\u0301"])
