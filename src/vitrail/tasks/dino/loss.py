"""The losses of self-distillation."""

import torch
import torch.nn.functional as F
from torch import Tensor


def teacher_probabilities(outputs: Tensor, centre: Tensor, temperature: float) -> Tensor:
    """Return ``P_t = softmax((g_t − c) / τ_t)`` of a teacher's outputs (…, K), in float32 (section 3.1 of DINO's paper)."""
    return ((outputs.float() - centre) / temperature).softmax(dim=-1)


def distillation_loss(student: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """Return the mean cross-entropy between views of each image, (B,): equation (3) of DINO's paper.

    ``Σ_t Σ_{s≠t} −P_t log P_s``, divided by the number of pairs.

    Args:
        student: the student's outputs for V views, (B, V, K).
        taught: the teacher's probabilities for the first T of these views, (B, T, K).
        temperature: the student's temperature τ_s.
    """
    views, teachers = student.shape[1], taught.shape[1]
    log_p = (student.float() / temperature).log_softmax(dim=-1)
    all_pairs = (taught.sum(dim=1) * log_p.sum(dim=1)).sum(dim=-1)
    same_view = (taught * log_p[:, :teachers]).sum(dim=(1, 2))
    return (same_view - all_pairs) / (teachers * (views - 1))


def patch_loss(student: Tensor, taught: Tensor, masked: Tensor, temperature: float) -> Tensor:
    """Return the mean cross-entropy of an image's masked patches, averaged over all images: L_MIM of iBOT's paper.

    ``Σ_i m_i · −P_t(i) log P_s(i) / Σ_i m_i``; an image without masked patches counts as 0.

    Args:
        student: the student's outputs for the M masked patches of all images, in order, (M, K).
        taught: the teacher's probabilities for the same patches, which it sees, (M, K).
        masked: the masks, bool (B, N), with M ones.
        temperature: the student's temperature.
    """
    losses = -(taught * (student.float() / temperature).log_softmax(dim=-1)).sum(dim=-1)  # (M,)
    counts = masked.sum(dim=1, keepdim=True).expand_as(masked)[masked]  # (M,)
    return (losses / counts).sum() / len(masked)


def koleo_loss(vectors: Tensor) -> Tensor:
    """Return the mean of ``−log d`` for vectors (B, D) of length one, where d is the distance to the nearest other one.

    It is the differential entropy of Kozachenko and Leonenko up to a constant (Sablayrolles et al. 2019, 1806.03198).
    """
    x = F.normalize(vectors.float(), dim=-1)
    with torch.no_grad():
        nearest = (x @ x.mT).fill_diagonal_(-1).argmax(dim=1)
    return -(F.pairwise_distance(x, x[nearest], eps=1e-8) + 1e-8).log().mean()
