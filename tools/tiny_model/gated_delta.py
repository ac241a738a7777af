"""The gated delta rule for training: CUDA kernels on a GPU, a loop over time elsewhere.

q, k [B, T, HK, 32] · v [B, T, HV, 32] · g, b [B, T, HV] -> o [B, T, HV, 32], all f32; value head h reads key head h // (HV / HK).
"""

import pathlib

import torch

SOURCE = pathlib.Path(__file__).with_name('gated_delta.cu')
KERNELS = {}


def reference(q, k, v, g, b):
    """Step by step, any device and precision: the definition."""
    group = v.shape[2] // q.shape[2]
    q, k = q.repeat_interleave(group, 2), k.repeat_interleave(group, 2)
    state = v.new_zeros(v.shape[0], v.shape[2], k.shape[3], v.shape[3])
    out = []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[..., None, None]
        d = (v[:, t] - (state * k[:, t, :, :, None]).sum(-2)) * b[:, t, :, None]
        state = state + k[:, t, :, :, None] * d[:, :, None, :]
        out.append((state * q[:, t, :, :, None]).sum(-2))
    return torch.stack(out, 1)


def kernel(name):
    if name not in KERNELS:
        KERNELS[name] = torch.cuda._compile_kernel(SOURCE.read_text(), name)
    return KERNELS[name]


@torch.library.custom_op('tiny_model::gated_delta', mutates_args=())
def forward_op(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    batch, steps, key_heads, width = q.shape
    heads = v.shape[2]
    q, k, v, g, b = (x.contiguous() for x in (q, k, v, g, b))
    out = torch.empty_like(v)
    states = q.new_empty(batch * heads, steps, width, width)
    kernel('gated_delta_forward')((batch * heads, 1, 1), (32, 1, 1), [q, k, v, g, b, out, states, steps, key_heads, heads])
    return out, states


@forward_op.register_fake
def _(q, k, v, g, b):
    states = q.new_empty(q.shape[0] * v.shape[2], q.shape[1], q.shape[3], q.shape[3])
    return torch.empty_like(v, memory_format=torch.contiguous_format), states


@torch.library.custom_op('tiny_model::gated_delta_backward', mutates_args=())
def backward_op(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, b: torch.Tensor, states: torch.Tensor,
                grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, steps, key_heads, _ = q.shape
    heads = v.shape[2]
    q, k, v, g, b, grad = (x.contiguous() for x in (q, k, v, g, b, grad))
    grad_q, grad_k, grad_v = torch.empty_like(v), torch.empty_like(v), torch.empty_like(v)
    grad_g, grad_b = torch.empty_like(g), torch.empty_like(b)
    kernel('gated_delta_backward')((batch * heads, 1, 1), (32, 1, 1), [
        q, k, v, g, b, states, grad, grad_q, grad_k, grad_v, grad_g, grad_b, steps, key_heads, heads])
    return grad_q, grad_k, grad_v, grad_g, grad_b


@backward_op.register_fake
def _(q, k, v, g, b, states, grad):
    wide = lambda: torch.empty_like(v, memory_format=torch.contiguous_format)
    thin = lambda: torch.empty_like(g, memory_format=torch.contiguous_format)
    return wide(), wide(), wide(), thin(), thin()


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs, output[1])


def _backward(ctx, grad, _grad_states):
    q, k, v, g, b, states = ctx.saved_tensors
    grad_q, grad_k, grad_v, grad_g, grad_b = backward_op(q, k, v, g, b, states, grad)
    batch, steps, key_heads, width = q.shape
    fold = lambda x: x.view(batch, steps, key_heads, -1, width).sum(3)
    return fold(grad_q), fold(grad_k), grad_v, grad_g, grad_b


forward_op.register_autograd(_backward, setup_context=_save)


def gated_delta(q, k, v, g, b):
    return forward_op(q, k, v, g, b)[0] if q.is_cuda else reference(q, k, v, g, b)


def check(device):
    """Largest relative error of the kernels (output and five gradients) against float64 on random inputs."""
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    unit = lambda x: x / x.norm(dim=-1, keepdim=True)
    inputs = [unit(draw(3, 70, 2, 32)), unit(draw(3, 70, 2, 32)), draw(3, 70, 8, 32), -draw(3, 70, 8).abs(), draw(3, 70, 8).sigmoid()]
    grad = draw(3, 70, 8, 32)
    exact = [x.clone().requires_grad_() for x in inputs]
    want = reference(*exact)
    want.backward(grad)
    fast = [x.float().to(device).requires_grad_() for x in inputs]
    have = gated_delta(*fast)
    have.backward(grad.float().to(device))
    pairs = [(have, want)] + [(f.grad, e.grad) for f, e in zip(fast, exact)]
    return max(float((a.detach().double().cpu() - b.detach()).norm() / b.detach().norm()) for a, b in pairs)
