"""A training step: a task, its optimizers, and the update from a batch."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from vitrail.config.settings import RunSettings
from vitrail.data.loading.batches import Batch
from vitrail.errors import ConfigError
from vitrail.models.base import Model
from vitrail.models.calibration import use_measured
from vitrail.parts.normalization import batch_norms
from vitrail.runtime.device import TYPES, pick_device
from vitrail.runtime.processes import ALONE, Processes
from vitrail.tasks.task import Progress, Task
from vitrail.training.finetune.freezing import choose_parts
from vitrail.training.loop import parallel
from vitrail.training.loop.optimizer import create_optimizers, freeze, named_state, require_parts, state_names
from vitrail.training.loop.recompute import recompute_layers
from vitrail.training.loop.schedule import learning_rate_factor, weight_decay_factor
from vitrail.training.runs.checkpoint import Tensors


@dataclass(frozen=True)
class Step:
    """Result of a step, summed over all processes and over the task's units, images or tokens.

    ``failure`` says which value was not finite (NaN or infinite); then the step changed nothing.
    """

    loss: float
    counts: dict[str, int]
    """Sums of the task's counts, by name; see `vitrail.tasks.task.Task.counts`."""
    units: int
    failure: str | None = None


class Learner:
    """A task with its optimizers, weight average and gradient scaler, on its device, in one of the processes.

    Args:
        settings: settings of the run.
        task: the task, with its model.
        total: number of steps in the run; ``warmup`` of them warm up the learning rate.
        epoch: number of steps in an epoch; by default the run is one.
        group: the processes that train together.
    """

    def __init__(
        self, settings: RunSettings, task: Task, *, total: int, warmup: int, epoch: int | None = None, group: Processes = ALONE
    ):
        self.settings, self.group, self.total, self.warmup = settings, group, total, warmup
        self.progress = Progress(0, total, epoch or total)
        t = settings.training
        require_possible(settings, task, group)
        use_measured()
        self.device = pick_device(t.device)
        self.task, self.trained = task.to(self.device), task.trained_parts()
        choose_parts(self.model, settings)
        freeze(self.model, settings.optimizer, self.trained)  # before DDP, which expects gradients of all trainable parameters
        task.carried_parts().requires_grad_(False).eval()
        self.average = self._average(task)
        if t.recompute:
            recompute_layers(self.model)
        self.shared = self._shared()
        self.forward: Callable[..., Any] = torch.compile(self.shared) if t.compile else self.shared
        learning: list[nn.Module] = [self.model, self.trained]
        if self.average is not None and task.decay(self.progress) is not None:  # a teacher, which sees the batch, too
            learning.append(self.average)
        self.statistics = [table for module in learning for norm in batch_norms(module) for table in norm.buffers()]
        self.optimizers = create_optimizers(self.model, settings.optimizer, self.trained)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=t.precision == "fp16")
        self.asks_late = self.device.type == "cuda" and _may_ask_late(self.optimizers, self.scaler, group)
        """True if the optimizers step before the CPU knows that all is finite, so that it waits for the GPU once per step."""

    @property
    def model(self) -> Model:
        return self.task.model

    @property
    def evaluated(self) -> Task:
        """The task with the weights to evaluate and save: the average if there is one, with the current carried parts."""
        if self.average is None:
            return self.task
        task = self.average.module
        assert isinstance(task, Task)
        own = self.task.carried_parts().state_dict()
        for name, tensor in task.carried_parts().state_dict().items():
            tensor.copy_(own[name])
        return task

    def _average(self, task: Task) -> AveragedModel | None:
        """Return the moving average of a task's weights, and let the task learn from it; None if the run has no average."""
        if not self.settings.training.ema and task.decay(self.progress) is None:
            return None
        average = AveragedModel(task, multi_avg_fn=_moving_average(self._decay), use_buffers=True)
        assert isinstance(average.module, Task)
        task.learn_from(average.module)
        return average

    def _decay(self, steps: int) -> float:
        """Return the decay of the weights' average after ``steps`` updates: the task's, or one that grows to ``training.ema``."""
        own = self.task.decay(self.progress)
        return min(self.settings.training.ema, (1 + steps) / (10 + steps)) if own is None else own

    def _shared(self) -> nn.Module:
        """Return the task wrapped for training by several processes."""
        if self.group.count == 1:
            return self.task
        if self.settings.training.parallel == "ddp":
            return parallel.with_averaged_gradients(self.task, self.device)
        parallel.shard(self.task, self.group, self.device)
        if self.average is not None:
            parallel.shard(self.evaluated, self.group, self.device, learns=False)
        return self.task

    def rate(self, done: int) -> float:
        """Return the factor of the learning rate in the step after ``done`` steps."""
        return learning_rate_factor(self.settings.schedule, done, warmup=self.warmup, total=self.total)

    def step(self, batch: Batch, *, done: int, size: int, own: int, units: int | None = None) -> Step:
        """Make one step of the optimizers.

        Args:
            batch: this process's part of a batch.
            done: number of steps before this one.
            size: samples in the batch over all processes.
            own: number of samples of ``batch`` that count; 0 if it only fills up a batch with fewer samples than processes.
            units: number of units that the loss averages over, in all processes; ``size`` by default.
        """
        growth = weight_decay_factor(self.settings.schedule, done, total=self.total)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * self.rate(done)
                group["weight_decay"] = group["initial_weight_decay"] * growth
        self.progress = Progress(done, self.total, self.progress.epoch)
        self.task.before_step(self.progress)
        names = ("loss", *self.task.counts)
        values: list[Tensor] = []  # loss and counts of each part; they stay on the device, since reading waits for it
        counted: list[int] = []
        before = [statistic.clone() for statistic in self.statistics]
        parts = max(1, min(self.settings.training.accumulate, size // self.group.count))
        for i, part in enumerate(_split(batch, parts)):
            count = self.task.units(part) if own else 0
            with parallel.synchronized(self.shared, i == parts - 1), self.precision():
                result = self.forward(part)
                weight = count / (units or size) * self.group.count  # gradients are averaged over the processes
                self.scaler.scale(result["loss"] * weight).backward()
            if count:
                values.append(torch.stack([result[name].detach().float() for name in names]))
                counted.append(count)
        for parameter in self.task.paused_parameters():
            parameter.grad = None
        norm = self._clip_gradient()
        numbers = torch.cat([*values, norm[None]])
        if self.asks_late:
            self._step_unless(~numbers.isfinite().all())
        *sums, length = numbers.tolist()
        loss, *counts, seen = self.group.all_reduce(_sums(sums, counted, len(names))).tolist()
        self._share_statistics(own / size)
        failure = self._apply_gradient(loss / seen, length)
        if math.isfinite(loss) and math.isfinite(length):  # an overflow of the scaler is not a failure, and changes no weights
            self.task.after_step(self.progress, self.group)
        if failure:
            for statistic, old in zip(self.statistics, before, strict=True):
                statistic.copy_(old)
        return Step(loss, dict(zip(names[1:], map(int, counts), strict=True)), int(seen), failure)

    def _share_statistics(self, weight: float) -> None:
        """Average BatchNorm's running statistics over the processes; ``weight`` is this process's fraction of the batch.

        It runs before the weight average is updated, so that every process evaluates and saves the same model.
        """
        statistics = [statistic for statistic in self.statistics if statistic.is_floating_point()]
        if self.group.count == 1 or not statistics:
            return
        mean = self.group.all_reduce(torch.cat(statistics) * weight)
        for statistic, part in zip(statistics, mean.split([len(s) for s in statistics]), strict=True):
            statistic.copy_(part)

    def _clip_gradient(self) -> Tensor:
        """Clip the gradient to a norm of at most ``clip_norm``, and return its norm before."""
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        clip = self.settings.optimizer.clip_norm or math.inf
        return parallel.one_number(nn.utils.clip_grad_norm_(self.task.parameters(), clip)).float()

    def _step_unless(self, spoilt: Tensor) -> None:
        """Step the optimizers unless the device flag ``spoilt`` is set, as torch's `GradScaler` does."""
        optimizer: Any
        for optimizer in self.optimizers:
            optimizer.found_inf = spoilt.float()
            optimizer.step()
            del optimizer.found_inf

    def _apply_gradient(self, loss: float, norm: float) -> str | None:
        """Update the weights; if the loss or gradient is not finite, leave them unchanged and return the reason."""
        finite = math.isfinite(loss) and math.isfinite(norm)
        for optimizer in self.optimizers:
            if finite and not self.asks_late:
                self.scaler.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
        if self.average is not None and finite:
            self.average.update_parameters(self.task)
        overflow = self.scaler.is_enabled() and math.isfinite(loss) and self.scaler.get_scale() > 1  # its scale can still shrink
        self.scaler.update()
        if finite or overflow:
            return None
        return f"the gradient's norm is {norm}" if math.isfinite(loss) else f"the loss is {loss}"

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        precision = self.settings.training.precision
        return torch.autocast(self.device.type, dtype=TYPES[precision], enabled=precision != "fp32")

    def tensors(self) -> dict[str, Tensors]:
        """Return all learned tensors, of FSDP sharded."""
        tensors: dict[str, Tensors] = {
            **{name: module.state_dict() for name, module in self._learned().items()},
            "optimizer": parallel.optimizer_tensors(self.optimizers, state_names(self.model, self.trained)),
        }
        if self.average is not None:
            tensors["average"]["n_averaged"] = self.average.n_averaged
        return tensors

    def load(self, tensors: dict[str, Tensors], scaler: dict[str, Any]) -> None:
        """Restore the tensors that `tensors` returned, and the scaler's state."""
        if self.average is not None:
            self.average.n_averaged.copy_(tensors["average"].pop("n_averaged"))
        for name, module in self._learned().items():
            parallel.load_whole(module, tensors[name])
        state = named_state(tensors["optimizer"], self.model, self.settings.optimizer, self.trained)
        parallel.load_optimizer_tensors(self.optimizers, state, state_names(self.model, self.trained))
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(scaler)

    @contextlib.contextmanager
    def holding(self, weights: Tensors) -> Iterator[None]:
        """Load other, unsharded weights into the task inside the ``with``; all processes must call this together."""
        own = {name: tensor.clone() for name, tensor in parallel.whole(self.task.state_dict()).items()}
        parallel.load_whole(self.task, weights)
        try:
            yield
        finally:
            parallel.load_whole(self.task, own)

    def _learned(self) -> dict[str, nn.Module]:
        """Return the model, trained and carried parts, and the average, by the names of their files in a checkpoint."""
        parts: dict[str, nn.Module] = {"model": self.model, "beside": self.trained, "carried": self.task.carried_parts()}
        if self.average is not None:
            parts["average"] = nn.ModuleDict({"module": self.evaluated.model})
            parts["average-beside"] = self.evaluated.trained_parts()
        return {name: part for name, part in parts.items() if not isinstance(part, nn.ModuleDict) or part}


def _may_ask_late(optimizers: list[Optimizer], scaler: torch.amp.GradScaler, group: Processes) -> bool:
    """Return whether a flag on the device can cancel a step.

    torch's fused optimizers support this. With a gradient scaler or several processes, the CPU must know the result first.
    """
    fused = all(getattr(optimizer, "_step_supports_amp_scaling", False) for optimizer in optimizers)
    return fused and not scaler.is_enabled() and group.count == 1


def require_possible(settings: RunSettings, task: Task, group: Processes) -> None:
    """Raise `ConfigError` for settings that contradict each other or the task."""
    t = settings.training
    if (t.ema or t.average) and task.decay(Progress(0, 1, 1)) is not None:
        what, hint = "the task averages the weights itself", "leave them out"
        raise ConfigError(what, where="training.ema, training.average", hint=hint)
    if t.tune != "lora":  # adapters are added later, and ``layers`` may name them
        require_parts(task.model, settings.optimizer, task.trained_parts())
    if group.count > 1 and t.parallel == "fsdp" and t.precision == "fp16":
        hint = "take bf16, or --parallel ddp"
        raise ConfigError("fp16 cannot be used with --parallel fsdp", where="training.precision", hint=hint)


def _sums(values: list[float], units: list[int], kinds: int) -> Tensor:
    """Return the sums over all parts of a step: of the loss, of each count, and of the units.

    ``values`` holds ``kinds`` numbers for each part: the mean loss over its ``units``, then its counts.
    """
    sums = torch.zeros(kinds + 1, dtype=torch.float64)
    for number, count in enumerate(units):
        mean, *counts = values[number * kinds : (number + 1) * kinds]
        sums += torch.tensor([mean * count, *counts, count], dtype=torch.float64)
    return sums


def _moving_average(decay: Callable[[int], float]) -> Any:
    """Return the update of an exponential moving average; ``decay`` returns its decay after a number of updates.

    As in timm's ModelEmaV3, it averages parameters and BatchNorm's running means and variances. Integers, such as the number of
    batches, are copied from the last step.
    """

    def update(averages: list[Tensor], current: list[Tensor], steps: Tensor | int) -> None:
        weight = 1 - decay(int(steps))
        averages, current = parallel.local(averages), parallel.local(current)  # FSDP shards parameters, but not buffers
        if averages[0].is_floating_point():
            torch._foreach_lerp_(averages, current, weight)
        else:
            torch._foreach_copy_(averages, current)

    return torch.no_grad()(update)


def _split(batch: Batch, parts: int) -> list[Batch]:
    """Split a batch into ``parts`` consecutive parts."""
    split = {name: tensor.tensor_split(parts) for name, tensor in batch.items()}
    return [dict(zip(split, tensors, strict=True)) for tensors in zip(*split.values(), strict=True)]
