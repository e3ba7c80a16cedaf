"""Pickles give arrays, text and numbers; whatever else they ask for is named, and not done."""

import pickle
import struct
import sys
import tracemalloc

import numpy as np
import pytest

from vitrail.data.readers.safe_unpickle import read_pickle
from vitrail.errors import DataError

PIXELS = np.arange(24, dtype=np.uint8).reshape(4, 6)


def python_2(pixels: np.ndarray) -> bytes:
    """The pickle of ``{"data": pixels, "labels": [7, 300]}`` as Python 2 and its NumPy wrote it, opcode by opcode."""
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85U\x01btR"
    kind = b"cnumpy\ndtype\n(U\x02u1K\0K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    rows, columns = pixels.shape
    raw = b"T" + struct.pack("<I", pixels.size) + pixels.tobytes()
    data = array + b"(K\x01K" + bytes([rows]) + b"K" + bytes([columns]) + b"\x86" + kind + b"\x89" + raw + b"tb"
    return b"\x80\x02}(U\x04data" + data + b"U\x06labels](K\x07M\x2c\x01eu."


def test_a_pickle_of_python_2_is_read():
    assert pickle.loads(python_2(PIXELS), encoding="bytes")[b"labels"] == [7, 300]  # made rightly by hand
    found = read_pickle(python_2(PIXELS), where="batch")
    assert found.keys() == {b"data", b"labels"} and found[b"labels"] == [7, 300]
    np.testing.assert_array_equal(found[b"data"], PIXELS)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_pickle_of_any_protocol_is_read(protocol, order):
    data = {"labels": [0, 1, 2**40], b"names": [b"\xff\0x", "ÿ"], "more": {"nothing": None, "part": 0.5}}
    found = read_pickle(pickle.dumps({b"data": np.asarray(PIXELS, order=order), **data}, protocol), where="batch")
    np.testing.assert_array_equal(found.pop(b"data"), PIXELS)
    assert found == data


CALLS = {  # ways to have something called
    "global": lambda module, name: b"c" + module + b"\n" + name + b"\n(Vx\ntR.",
    "stack": lambda module, name: b"\x80\x04V" + module + b"\nV" + name + b"\n\x93)R.",
    "instance": lambda module, name: b"(Vx\ni" + module + b"\n" + name + b"\n.",
    "object": lambda module, name: b"(c" + module + b"\n" + name + b"\nVx\no.",
    "new object": lambda module, name: b"\x80\x02c" + module + b"\n" + name + b"\n)\x81.",
    "state": lambda module, name: b"cnumpy\nndarray\nc" + module + b"\n" + name + b"\n(Vx\ntRb.",
    "element": lambda module, name: b"(lc" + module + b"\n" + name + b"\n(Vx\ntRa.",
}
WANTED = [
    "os.system", "posix.system", "builtins.eval", "__builtin__.eval", "builtins.getattr", "builtins.open", "subprocess.Popen",
    "numpy.load", "numpy.fromfile", "numpy.memmap", "numpy.ctypeslib.load_library", "numpy.testing.runstring",
    "numpy.core.multiarray.scalar", "numpy.core.multiarray.ctypeslib", "_codecs.lookup", "numpy.dtype.__class__",
    "copyreg._reconstructor", "copy_reg._reconstructor", "trap.spring",
]  # fmt: skip


@pytest.mark.parametrize("way", CALLS)
@pytest.mark.parametrize("wanted", WANTED)
def test_what_is_no_array_is_named_and_not_even_imported(way, wanted, tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    module, _, name = wanted.rpartition(".")
    with pytest.raises(DataError, match=wanted.replace(".", r"\.")) as error:
        read_pickle(CALLS[way](module.encode(), name.encode()), where="batch")
    assert error.value.where == "batch" and error.value.hint
    assert {name for name in sys.modules if not name.startswith("encodings.")} <= before


def test_nothing_of_numpy_runs_and_nothing_is_kept(monkeypatch):
    """Calls and states that NumPy itself would choke on are notes like all others."""
    for content in (
        b"cnumpy\ndtype\n(Vno type\ntR.",
        b"cnumpy\nndarray\n((I1000000\nI1000000\nI1000000\nttR.",
        b"cnumpy\nndarray\n(dVshape\nI0\nsb.",
        b"cnumpy.core.multiarray\n_reconstruct\n(Vx\ntR(dV__call__\nI0\nsb.",
        b"c_codecs\nencode\n(Vx\nVrot13\ntR.",
        b"cnumpy\nndarray\n.",
    ):
        with pytest.raises(DataError, match="where data should be"):
            read_pickle(content, where="batch")
    np.testing.assert_array_equal(read_pickle(python_2(PIXELS), where="batch")[b"data"], PIXELS)


@pytest.mark.parametrize(
    "array", [np.array([None, "x"]), np.arange(3.0), np.arange(3), np.array(["ab"]), np.zeros(2, [("a", "u1")])]
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_arrays_of_other_types_are_refused(array, protocol):
    with pytest.raises(DataError, match="the pickle holds"):
        read_pickle(pickle.dumps({"data": array}, protocol), where="batch")


LONG = {
    "text of Python 2": (b"T", "<I"), "number": (b"\x8b", "<I"), "short bytes": (b"B", "<I"), "short text": (b"X", "<I"),
    "bytes": (b"\x8e", "<Q"), "text": (b"\x8d", "<Q"), "bytearray": (b"\x96", "<Q"),
}  # fmt: skip
"""What tells its own length: its opcode, and the form of the length. 1 GiB is given to whoever asks, and never there."""


@pytest.mark.parametrize(
    "bomb",
    [
        b"]r\x00\x00\x00\x02.",  # remembered at place 2**25
        *(b"\x80\x05" + code + struct.pack(size, 2**30) + b"x." for code, size in LONG.values()),  # so many bytes to come
        *(b"\x80\x05\x95" + struct.pack("<Q", 11) + code + struct.pack(size, 2**30) + b"x." for code, size in LONG.values()),
        b"\x80\x04\x95" + struct.pack("<Q", 2**30) + b"].",  # in a frame of that length
        b"\x80\x02]" + b"".join(b"q" + bytes([i]) + b"](" + (b"h" + bytes([i])) * 10 + b"e" for i in range(200)) + b".",
        b"\x80\x02]q\0h\0a.",  # a list in itself
        pickle.dumps(PIXELS, 2).replace(b"K\x04K\x06", b"K\xffK\xff"),
    ],
    ids=["memo", *LONG, *(f"{name} in a frame" for name in LONG), "frame", "laughs", "itself", "shape"],
)
def test_bombs_take_no_memory(bomb):
    tracemalloc.start()
    try:
        read_pickle(bomb, where="batch")
    except DataError as error:
        assert error.where == "batch"
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.soak
def test_damaged_pickles_are_refused_or_read():
    whole, random, refused = pickle.dumps({"data": PIXELS, "labels": [1, 2, 3, 4]}, 2), np.random.default_rng(0), 0
    for _ in range(500):
        content = bytearray(whole)
        for position in random.integers(0, len(content), 3):
            content[position] = random.integers(0, 256)
        try:
            read_pickle(bytes(content[: random.integers(1, 2 * len(content))]), where="batch")
        except DataError:
            refused += 1
    assert refused > 100
