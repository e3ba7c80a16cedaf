"""Damage to what a file means: values of JSON and YAML, tensors by name, fields of a graph. The file itself stays well formed."""

import copy
import json
import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from file_bytes import HUGE, rewrite
from safetensors.torch import load_file, save_file

TEXTS = (
    "",
    "x",
    "\ud800",
    "\x00",
    "../../etc/passwd",
    "0",
    "-1",
    "nan",
    "1e999",
    "vitrail",
    "é" * 3,
    "x" * 70_000,
    "__class__",
    "%s",
)


def odd_value(chance: random.Random) -> Any:
    """Something that nobody expects."""
    kind = chance.randrange(8)
    if kind == 0:
        return chance.choice(HUGE)
    if kind == 1:
        return chance.choice((float("nan"), float("inf"), -float("inf"), 1e308, -1e-308, 0.5, -0.0))
    if kind == 2:
        return chance.choice(TEXTS)
    if kind == 3:
        return chance.choice((None, True, False, [], {}, [None], {"": None}, [[]], {"a": {"b": []}}))
    if kind == 4:
        return [chance.choice(HUGE) for _ in range(chance.choice((1, 2, 3, 4, 2000)))]
    if kind == 5:
        value: Any = 0
        for _ in range(chance.choice((3, 50, 400))):
            value = [value] if chance.random() < 0.8 else {"a": value}
        return value
    if kind == 6:
        return {str(number): chance.choice(TEXTS[:8]) for number in range(chance.choice((1, 3, 1000)))}
    return 10 ** chance.choice((20, 400, 5000))


def spoil_values(values: Any, chance: random.Random) -> Any:
    """A value replaced by one of another kind, a key renamed, removed or added, or two that change places."""
    values = copy.deepcopy(values)
    places = [
        (inside, key) for inside in _containers(values) for key in (inside if isinstance(inside, dict) else range(len(inside)))
    ]
    if not places:
        return odd_value(chance)
    inside, key = chance.choice(places)
    kind = chance.randrange(10)
    if kind == 0:
        del inside[key]
    elif kind == 1 and isinstance(inside, dict):
        inside[chance.choice((f"{key}x", str(key).upper(), f" {key}", "", "vitrail", "model_type"))] = inside.pop(key)
    elif kind == 2 and isinstance(inside, dict):
        inside[chance.choice(("x", "__proto__", "\ud800", "labels", "num_classes", "num_labels"))] = odd_value(chance)
    elif kind == 3:
        other, name = chance.choice(places)
        inside[key], other[name] = other[name], inside[key]
    elif kind == 4 and isinstance(inside[key], int | float) and not isinstance(inside[key], bool):
        inside[key] = chance.choice(
            (-inside[key], inside[key] + 1, inside[key] * 2, inside[key] * 1000, str(inside[key]), [inside[key]])
        )
    else:
        inside[key] = odd_value(chance)
    return values


def _containers(values: Any) -> Iterator[Any]:
    if isinstance(values, dict | list):
        yield values
        for inner in values.values() if isinstance(values, dict) else values:
            yield from _containers(inner)


def spoil_json(file: Path, chance: random.Random) -> None:
    """One or a few values of a JSON file, or of a line of one of lines."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.suffix == ".jsonl" else [file.read_text(encoding="utf-8")]
    at = chance.randrange(max(1, len(lines)))
    values = json.loads(lines[at])
    for _ in range(chance.choice((1, 1, 1, 3))):
        values = spoil_values(values, chance)
    lines[at] = "1" + "0" * 5000 if chance.random() < 0.01 else json.dumps(values)
    rewrite(file, "\n".join(lines).encode("utf-8", "surrogatepass"))


YAML_LINES = (
    "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n", "x: !!python/object/apply:os.system [true]\n", "? [1, 2]\n: 3\n",
    "<<: {model: 3}\n", "model: 2024-01-01\n", "model: 0x" + "f" * 3000 + "\n", "x: " + "[" * 3000 + "\n", "\t\n",
    "--- a\n--- b\n", "1: 2\n", "null: 3\n", "x: !!binary aGk=\n", "x: !!set {a, b}\n", "x: 1:30:22\n", "x: &x [*x]\n",
    "x: *y\n",
)  # fmt: skip


def spoil_yaml(file: Path, chance: random.Random) -> None:
    """One or a few values of a YAML file, or a line of YAML's stranger parts."""
    text = file.read_text(encoding="utf-8")
    if chance.random() < 0.2:
        lines = text.splitlines(keepends=True)
        lines.insert(chance.randrange(len(lines) + 1), chance.choice(YAML_LINES))
        rewrite(file, "".join(lines).encode())
        return
    values = yaml.load(text, Loader=yaml.CSafeLoader)
    for _ in range(chance.choice((1, 1, 1, 3))):
        values = spoil_values(values, chance)
    rewrite(file, yaml.dump(values, Dumper=yaml.CSafeDumper, sort_keys=False).encode("utf-8", "surrogatepass"))


# tensors


def spoil_tensors(file: Path, chance: random.Random) -> None:
    """Tensors left out, renamed, exchanged, of other shapes, types and numbers, or parts of larger ones."""
    tensors = _read(file)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        _spoil_tensor(tensors, chance, pickled=file.suffix == ".pth")
    file.unlink()
    if file.suffix == ".npz":
        np.savez(
            file, **{name: tensor.contiguous().numpy() for name, tensor in tensors.items() if tensor.dtype != torch.bfloat16}
        )
    elif file.suffix == ".pth":
        torch.save(tensors, file, _use_new_zipfile_serialization=chance.random() < 0.8)
    else:
        save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, file)


