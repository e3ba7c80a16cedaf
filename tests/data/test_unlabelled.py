"""Images without labels."""

from vitrail.data.unlabelled import unlabelled_items


def test_items_of_a_folder_of_images_and_of_one_image(pictures):
    file = pictures / "red" / "0.png"
    assert [item.name for item in unlabelled_items(pictures / "red", 3)] == ["0.png", "4.png", "7.png"]
    assert [item.name for item in unlabelled_items(file, 3)] == ["0.png"]
    assert unlabelled_items(pictures, 3) == unlabelled_items("digits", 3) == []
