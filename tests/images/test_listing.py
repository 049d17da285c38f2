"""Which pictures folders and tables of labels hold, and what they are labelled."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from aucmax.images.listing import list_folder, list_labels, list_source, list_unlabeled


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def note(listed, *parts):
    """Whether a note says all of it."""
    return any(all(part in one for part in parts) for one in listed.notes)


def exactly(message):
    return re.escape(message)


# ---- A folder for each class ---------------------------------------------------------------------


def test_folder_is_listed_in_natural_order(tmp_path):
    touch(tmp_path, *(f"well/img{k}.png" for k in (10, 9, 1, 100)), "sick/b/2.JPG", "sick/b/10.tif")
    touch(tmp_path, "sick/a.jpeg", "well/img010.png")
    listed = list_folder(tmp_path)
    assert listed.names == (
        "sick/a.jpeg",
        "sick/b/2.JPG",
        "sick/b/10.tif",
        "well/img1.png",
        "well/img9.png",
        "well/img010.png",
        "well/img10.png",
        "well/img100.png",
    )
    assert listed.labels == ("sick",) * 3 + ("well",) * 5
    assert listed.classes == ("well", "sick")
    assert [path.relative_to(tmp_path).as_posix() for path in listed.files] == list(listed.names)
    assert listed.group is None
    assert listed.weight is None
    assert listed.notes == ("'sick' is taken as the positive label: 3 of 8 files",)


def test_files_of_a_relative_folder(tmp_path, monkeypatch):
    touch(tmp_path, "data/a/1.png", "data/b/1.png")
    monkeypatch.chdir(tmp_path)
    listed = list_folder(Path("data"))
    assert listed.files == (Path("data/a/1.png"), Path("data/b/1.png"))
    assert listed.names == ("a/1.png", "b/1.png")


@pytest.mark.parametrize(
    ("counts", "positive", "classes"),
    [
        ((3, 2), None, ("a", "b")),
        ((2, 3), None, ("b", "a")),
        ((2, 2), None, ("a", "b")),
        ((3, 2), "a", ("b", "a")),
        ((2, 3), " B", ("a", "b")),
    ],
)
def test_rarer_class_is_positive_by_default(tmp_path, counts, positive, classes):
    for label, count in zip("ab", counts, strict=True):
        touch(tmp_path, *(f"{label}/{k}.png" for k in range(count)))
    listed = list_folder(tmp_path, positive=positive)
    assert listed.classes == classes
    assert note(listed, "both have 2 files") == (counts == (2, 2))
    assert note(listed, "is taken as the positive label") == (positive is None)


def test_several_classes_in_order(tmp_path):
    touch(tmp_path, "10/a.png", "9/a.png", "9/b.png", "x/a.png")
    assert list_folder(tmp_path).classes == ("9", "10", "x")
    with pytest.raises(ValueError, match="folder must have two classes where positive is given"):
        list_folder(tmp_path, positive="x")


def test_other_files_are_counted_by_suffix(tmp_path):
    touch(tmp_path, "a/1.png", "b/1.png", "b/2.png", "a/Thumbs.db", "b/Thumbs.DB", "b/README")
    touch(tmp_path, "a/._1.png", ".git/1.png", "a/.hidden/1.png", "notes.txt")
    listed = list_folder(tmp_path)
    assert listed.names == ("a/1.png", "b/1.png", "b/2.png")
    assert listed.notes[0] == "skipped as no pictures: 2 .db, 1 .txt, 3 hidden, 1 without suffix"


def test_stray_pictures_and_empty_classes_are_noted(tmp_path):
    touch(tmp_path, "a/1.png", "b/1.png", "1.png", "2.png", "c/none.txt")
    listed = list_folder(tmp_path)
    assert listed.names == ("a/1.png", "b/1.png")
    assert note(listed, "beside the folders of the classes", "2")
    assert note(listed, "no picture in 'c'")


def test_folders_that_differ_in_case_are_joined(tmp_path):
    touch(tmp_path, "Cat/1.png", "cat/2.png", "cat/3.png", "dog/1.png")
    listed = list_folder(tmp_path)
    assert listed.names == ("Cat/1.png", "cat/2.png", "cat/3.png", "dog/1.png")
    assert listed.labels == ("cat", "cat", "cat", "dog")
    assert note(listed, "2 'cat', 1 'Cat' as 'cat'")


def test_links_are_followed_once(tmp_path):
    touch(tmp_path, "elsewhere/2.png", "data/a/1.png")
    (tmp_path / "data" / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "a" / "round").symlink_to(tmp_path / "data")
    assert list_folder(tmp_path / "data").names == ("a/1.png", "b/2.png")


def test_broken_link_is_listed(tmp_path):
    touch(tmp_path, "a/1.png", "b/1.png")
    (tmp_path / "a" / "2.png").symlink_to(tmp_path / "gone.png")
    assert list_folder(tmp_path).names == ("a/1.png", "a/2.png", "b/1.png")


def test_names_that_are_not_utf8(tmp_path):
    touch(tmp_path, "a/1.png", "b/1.png")
    (tmp_path / "a" / os.fsdecode(b"caf\xe9.png")).write_bytes(b"")
    listed = list_folder(tmp_path)
    assert listed.names[1] == "a/caf\N{REPLACEMENT CHARACTER}.png"
    assert listed.files[1].read_bytes() == b""


@pytest.mark.parametrize(
    ("names", "positive", "message"),
    [
        (["a/1.txt"], None, "folder must hold pictures (.jpg, "),
        (["a/1.txt", "b/2.txt", ".x/1.png"], None, "found 2 .txt, 1 hidden in "),
        (["1.png", "2.png"], None, "folder must hold a folder for each class, found 2 pictures"),
        (["a/1.png"], None, "folder must have two classes or more, found 'a' alone"),
        (["a/1.png", "b/1.png"], "c", "positive must be one of 'a', 'b', found 'c'"),
        ([f"{k}/1.png" for k in range(101)], None, "at most 100 classes, found 101: '0', '1', "),
    ],
)
def test_folder_that_cannot_be_used_raises(tmp_path, names, positive, message):
    touch(tmp_path, *names)
    with pytest.raises(ValueError, match=exactly(message)):
        list_folder(tmp_path, positive=positive)


def test_missing_folder_raises(tmp_path):
    with pytest.raises(ValueError, match=r"folder must be a folder, found '.*none', which is none"):
        list_folder(tmp_path / "none")


# ---- A table of labels ---------------------------------------------------------------------------


@pytest.fixture
def images(tmp_path):
    touch(tmp_path / "images", *(f"img{k}.png" for k in range(1, 7)), "deep/img7.jpg")
    return tmp_path / "images"


def listed_from(images, text, **options):
    table = images.parent / "labels.csv"
    table.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list_labels(table, images, **{"path": "file", "target": "label", **options})


def test_table_is_listed_in_its_order(images):
    listed = listed_from(
        images,
        "label,file,patient,w\n 1 ,img3.png,p1,2\n0,deep/img7.jpg,p2,0.5\n0,./img1.png,p1,0\n",
        group="patient",
        weight="w",
    )
    assert listed.names == ("img3.png", "deep/img7.jpg", "img1.png")
    assert listed.files == tuple(images / name for name in listed.names)
    assert listed.labels == ("1", "0", "0")
    assert listed.classes == ("0", "1")
    assert listed.group == ("p1", "p2", "p1")
    assert np.array_equal(listed.weight, [2, 0.5, 0])
    assert listed.notes == ("'1' is taken as the positive label: 1 of 3 files",)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_delimiters_encodings_and_line_ends(images, delimiter, encoding, newline):
    rows = [["file", "label"], ["img1.png", "café"], ['"img2.png"', '"thé"'], ["img3.png", "thé"]]
    text = newline.join(delimiter.join(row) for row in rows) + newline
    listed = listed_from(images, text.encode(encoding))
    assert listed.labels == ("café", "thé", "thé")
    assert listed.names == ("img1.png", "img2.png", "img3.png")


def test_values_keep_their_zeros(images):
    touch(images, "007.png", "7.png")
    listed = listed_from(images, "file,label,who\n007,yes,01\n7,no,1\n", group="who")
    assert listed.names == ("007.png", "7.png")
    assert listed.group == ("01", "1")


def test_missing_suffixes_and_absolute_paths(images):
    touch(images, "v1.2.TIF")
    elsewhere = images.parent / "elsewhere.png"
    touch(images.parent, "elsewhere.png")
    listed = listed_from(
        images,
        f"file,label\nimg2,a\ndeep/img7,b\nv1.2,b\n{images}/img5.png,b\n{elsewhere},b\n",
    )
    assert listed.names == ("img2.png", "deep/img7.jpg", "v1.2.TIF", "img5.png", str(elsewhere))
    assert all(path.is_file() for path in listed.files)
    assert note(listed, "without their suffix", "3")


def test_rows_without_a_label_are_left_out(images):
    listed = listed_from(
        images, "file,label,g\nimg1.png,a,1\nimg2.png,,\ngone.png, ,\nimg3.png,b,2\n", group="g"
    )
    assert listed.names == ("img1.png", "img3.png")
    assert "rows without 'label', left out: 2" in listed.notes


def test_missing_marks_are_left_out_if_two_labels_remain(images):
    listed = listed_from(images, "file,label\nimg1,a\nimg2,NA\nimg3,b\nimg4,b\nimg5,NA\n")
    assert listed.classes == ("b", "a")
    assert "rows without 'label', left out: 2 (2 'NA')" in listed.notes
    assert listed_from(images, "file,label\nimg1,a\nimg2,NA\nimg3,a\n").classes == ("a", "NA")


def test_several_columns_of_labels(images):
    listed = listed_from(
        images,
        "file,edema,nodule\nimg1,1.0,NO\nimg2,,yes\nimg3,,NA\nimg4,0,\nimg1.png,1,no\n",
        target=["edema", "nodule"],
    )
    assert listed.names == ("img1.png", "img2.png", "img4.png")
    assert listed.labels == ((1, 0), (None, 1), (0, None))
    np.testing.assert_array_equal(listed.numbers, [[1, 0], [np.nan, 1], [0, np.nan]])
    assert listed.classes == ("edema", "nodule")
    assert "rows without a label, left out: 1" in listed.notes
    assert note(listed, "not known, of 4 rows", "1 of 'edema', 1 of 'nodule'")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("img1,1,1\nimg2,0,-1\n", "found '-1' in row 2 of 'b', the first being 1"),
        ("img1,1,1\nimg2,0,1\n", r"must be columns that hold 1 and 0 both, found \[1\] in 'b' of"),
        ("img1,1,\nimg2,0,\n", "found neither in 'b' of"),
        (
            "img1,1,1\nimg2,0,0\nimg1,1,0\n",
            r"'img1.png' with \(1, 1\) and \(1, 0\)",
        ),
    ],
)
def test_several_columns_that_cannot_be_used_raise(images, text, said):
    with pytest.raises(ValueError, match=said):
        listed_from(images, f"file,a,b\n{text}", target=["a", "b"])


def test_spellings_of_a_label_are_joined(images):
    listed = listed_from(
        images, "file,label\nimg1,Yes\nimg2,yes\nimg3, yes\nimg4,no\nimg5,NO\nimg6,no\n"
    )
    assert listed.labels == ("yes", "yes", "yes", "no", "no", "no")
    assert note(listed, "are joined", "2 'no', 1 'NO' as 'no'", "2 'yes', 1 'Yes' as 'yes'")
    numbers = listed_from(images, "file,label\nimg1,1.0\nimg2,0.0\nimg3,0\n", positive="1")
    assert numbers.labels == ("1", "0", "0")


def test_picture_listed_twice_is_kept_once(images):
    listed = listed_from(images, f"file,label\nimg1.png,a\nimg2,b\nimg1,a\n{images}/img1.png,A\n")
    assert listed.names == ("img1.png", "img2.png")
    assert note(listed, "list a picture again", "2")


WEIGHT, GROUP = {"weight": "w"}, {"group": "g"}
REFUSED_TABLES = {
    "two labels": ("file,label\nimg1,a\nimg2,b\nimg1.png,b\n", {}, "path must .* 'a' and 'b'"),
    "two groups": ("file,label,g\nimg1,a,1\nimg2,b,1\nimg1.png,a,2\n", GROUP, "path .*one group"),
    "missing": ("file,label\nx1,a\nx2.png,b\nimg1,b\nx3,b\n,a\n", {}, "path .* 4 of 5 .* 'x3', "),
    "outside": ("file,label\n../labels,a\nimg1,b\n", {}, "path .* 1 of 2 .* '../labels'"),
    "Excel": ("PK\x03\x04\x14", {}, "labels must be a table in CSV, found an Excel file"),
    "no column": ("name,labels\nimg1,a\n", {"path": "name"}, "target .* found 'label'"),
    "empty": ("", {}, "path .* not in no columns"),
    "column twice": ("file,label,label\nimg1,a,b\n", {}, "target must be one column, found 2"),
    "same column": ("file,label\nimg1,a\n", {"group": "file"}, "group must be another column"),
    "one label": ("file,label\nimg1,a\nimg2,a\n", {}, "target must have two classes or more"),
    "no label": ("file,label\nimg1,\n", {}, "target .*found none alone"),
    "positive": ("file,label\nimg1,a\nimg2,b\n", {"positive": "c"}, "positive must be one of"),
    "ragged": ("file,label\nimg1,a\nimg2,b,c\n", {}, "labels must be a table in CSV"),
    "group gap": ("file,label,g\nimg1,a,1\nimg2,b,\nimg3,b,nan\n", GROUP, "group .* 2 .* in row 2"),
    "weight < 0": ("file,label,w\nimg1,a,1\nimg2,b,-1\n", WEIGHT, "weight .* '-1' in row 2 of 'w'"),
    "no weight": ("file,label,w\nimg1,a,\nimg2,b,1\n", WEIGHT, "weight .* '' in row 1 of 'w'"),
    "infinite": ("file,label,w\nimg1,a,inf\nimg2,b,1\n", WEIGHT, "weight .* 'inf' in row 1"),
    "word": ("file,label,w\nimg1,a,x\nimg2,b,1\n", WEIGHT, "weight .* 'x' in row 1 of 'w'"),
    "weights 0": ("file,label,w\nimg1,a,0\nimg2,b,0\n", WEIGHT, "weight must be above 0 in some"),
    "decimals": ("file;label;w\nimg1;a;1,5\nimg2;b;0.5\n", WEIGHT, "weight .* '1,5' in row 1"),
    "thousands": ("file;label;w\nimg1;a;1,500\nimg2;b;2\n", WEIGHT, "weight .* '1,500' in 'w'"),
}


@pytest.mark.parametrize(("text", "options", "said"), REFUSED_TABLES.values(), ids=REFUSED_TABLES)
def test_table_that_cannot_be_used_raises(images, text, options, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        listed_from(images, text, **options)


@pytest.mark.parametrize("target", [None, "label"])
def test_file_without_columns_raises(tmp_path, target):
    labels = tmp_path / "labels.csv"
    labels.write_text("x" * 200_000, encoding="utf-8")  # more than a field may have
    with pytest.raises(ValueError, match=r"labels must be a table in CSV, found .*labels\.csv'"):
        list_source(labels, target=target)


def test_weights_with_decimal_commas(images):
    text = "file;label;w\nimg1;a;1,500\nimg2;b;2\nimg3;b;,25\n"
    listed = listed_from(images, text, weight="w")
    assert listed.weight.tolist() == [1.5, 2, 0.25]
    assert note(listed, "weights written with a decimal comma: 2")


def test_suffixes_that_differ_in_case(images):
    listed = listed_from(images, "file,label\nimg1.PNG,a\ndeep/img7.Jpg,b\nimg2.png,b\n")
    assert listed.names == ("img1.png", "deep/img7.jpg", "img2.png")
    assert note(listed, "files listed with a suffix that differs in case: 2")
    with pytest.raises(ValueError, match=r"that are not there: 'IMG3.png', 'img3.jpg'"):
        listed_from(images, "file,label\nIMG3.png,a\nimg3.jpg,a\nimg2.png,b\n")
    touch(images, "img2.PNG")
    with pytest.raises(ValueError, match=r"one file, found 'img2.PNG', 'img2.png' for 'img2.Png'"):
        listed_from(images, "file,label\nimg2.Png,a\nimg1.png,b\n")


def test_ambiguous_name_raises(images):
    touch(images, "img1.jpg")
    with pytest.raises(ValueError, match=r"one file, found 'img1.jpg', 'img1.png' for 'img1'"):
        listed_from(images, "file,label\nimg1,a\nimg2,b\n")
    assert listed_from(images, "file,label\nimg1.jpg,a\nimg2,b\n").names[0] == "img1.jpg"


def test_missing_table_or_images_raise(images):
    with pytest.raises(
        ValueError, match=r"labels must be a file that can be read, found .*No such"
    ):
        list_labels(images / "none.csv", images, path="file", target="label")
    (images / "labels.csv").write_text("file,label\nimg1,a\n")
    with pytest.raises(ValueError, match=r"images must be a folder, found '.*none', which is none"):
        list_labels(images / "labels.csv", images / "none", path="file", target="label")


# ---- Without labels ------------------------------------------------------------------------------


def test_list_unlabeled(tmp_path):
    touch(tmp_path, "10.png", "9.png", "a/b/1.webp", "a/notes.txt", ".hidden.png")
    files, names, notes = list_unlabeled(tmp_path)
    assert "1 .txt" in notes[0]
    assert names == ("9.png", "10.png", "a/b/1.webp")
    assert files == tuple(tmp_path / name for name in names)
    assert list_unlabeled(tmp_path / "a" / "notes.txt") == (
        (tmp_path / "a" / "notes.txt",),
        ("notes.txt",),
        (),
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "source must be a folder or a picture, found "),
        ("", "source must hold pictures (.jpg, .jpeg, "),
    ],
)
def test_list_unlabeled_without_pictures_raises(tmp_path, name, message):
    with pytest.raises(ValueError, match=exactly(message)):
        list_unlabeled(tmp_path / name)


def test_folder_of_splits_raises(tmp_path):
    for part in ("train", "test"):
        for name in ("ok/a.png", "defect/b.png"):
            (tmp_path / part / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / part / name).touch()
    found = r"found 'defect', 'ok' in each of 'test', 'train': name one of these"
    with pytest.raises(ValueError, match=rf"{found}, such as .*train, with --test .*test to judge"):
        list_folder(tmp_path)
    assert list_folder(tmp_path / "train").classes
    (tmp_path / "test" / "c.png").touch()  # of something else
    assert list_folder(tmp_path).classes