def _read(file: Path) -> dict[str, Any]:
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    if file.suffix == ".pth":
        content = torch.load(file, weights_only=True)
        return dict(content.get("model", content)) if isinstance(content, dict) else {}
    return load_file(file)


def _spoil_tensor(tensors: dict[str, Any], chance: random.Random, *, pickled: bool) -> None:
    if not tensors:
        return
    name, other = (chance.choice(list(tensors)) for _ in range(2))
    tensor = tensors[name]
    kind = chance.randrange(15 if pickled else 12)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[
            chance.choice((name + "x", name.replace("0", "9"), name.replace("0", "9999"), name.replace(".", "/"), "x", ""))
        ] = tensors.pop(name)
    elif kind == 2:
        tensors[name], tensors[other] = tensors[other], tensor
    elif kind == 3:
        tensors[name] = tensor.mT if tensor.ndim >= 2 else tensor[None]
    elif kind == 4:
        tensors[name] = tensor.reshape(chance.choice(((-1,), (1, -1), (-1, 1), (1, 1, 1, -1), (-1, 1, 1, 1, 1))))
    elif kind == 5:
        tensors[name] = tensor.to(
            chance.choice((torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.bfloat16))
        )
    elif kind == 6:
        tensors[name] = torch.full_like(
            tensor, chance.choice((float("nan"), float("inf"), 3e38)) if tensor.is_floating_point() else 2**30
        )
    elif kind == 7:
        tensors[name] = tensor[:0] if tensor.ndim else torch.zeros(0)
    elif kind == 8:
        tensors[name] = torch.cat([tensor, tensor]) if tensor.ndim else tensor.repeat(5)
    elif kind == 9:
        tensors[name] = tensor.flatten()[0] if tensor.numel() else torch.zeros(())
    elif kind == 10:
        tensors[name] = tensor[..., : max(1, tensor.shape[-1] // 2)] if tensor.ndim else tensor
    elif kind == 11:
        tensors[chance.choice((other + ".x", "blocks.999.norm1.weight", "module." + other, "x" * 3000))] = tensor
    elif kind == 12:
        sides = tuple(chance.choice((1, 4, 2**12, 2**20, 2**30)) for _ in range(max(1, tensor.ndim)))
        tensors[name] = torch.zeros(1).expand(sides) if np.prod([float(side) for side in sides]) < 2**60 else tensor
    elif kind == 13:
        flat = torch.cat([tensor.flatten(), tensor.flatten()]).contiguous()
        tensors[name] = (
            flat.as_strided(tensor.shape, [chance.choice((0, 1, 2)) for _ in tensor.shape]) if tensor.numel() else tensor
        )
    else:
        quantised = torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8)
        plain = (None, 3, [tensor], {"x": tensor}, torch.nn.Parameter(tensor.float()))
        tensors[name] = chance.choice((tensor.to_sparse(), quantised, tensor.to("meta"), *plain))


# graphs


def spoil_xml(file: Path, chance: random.Random) -> None:
    """Attributes and elements of OpenVINO's graph."""
    tree = ElementTree.parse(file)
    elements = [element for element in tree.iter() if element.attrib or len(element)]
    for _ in range(chance.choice((1, 1, 1, 3))):
        element = chance.choice(elements)
        kind = chance.randrange(6)
        if kind == 0 and len(element):
            element.remove(chance.choice(list(element)))
        elif kind == 1 and len(element):
            element.append(copy.deepcopy(chance.choice(list(element))))
        elif element.attrib:
            name = chance.choice(list(element.attrib))
            if kind == 2:
                del element.attrib[name]
            else:
                texts = (
                    *map(str, HUGE),
                    *TEXTS[:2],
                    "f64",
                    "i64",
                    "string",
                    "1,2,3",
                    "-1,-1",
                    "?",
                    "Parameter",
                    "Result",
                    "Const",
                )
                element.attrib[name] = chance.choice(texts)
        else:
            element.text = chance.choice(("x", "0", "-1", str(2**62)))
    file.unlink()
    tree.write(file)


def spoil_onnx(file: Path, chance: random.Random) -> None:
    """Fields of a message of ONNX, however deep."""
    import onnx

    model = onnx.load(file, load_external_data=False)
    messages = [model]
    for message in messages:
        for field, value in message.ListFields():
            if field.message_type is not None:
                messages.extend(value if field.is_repeated else [value])
    for _ in range(chance.choice((1, 1, 1, 3))):
        message = chance.choice(messages)
        if fields := message.ListFields():
            _spoil_field(message, *chance.choice(fields), chance)
    rewrite(file, model.SerializeToString())


def _spoil_field(message: Any, field: Any, value: Any, chance: random.Random) -> None:
    kind = chance.randrange(4)
    if kind == 0 or (field.message_type is not None and not field.is_repeated):
        message.ClearField(field.name)
    elif field.message_type is not None:
        at = chance.randrange(len(value))
        if kind == 1:
            del value[at]
        else:
            value.append(value[chance.randrange(len(value))])
    else:
        made = _odd_field(field, chance)
        if field.is_repeated:
            value[chance.randrange(len(value))] = made
        else:
            setattr(message, field.name, made)


def _odd_field(field: Any, chance: random.Random) -> Any:
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        text = chance.choice(("", "x", "logits", "images", "Loop", "If", "MatMul", "Reshape", "9" * 30, "../x", "ai.onnx.ml"))
        return text.encode() if field.type == field.TYPE_BYTES else text
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return chance.choice((float("nan"), float("inf"), 0.0, -1e30))
    large = field.type in (field.TYPE_INT64, field.TYPE_UINT64)
    return chance.choice((0, 1, 2, 7, 16, 255, 2**31 - 1, *((2**40, 2**62, 2**63 - 1, -1) if large else ())))
