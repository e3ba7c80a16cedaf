"""What learns: a model, and how one batch after another changes it."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from vitrail.data.preparation import Preparation
from vitrail.errors import ConfigError
from vitrail.models.base import Model
from vitrail.runtime.device import pick_device
from vitrail.runtime.processes import ALONE, Processes
from vitrail.training import parallel
from vitrail.training.checkpoint import Tensors
from vitrail.training.optimizer import create_optimizers, freeze
from vitrail.training.schedule import image_size_at, learning_rate_factor, patch_dropout_at
from vitrail.training.settings import RunSettings
from vitrail.training.task import Task
from vitrail.training.teacher import Teacher
from vitrail.training.tuning import choose_parts

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Step:
    """What a step came to, over all processes: the loss summed over the images, and the images whose answer is right.

    ``failure`` says what was not finite; then nothing was changed.
    """

    loss: float
    right: int
    images: int
    failure: str | None = None


class Learner:
    """A model with its optimizers, its average and its scaler, where it computes; of several processes, one's part.

    Args:
        settings: those of the run.
        model: what learns.
        preparation: normalizes the pixels.
        task: what is minimised.
        total: steps of the whole run, of which ``warmup`` warm the learning rate up.
        teacher: what else there is to learn from.
        group: the processes that learn together.
    """

    def __init__(
        self,
        settings: RunSettings,
        model: Model,
        preparation: Preparation,
        task: Task,
        *,
        total: int,
        warmup: int,
        teacher: Teacher | None = None,
        group: Processes = ALONE,
    ):
        self.settings, self.preparation, self.task, self.teacher, self.group = settings, preparation, task, teacher, group
        self.total, self.warmup = total, warmup
        t = settings.training
        self.device = pick_device(t.device)
        self.model = model.to(self.device)
        choose_parts(self.model, settings)
        freeze(self.model, settings.optimizer)  # before DDP, which waits for the gradient of all that has one
        self.average = AveragedModel(self.model, multi_avg_fn=_moving_average(t.ema), use_buffers=True) if t.ema else None
        self.shared = self._shared()
        self.forward: Callable[..., Any] = torch.compile(self.shared) if t.compile else self.shared
        self.statistics = [table for m in self.model.modules() if isinstance(m, nn.BatchNorm2d) for table in m.buffers()]
        self.optimizers = create_optimizers(self.model, settings.optimizer)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=t.precision == "fp16")

    def _shared(self) -> nn.Module:
        """The model as it is called, by several processes together."""
        t = self.settings.training
        model = self._any_size() if self.settings.schedule.first_image_size else self.model
        if self.group.count == 1:
            return model
        if t.parallel == "ddp":
            return parallel.with_averaged_gradients(model, self.device)
        if model is not self.model:
            raise ConfigError(
                "images that grow do not go with --parallel fsdp", where="schedule.first_image_size", hint="take --parallel ddp"
            )
        if t.precision == "fp16":
            hint = "take bf16, or --parallel ddp"
            raise ConfigError("fp16 does not go with --parallel fsdp", where="training.precision", hint=hint)
        for one in (self.model, self.evaluated) if self.average else (self.model,):
            parallel.shard(one, self.group, self.device)
        return self.model

    def _any_size(self) -> nn.Module:
        first, full = self.settings.schedule.first_image_size, self.model.config.image_size
        if first is not None and any(a > b for a, b in zip(first, full, strict=True)):
            raise ConfigError(
                f"images cannot grow from {first[0]} × {first[1]} to the model's {full[0]} × {full[1]}",
                where="schedule.first_image_size",
                hint="give a size below --image-size",
            )
        return self.model.at_any_size()

    def _grown(self, images: Tensor, done: int) -> Tensor:
        """Images of the size that they have by now."""
        config = self.model.config
        size = image_size_at(self.settings.schedule, config.image_size, config.size_multiple, done, total=self.total)
        if size == config.image_size:
            return images
        return F.interpolate(images, size, mode="bilinear", antialias=True)

    @property
    def evaluated(self) -> Model:
        """The weights that are evaluated and kept: the average, where there is one."""
        model = self.model if self.average is None else self.average.module
        assert isinstance(model, Model)
        return model

    def rate(self, done: int) -> float:
        """The learning rate of the step after ``done`` others, as a share of each parameter's own."""
        return learning_rate_factor(self.settings.schedule, done, warmup=self.warmup, total=self.total)

    def step(self, pixels: Tensor, labels: Tensor, *, done: int, size: int, own: int) -> Step:
        """One step of the optimizers.

        Args:
            pixels: uint8 (B, C, H, W), this process's part of a batch.
            labels: their targets; see `vitrail.data.loader.Batch`.
            done: steps made before.
            size: images in the batch, all processes together.
            own: images among ``pixels`` that count: all of them, or none where the batch has less images than there are
                processes.
        """
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * self.rate(done)
        parts = max(1, min(self.settings.training.accumulate, size // self.group.count))
        sums = torch.zeros(3, dtype=torch.float64)  # loss, right ones, images
        remembered = [statistic.clone() for statistic in self.statistics]
        for i, (part, targets) in enumerate(zip(pixels.tensor_split(parts), labels.tensor_split(parts), strict=True)):
            count = len(part) if own else 0
            with parallel.synchronized(self.shared, i == parts - 1), self._precision(), self._patches_dropped(done):
                answers = self.forward(self._grown(self.preparation.normalize(part), done), **self._separate)
                told = None if self.teacher is None else self.teacher(part)
                loss = self.task.loss(answers, targets, told)
                self.scaler.scale(loss * (count / size * self.group.count)).backward()  # averaged over the processes
            sums += torch.tensor([loss.item() * count if count else 0, self.task.right(answers, targets) if count else 0, count])
        loss_sum, right, images = self.group.all_reduce(sums).tolist()
        self._share_statistics(own / size)
        failure = self._apply_gradient(loss_sum / images)
        if failure:
            for statistic, old in zip(self.statistics, remembered, strict=True):
                statistic.copy_(old)
        return Step(loss_sum, int(right), int(images), failure)

    def _share_statistics(self, weight: float) -> None:
        """What BatchNorm remembers, averaged over the processes, each of which saw ``weight`` of the batch.

        It comes before the model's average takes it up: every process evaluates and keeps the same model. The count of
        batches is the same everywhere.
        """
        statistics = [statistic for statistic in self.statistics if statistic.is_floating_point()]
        if self.group.count == 1 or not statistics:
            return
        mean = self.group.all_reduce(torch.cat(statistics) * weight)
        for statistic, part in zip(statistics, mean.split([len(s) for s in statistics]), strict=True):
            statistic.copy_(part)

    def _apply_gradient(self, loss: float) -> str | None:
        """Follow the gradient, unless it or the loss is not finite: then the weights stay as they are, and it says why."""
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        clip = self.settings.optimizer.clip_norm or math.inf
        norm = parallel.one_number(nn.utils.clip_grad_norm_(self.model.parameters(), clip))
        finite = math.isfinite(loss) and bool(norm.isfinite())
        for optimizer in self.optimizers:
            if finite:
                self.scaler.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
        if self.average is not None and finite:
            self.average.update_parameters(self.model)
        overflow = self.scaler.is_enabled() and math.isfinite(loss) and self.scaler.get_scale() > 1  # its scale will fall
        self.scaler.update()
        if finite or overflow:
            return None
        return f"the gradient's norm is {norm.item()}" if math.isfinite(loss) else f"the loss is {loss}"

    @contextlib.contextmanager
    def _patches_dropped(self, done: int) -> Iterator[None]:
        """The model with this step's patch dropout, which it reads off its configuration."""
        config = self.model.config
        dropped = getattr(config, "patch_dropout", 0.0)
        if not dropped:
            yield
            return
        share = patch_dropout_at(self.settings.schedule, dropped, done, total=self.total)
        self.model.config = config.changed(patch_dropout=share)
        try:
            yield
        finally:
            self.model.config = config

    @property
    def _separate(self) -> dict[str, bool]:
        """Asks a model of two heads for the logits of each, of which one learns from the teacher."""
        return {"separate": True} if self.teacher is not None and len(self.model.heads()) > 1 else {}

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        precision = self.settings.training.precision
        return torch.autocast(self.device.type, dtype=TYPES[precision], enabled=precision != "fp32")

    def tensors(self) -> dict[str, Tensors]:
        """All that was learnt, whole; every process must ask for it."""
        tensors = {
            "model": parallel.whole(self.model.state_dict()),
            "optimizer": parallel.optimizer_tensors(self.optimizers),
        }
        if self.average is not None:
            tensors["average"] = parallel.whole(self.average.state_dict())
        return tensors

    def load(self, tensors: dict[str, Tensors], scaler: dict[str, Any]) -> None:
        """Take what `tensors` gave, and the scaler's state."""
        parallel.load_whole(self.model, tensors["model"])
        parallel.load_optimizer_tensors(self.optimizers, tensors["optimizer"])
        if self.average is not None:
            parallel.load_whole(self.average, tensors["average"])
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(scaler)


def _moving_average(decay: float) -> Any:
    """Exponential moving average whose decay grows with the steps made, so that the start weighs little.

    Of parameters, and of the running means and variances of BatchNorm, as timm's ModelEmaV3 has it: they belong to the
    weights of the same steps. Whole numbers, the count of batches among them, are those of the last step.
    """

    def update(averages: list[Tensor], current: list[Tensor], steps: Tensor | int) -> None:
        weight = 1 - min(decay, (1 + int(steps)) / (10 + int(steps)))
        averages, current = parallel.local(averages), parallel.local(current)  # FSDP deals parameters out, but no buffers
        if averages[0].is_floating_point():
            torch._foreach_lerp_(averages, current, weight)
        else:
            torch._foreach_copy_(averages, current)

    return torch.no_grad()(update)
