"""Headers of archives are read to the end, and no further than one allows; damage is reported in a line.

How damaged and hostile archives are refused is tested where they are read: with shards and CIFAR-10.
"""

import io
import tarfile

import pytest

from vitrail.data.readers.archives import entries, explained
from vitrail.errors import DataError


def archive(count: int) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for number in range(count):
            entry = tarfile.TarInfo(str(number))
            entry.size = 600
            tar.addfile(entry, io.BytesIO(bytes([number]) * 600))
    file.seek(0)
    return file


def test_every_header_tells_where_its_file_lies():
    file = archive(5)
    for number, entry in enumerate(entries(file, most=2**20)):
        file.seek(entry.offset_data)  # reading in between disturbs nothing
        assert entry.name == str(number) and file.read(entry.size) == bytes([number]) * 600


def test_headers_may_have_so_many_bytes_and_no_more():
    needed = len(archive(50).getvalue()) - 50 * 1024 + 50 + 512  # without the files; a byte at the end of each, the end twice
    assert len(list(entries(archive(50), most=needed))) == 50
    for most in (needed - 1, 1000, 0):
        with pytest.raises(tarfile.TarError, match=f"more than {most:,} bytes"):
            list(entries(archive(50), most=most))


def test_damage_is_told_in_one_line(tmp_path):
    for error, words in ((OSError("first\nsecond"), "first"), (MemoryError(), "MemoryError")):
        with pytest.raises(DataError) as caught, explained(tmp_path, hint="mend it"):
            raise error
        assert caught.value.what == f"cannot read the archive: {words}"
        assert (caught.value.where, caught.value.hint) == (tmp_path, "mend it")
    with pytest.raises(DataError, match="as it was"), explained(tmp_path, hint="mend it"):
        raise DataError("as it was")
