"""Damage to the bytes of a file, whatever it holds, and to the headers of files of tensors."""

import json
import pickletools
import random
import struct
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

NUMBERS = (0, 1, 2, 3, 7, 127, 255, 256, 65_535, 65_536, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
HUGE = (*NUMBERS, -1, -2, -(2**31), 2**40, 2**53, 2**62, 2**63 - 1, -(2**63), 2**64, 10**30)
"""What stands in the place of a number: limits of types, and beyond."""


def forget_sums(root: Path) -> None:
    """Take away what model folders know of their files, or whatever is spoilt would be refused unread.

    Checkpoints are nothing without theirs, which are written anew where one is spoilt.
    """
    for sums in root.rglob("SHA256SUMS"):
        if not sums.parent.name.startswith("step-"):
            sums.unlink()


def spoil_bytes(content: bytes, chance: random.Random, other: bytes) -> bytes:
    """A file cut off, with bits or bytes changed, with a block of zeros, or spliced with another; most often near its head."""
    end = len(content) if chance.random() < 0.5 else min(len(content), 400)
    at = chance.randrange(max(1, end))
    kind = chance.randrange(11)
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[: chance.choice((0, 1, 4, 8, max(0, len(content) - 1)))]
    if kind in (2, 3):
        found = bytearray(content or b"\0")
        for _ in range(chance.choice((1, 1, 2, 8, 50))):
            place = chance.randrange(len(found) if chance.random() < 0.5 else min(len(found), 400))
            found[place] = found[place] ^ (1 << chance.randrange(8)) if kind == 2 else chance.randrange(256)
        return bytes(found)
    if kind in (4, 5):
        length = chance.choice((1, 4, 8, 64, 4096))
        return content[:at] + (b"\0" if kind == 4 else b"\xff") * length + content[at + length :]
    if kind == 6:
        return content[:at] + other[min(at, len(other)) :]
    if kind == 7:
        return content[:at] + chance.randbytes(chance.randrange(1, 40)) + content[at:]
    if kind == 8:
        return content[:at] + content[at + chance.randrange(1, 60) :]
    if kind == 9:
        number = struct.pack("<I", chance.choice(NUMBERS))
        return content[:at] + number + content[at + 4 :]
    return content + other


# safetensors: eight bytes of length, a JSON object with the place of every tensor, the numbers


def spoil_safetensors(content: bytes, chance: random.Random) -> bytes:
    """A header that claims something else: types, shapes, places that overlap or lie outside, keys twice, deep values."""
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    names = [name for name in header if name != "__metadata__"] or ["x"]
    entry, other = (header.setdefault(chance.choice(names), {}) for _ in range(2))
    kind = chance.randrange(9)
    if kind == 0:
        entry["dtype"] = chance.choice(
            ("F64", "F32", "F16", "BF16", "I64", "I8", "U8", "BOOL", "F8_E4M3", "C64", "F4", "X", 3, None)
        )
    elif kind == 1:
        sides = entry.get("shape") or [1]
        sides[chance.randrange(len(sides))] = chance.choice(HUGE)
    elif kind == 2:
        entry["shape"] = chance.choice(([], [0], [2**40, 0], [1] * 70, [1] * 5000, [2**32, 2**32], "x", None, [[1]], [1.5]))
    elif kind == 3:
        entry["data_offsets"] = list(other.get("data_offsets", [0, 4]))
    elif kind == 4:
        entry["data_offsets"] = [chance.choice((*HUGE, len(data), len(data) + 1)) for _ in range(2)]
    elif kind == 5:
        header["__metadata__"] = _odd(chance)
    elif kind == 6:
        header[chance.choice(("", "\x00", "x" * 100_000, "a.b", names[0] + " "))] = dict(entry)
    text = json.dumps(header)
    if kind == 7:
        name = json.dumps(chance.choice(names))
        text = text[:-1] + f", {name}: {json.dumps(entry)}}}"
    elif kind == 8:
        text = '{"a":' + "[" * (depth := chance.choice((100, 2000, 100_000))) + "]" * depth + "}"
    claimed = chance.choice(HUGE[3:]) % 2**64 if chance.random() < 0.1 else len(text.encode())
    return struct.pack("<Q", claimed) + text.encode() + data


def _odd(chance: random.Random) -> Any:
    told = ("{", "[" * 5000, "[]", json.dumps({"id2label": {"0": 1}}), json.dumps({"preprocessor_config": {"size": -1}}))
    return chance.choice(({"format": 3}, {"format": "\ud800"}, [], "x", *({"vitrail": text} for text in told)))


# archives: .npz, and torch's .pth, whose pickle says which tensor is which part of which member


def spoil_archive(content: bytes, chance: random.Random) -> bytes:
    """Members renamed, left out, twice, spoilt, compressed; numbers in a pickle or the head of an array changed."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        members = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
    at = chance.randrange(len(members))
    pickles = [number for number, (name, _) in enumerate(members) if name.endswith(".pkl")]
    if pickles and chance.random() < 0.6:
        at = pickles[0]
    name, inner = members[at]
    kind = chance.randrange(9)
    if kind == 0:
        members[at] = (chance.choice((name + "x", "../" + name, "/etc/x", "", name.upper(), members[0][0])), inner)
    elif kind == 1:
        del members[at]
    elif kind == 2:
        members.append((name, chance.choice((inner, b"", inner[::-1]))))
    elif name.endswith(".pkl") and kind < 8:
        members[at] = (name, spoil_pickle(inner, chance))
    elif name.endswith(".npy") and kind < 8:
        members[at] = (name, _spoil_array(inner, chance))
    else:
        members[at] = (name, spoil_bytes(inner, chance, members[0][1]))
    found = BytesIO()
    packing = zipfile.ZIP_DEFLATED if chance.random() < 0.2 else zipfile.ZIP_STORED
    with zipfile.ZipFile(found, "w", packing) as archive:
        for name, inner in members:
            archive.writestr(name, inner)
    return found.getvalue()


def _spoil_array(content: bytes, chance: random.Random) -> bytes:
    """The head of an array of NumPy's, which is a dictionary of Python's."""
    types = [("<f4", kind) for kind in ("|O", "<f8", "<U9", "<c8", "<i4", "[('a','<f4')]")]
    shapes = [("(", text) for text in ("(((", "(0, ", "(-1, ", "(2**62, ", "(4611686018427387904, ", "(65536, 65536, ")]
    words = [("False", "True"), ("shape", "shap"), ("{", "[" * 50), ("descr", "fortran_order"), (",)", ",1,1,1)")]
    before, after = chance.choice(types + shapes + words)
    return content[:10] + content[10:].replace(before.encode(), after.encode(), 1)


INTEGERS = {"BININT": "<i", "BININT1": "<B", "BININT2": "<H"}


def spoil_pickle(content: bytes, chance: random.Random) -> bytes:
    """A pickle of torch's whose numbers (sizes, strides, places) or names (of types, of members) are others."""
    found = [(code, value, at) for code, value, at in pickletools.genops(content)]
    numbers = [one for one in found if one[0].name in INTEGERS]
    texts = [one for one in found if one[0].name in ("BINUNICODE", "GLOBAL")]
    if numbers and chance.random() < 0.75:
        for code, _, at in sorted(
            chance.sample(numbers, min(len(numbers), chance.choice((1, 1, 2, 6)))), key=lambda one: -one[2]
        ):
            length = 1 + struct.calcsize(INTEGERS[code.name])
            value = chance.choice(HUGE)
            made = (
                b"J" + struct.pack("<i", value)
                if -(2**31) <= value < 2**31
                else b"\x8a\x10" + (value % 2**127).to_bytes(16, "little")
            )
            content = content[:at] + made + content[at + length :]
        return content
    code, value, at = chance.choice(texts or found)
    if code.name == "BINUNICODE":
        text = chance.choice(("", "cuda", "meta", "99", "x" * 5000, "cpu:7", str(value) + ".x")).encode()
        return content[:at] + b"X" + struct.pack("<I", len(text)) + text + content[at + 5 + len(str(value).encode()) :]
    if code.name == "GLOBAL":
        storages = [f"torch {kind}Storage" for kind in ("Half", "Long", "QInt8", "Bool", "ComplexFloat")]
        calls = [f"torch._utils _rebuild_{what}" for what in ("parameter", "sparse_tensor", "qtensor")]
        name = chance.choice((*storages, *calls, "os system", "collections OrderedDict"))
        return content[:at] + b"c" + name.replace(" ", "\n").encode() + b"\n" + content[at + 2 + len(str(value)) :]
    return spoil_bytes(content, chance, content)


# CTranslate2: names and shapes as counted numbers before every block of data


def spoil_model_bin(content: bytes, chance: random.Random) -> bytes:
    """A number before the data of a variable: how long its name is, of how many sides, of which type, of how many bytes."""
    places: list[tuple[int, int]] = [(0, 4)]
    at = 4 + 2 + struct.unpack_from("<H", content, 4)[0]
    places += [(4, 2), (at, 4), (at + 4, 4)]
    count, at = struct.unpack_from("<I", content, at + 4)[0], at + 8
    for _ in range(count):
        places.append((at, 2))
        at += 2 + struct.unpack_from("<H", content, at)[0]
        sides = content[at]
        places += [(at, 1), *((at + 1 + 4 * side, 4) for side in range(sides)), (at + 1 + 4 * sides, 1), (at + 2 + 4 * sides, 4)]
        at += 6 + 4 * sides + struct.unpack_from("<I", content, at + 2 + 4 * sides)[0]
    place, size = chance.choice(places)
    value = chance.choice(NUMBERS) % 256**size
    return content[:place] + value.to_bytes(size, "little") + content[place + size :]


def rewrite(file: Path, content: bytes) -> None:
    """In the place of a file; what it was linked to stays as it is."""
    file.unlink()
    file.write_bytes(content)
