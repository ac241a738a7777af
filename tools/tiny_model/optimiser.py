"""Muon for the weight matrices, AdamW for everything else.

Muon replaces the momentum of a matrix by the nearest (semi-)orthogonal matrix, found with five Newton-Schulz steps, and scales it so
that its entries have the size of an AdamW update; both optimisers then share one learning rate. Matrices of equal shape are worked
on together; the experts' stacks are split into one matrix per expert and projection.
"""

import math

import torch

# Kept out of Muon: embeddings, and projections with only a few rows.
ADAM_ONLY = ('embed_tokens', 'ngram_embedding', 'mlp.gate.weight', 'block_inject', 'in_proj_a', 'in_proj_b', 'shared_expert_gate', 'conv1d')


def orthogonal(x, steps=5):
    """The orthogonal factor of each matrix of x [n, rows, columns], rows <= columns, approximately."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = x.bfloat16()
    x = x / (x.float().flatten(1).norm(dim=1)[:, None, None] + 1e-7).bfloat16()
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class MatrixGroup:
    """All parameters whose matrices have one shape [rows, columns] (transposed where rows > columns)."""

    def __init__(self, parameters, views):
        self.parameters, self.views = parameters, views
        self.momentum = None

    def stacked(self, tensors):
        pieces = [view(t) for t, view in zip(tensors, self.views)]
        return torch.cat([p.mT if p.shape[1] > p.shape[2] else p for p in pieces])

    @torch.no_grad()
    def step(self, lr, weight_decay, beta):
        grad = self.stacked([p.grad for p in self.parameters])
        if self.momentum is None:
            self.momentum = torch.zeros_like(grad)
        self.momentum.lerp_(grad, 1 - beta)
        update = orthogonal(grad.lerp(self.momentum, beta)).float()
        update *= -lr * 0.2 * math.sqrt(max(update.shape[1:]))
        first = 0
        for p, view in zip(self.parameters, self.views):
            target = view(p.data)
            piece = update[first:first + target.shape[0]]
            target.mul_(1 - lr * weight_decay).add_(piece.mT if target.shape[1] > target.shape[2] else piece)
            first += target.shape[0]


class Optimiser:
    def __init__(self, model, weight_decay, betas=(0.9, 0.98), muon_beta=0.95, muon=True):
        self.weight_decay, self.muon_beta = weight_decay, muon_beta
        groups, decayed, plain = {}, [], []
        for name, p in model.named_parameters():
            if not muon or p.ndim < 2 or any(part in name for part in ADAM_ONLY):
                (decayed if p.ndim >= 2 and 'conv1d' not in name else plain).append(p)
                continue
            if name.endswith('gate_up_proj'):        # [E, 2 F, H] -> gate and up of every expert
                view = lambda t: t.view(-1, t.shape[1] // 2, t.shape[2])
            elif p.ndim == 3:
                view = lambda t: t
            else:
                view = lambda t: t[None]
            shape = tuple(sorted(view(p).shape[1:]))
            groups.setdefault(shape, []).append((p, view))
        self.matrices = [MatrixGroup(*zip(*members)) for members in groups.values()]
        fused = next(model.parameters()).is_cuda
        self.adam = torch.optim.AdamW([dict(params=decayed, weight_decay=weight_decay), dict(params=plain, weight_decay=0.0)],
                                      lr=0.0, betas=betas, eps=1e-8, fused=fused)

    def zero_grad(self):
        self.adam.zero_grad(set_to_none=True)
        for group in self.matrices:
            for p in group.parameters:
                p.grad = None

    def step(self, lr):
        for group in self.adam.param_groups:
            group['lr'] = lr
        self.adam.step()
        for group in self.matrices:
            group.step(lr, self.weight_decay, self.muon_beta)
