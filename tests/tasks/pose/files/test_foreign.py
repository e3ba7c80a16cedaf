"""Other tools' files are refused by the tool's name, with the way to a format that is read."""

import json

import pytest

from vitrail.errors import DataError
from vitrail.tasks.pose.files.sources import read_people, tells_people

TASK = {"id": 1, "data": {"img": "1.png"}, "annotations": [{"result": [{"type": "keypointlabels", "value": {"x": 1, "y": 2}}]}]}


@pytest.mark.parametrize(("values", "message", "way"), [
    ([TASK], "Label Studio's own JSON", "export it there in the format COCO"),
    ({"id": 1, "data": {}, "completions": []}, "Label Studio's own JSON", "COCO"),
    ([{"img": "1.png", "id": 1, "kp-1": [], "annotator": 1, "lead_time": 2.5}], "Label Studio's short JSON", "COCO"),
    ([{"image_id": 1, "category_id": 1, "keypoints": [1, 2, 2], "score": 1}], "a list of results in COCO's format", "--boxes"),
    ({"version": "5.0", "shapes": [], "imagePath": "1.png"}, "LabelMe's JSON of one image", "COCO's format for keypoints"),
    ({"_via_settings": {}, "_via_img_metadata": {}}, "a project of the VGG Image Annotator", "COCO"),
    ([], "has no images, annotations and categories", "cocodataset"),
    ([5], "has no images, annotations and categories", "cocodataset"),
])  # fmt: skip
def test_json_of_other_tools_is_refused_by_the_tools_name_with_the_way(tmp_path, values, message, way):
    (tmp_path / "export.json").write_text(json.dumps(values))
    with pytest.raises(DataError, match=message) as error:
        read_people(tmp_path / "export.json")
    assert way in error.value.hint


@pytest.mark.parametrize("header", [
    "scorer,,,ann,ann\nbodyparts,,,nose,nose\ncoords,,,x,y\n",
    "scorer,ann,ann\nindividuals,mouse1,mouse1\nbodyparts,nose,nose\ncoords,x,y\n",
    "scorer;ann;ann\nbodyparts;nose;nose\ncoords;x;y\n",
    "\ufeffscorer,ann,ann\r\nbodyparts,nose,nose\r\ncoords,x,y\r\n",
])  # fmt: skip
def test_a_table_of_deeplabcut_is_refused_by_its_name_with_the_way(tmp_path, header):
    (tmp_path / "CollectedData.csv").write_text(header + "labeled-data/v/1.png,13.5,10.2\n", encoding="utf-8")
    assert tells_people(tmp_path / "CollectedData.csv")
    with pytest.raises(DataError, match="is a table of DeepLabCut, whose header of several lines") as error:
        read_people(tmp_path / "CollectedData.csv")
    assert "image,nose_x,nose_y" in error.value.hint
