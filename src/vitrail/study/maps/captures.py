"""Access to intermediate values of a model by name, without changing the model or its fused kernels."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from vitrail.errors import ConfigError, unknown
from vitrail.models.base import Model, Sight
from vitrail.models.structure import changed_parts
from vitrail.parts import Attention, Block, FeedForward, ParallelBlock

OnEach = Callable[[str, Tensor], None]
Images = slice | Sequence[int]
"""Indices of images in a batch."""
EVERY = slice(None)

OUTER = (
    "embedding", "target_embedding", "position", "embedding_norm", "norm", "encoder_norm", "decoder_norm", "pool", "head",
    "head_distillation", "output",
)  # fmt: skip
PROJECTED = ("queries", "keys", "values")
"""Inputs of the attention product, (B, k, N, D_h) each: after query-key norm and rotation."""
WEIGHTS = "weights"
"""Attention weights A of equation (6): (B, k, N_Q, N_X)."""
BETWEEN = "between"
"""Tokens between the two branches of a block: the input plus the attention branch."""
READ_BY = {"heads": "output_norm", "hidden": "contract"}
"""Layers whose inputs are captured: concatenated heads, (B, N, k·D_V), and the activations of an MLP."""


class Captures(dict[str, Tensor]):
    """Intermediate values of the last forward pass, by name."""

    def __missing__(self, name: str) -> Tensor:
        if not self:
            raise ConfigError("nothing is captured yet", where=name, hint="call the model inside the with statement")
        raise unknown("capture", name, list(self))


def capture_names(model: nn.Module) -> list[str]:
    """Return the names that `capture` accepts for a model, from input to logits."""
    return [f"{path}.{what}" for path, module in _places(model).items() for what in _kinds(module)]


@contextmanager
def capture(model: nn.Module, *names: str, images: Images = EVERY, each: OnEach | None = None) -> Iterator[Captures]:
    """Store the named intermediate values of every forward pass inside the ``with``.

    ``with capture(model, "blocks.*.attention.weights", "blocks.5.output") as seen: model(images)``, then
    ``seen["blocks.5.output"]``. The model still uses its fused kernels. Values that these never build, such as attention
    weights, are computed in addition, for the requested layers and images. Inputs and outputs of all images are part of the
    autograd graph; queries, keys, values and weights are computed a second time and have no gradients. If a pass calls a part
    twice, such as a Transformer's position for both texts, the second call is stored.

    Args:
        model: a model, or a module that contains one; names begin at the model.
        names: names from `capture_names`, or patterns: ``*`` matches within a dotted part, ``**`` across dots.
        images: selects images of the batch; for TNT's inner layers, whose rows are patches, it selects patches.
        each: receives every value as it is computed; the value is then not stored, which saves memory.

    Raises:
        ConfigError: an unknown name, or a model that is compiled, packs images or merges tokens.
    """
    if not names:
        raise ConfigError("nothing to capture", where="capture", hint="vitrail.capture_names(model) lists what there is")
    places, seen = _places(model), Captures()
    wanted = _matching(names, capture_names(model))

    def keep(name: str, value: Tensor) -> None:
        if each:
            each(name, value)
        else:
            seen[name] = value

    with ExitStack() as hooks:
        hooks.enter_context(model_in(model).every_token())
        for path, module in places.items():
            for handle in _hooks(module, [what for what in _kinds(module) if f"{path}.{what}" in wanted], path, keep, images):
                hooks.callback(handle.remove)
        yield seen


def _matching(patterns: Sequence[str], known: list[str]) -> set[str]:
    """Return the known names that match any pattern; raises `ConfigError` for a pattern that matches none."""
    found: set[str] = set()
    for pattern in patterns:
        matches = {name for name in known if _expression(pattern).fullmatch(name)}
        if not matches:
            raise unknown("capture", pattern, known, where="capture")
        found |= matches
    return found


def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^.]*"))


def _places(model: nn.Module) -> dict[str, nn.Module]:
    """Return the parts of a model whose values can be captured, by path."""
    whole, found = model_in(model), {}
    require_capturable(model)
    for name, module in whole.named_modules():
        inner = isinstance(module, Attention | FeedForward | Block | ParallelBlock)
        if inner or (name in OUTER and not isinstance(module, nn.Identity)):
            found[".".join(part for part in name.split(".") if part != "layer")] = module
    return found


def model_in(model: nn.Module) -> Model:
    """Return the Vitrail model inside a module, for example inside wrappers for precision or image size."""
    found = next((module for module in model.modules() if isinstance(module, Model)), None)
    if found is None:
        what = f"a {type(model).__name__} contains no Vitrail model"
        raise ConfigError(what, where="model", hint="give a model from vitrail.create_model")
    return found


def sight_of(model: nn.Module) -> Sight | None:
    """Return what a token can attend to: its window, a coarser grid, the image; None without attention."""
    return getattr(model_in(model), "sight", None)


def attends(model: nn.Module) -> bool:
    """Return whether every layer attends to the whole image, which rollout and relevance need."""
    return sight_of(model) == "image"


def hides(model: nn.Module) -> bool:
    """Return whether parts that the user changed prevent maps of a model.

    Changed heads, MLPs and last norms do not, since maps do not follow them.
    """
    whole = model_in(model)
    harmless = {*whole.heads(), "norm"}
    return any(part.split(".")[0] not in harmless and ".mlp" not in part for part in changed_parts(whole))


def require_capturable(model: nn.Module) -> None:
    """Raise `ConfigError` for a model whose values cannot be captured."""
    if any(module._compiled_call_impl is not None or hasattr(module, "_orig_mod") for module in model.modules()):
        raise ConfigError("a compiled model cannot be captured", where="capture", hint="give the model before torch.compile")
    if any(model_in(model).config.merged):
        raise ConfigError("a model that merges tokens cannot be captured", where="capture", hint="build it without token_merging")


def require_own_size(model: Any, images: Tensor) -> None:
    """Raise `ConfigError` for images of another size than the model's, even if the model accepts them."""
    size = tuple(images.shape[-2:])
    if size != model.config.image_size:
        found, own = ("×".join(map(str, sides)) for sides in (size, model.config.image_size))
        hint = f"give images of {own}, or build the model anew: from_pretrained(…, image_size={size})"
        raise ConfigError(
            f"images of {found}, and maps exist for images of {own} alone, the model's size", where="images", hint=hint
        )


def _kinds(module: nn.Module) -> tuple[str, ...]:
    if isinstance(module, Attention):
        return ("input", *PROJECTED, WEIGHTS, "heads", "output")
    if isinstance(module, FeedForward):
        return ("input", "hidden", "output")
    return ("input", BETWEEN, "output") if isinstance(module, Block) else ("input", "output")


def _hooks(module: nn.Module, kinds: list[str], path: str, keep: OnEach, images: Images) -> Iterator[RemovableHandle]:
    """Register hooks on a part that pass the requested values to ``keep``."""
    for what in kinds:
        name = f"{path}.{what}"
        if what in ("output", BETWEEN):
            maker = module.attention if isinstance(module, Block) and what == BETWEEN else module
            yield maker.register_forward_hook(lambda module, given, result, name=name: keep(name, _of(images, _tokens(result))))
        elif what in READ_BY or what == "input":
            reader = getattr(module, READ_BY[what]) if what in READ_BY else module
            yield reader.register_forward_pre_hook(lambda module, given, name=name: keep(name, _of(images, given[0])))
    beside = [what for what in kinds if what in (*PROJECTED, WEIGHTS)]
    if beside:
        yield module.register_forward_pre_hook(_attention_hook(beside, path, keep, images), with_kwargs=True)


def _attention_hook(kinds: list[str], path: str, keep: OnEach, images: Images) -> Callable[..., None]:
    """Return a hook that computes an attention's values a second time, without the fused kernel."""

    @torch.no_grad()
    def hook(attention: Attention, given: tuple[Any, ...], options: dict[str, Any]) -> None:
        if options.get("groups"):
            raise ConfigError("packed images cannot be captured", where=path, hint="give the model images of one size at a time")
        if options.get("cache"):
            raise ConfigError("single steps cannot be captured", where=path, hint="pass the full text to forward instead")
        count = len(given[0])
        x = _of(images, given[0])
        context = given[1] if len(given) > 1 else options.get("context")
        context = None if context is None else _of(images, context)
        mask, bias = (_chosen(options.get(name), images, count, x.ndim) for name in ("mask", "bias"))
        rotation = options.get("rotation") and tuple(_chosen(table, images, count, x.ndim) for table in options["rotation"])
        places = {"grid": options["grid"]} if "grid" in options else {}
        q, k, v = attention.project(x, context, rotation, **places)
        found = dict(zip(PROJECTED, (q, k, v), strict=True))
        if WEIGHTS in kinds:
            found[WEIGHTS] = attention.weights_of(q, k, mask=mask, bias=bias, causal=options.get("causal", False))
        for what in kinds:
            keep(f"{path}.{what}", found[what])

    return hook


def _tokens(result: Any) -> Tensor:
    """Return the output of a part, or the first of several outputs."""
    return result[0] if isinstance(result, tuple) else result


def _of(images: Images, value: Tensor) -> Tensor:
    """Select images; for all of them the tensor itself is returned, which is part of the autograd graph."""
    return value if images is EVERY else value[images]


def _chosen(table: Tensor | None, images: Images, count: int, ndim: int) -> Tensor | None:
    """Select the images' rows of a mask, bias or rotation, if each of ``count`` images has its own."""
    return table[images] if table is not None and table.ndim > ndim and len(table) == count > 1 else table
