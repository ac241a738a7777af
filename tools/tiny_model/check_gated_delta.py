"""check_gated_delta.py: the arithmetic of gated_delta.cu on the CPU, a warp being 32 floats at once, against float64.

Needs a C++ compiler, no GPU. Prints the relative errors and fails above 1e-5.
"""

import ctypes
import pathlib
import subprocess
import tempfile

import numpy as np
import torch

import gated_delta

PRELUDE = r'''
#include <cmath>
#define DEVICE static inline
#define UNROLL
#define D 32
struct F { float x[32]; };
#define BINARY(op) static inline F operator op(F a, F b) { F c; for (int i = 0; i < 32; i++) c.x[i] = a.x[i] op b.x[i]; return c; } \
                   static inline F operator op(F a, float b) { F c; for (int i = 0; i < 32; i++) c.x[i] = a.x[i] op b; return c; }
BINARY(+) BINARY(-) BINARY(*)
static F load(const float* p) { F c; for (int i = 0; i < 32; i++) c.x[i] = p[i]; return c; }
static F load_same(const float* p) { F c; for (int i = 0; i < 32; i++) c.x[i] = *p; return c; }
static void store(float* p, F a) { for (int i = 0; i < 32; i++) p[i] = a.x[i]; }
static void store_one(float* p, F a) { *p = a.x[0]; }
static F spread(F a, int from) { F c; for (int i = 0; i < 32; i++) c.x[i] = a.x[from]; return c; }
static F swap(F a, int d) { F c; for (int i = 0; i < 32; i++) c.x[i] = a.x[i ^ d]; return c; }
static F upper(int bit, F a, F b) { F c; for (int i = 0; i < 32; i++) c.x[i] = (i & bit) ? a.x[i] : b.x[i]; return c; }
static F exponential(F a) { F c; for (int i = 0; i < 32; i++) c.x[i] = std::exp(a.x[i]); return c; }
'''
ENTRY = r'''
extern "C" void run_forward(const float** a, float** r, int T, int HK, int HV, int n) {
    for (int i = 0; i < n; i++) forward(a[0], a[1], a[2], a[3], a[4], r[0], r[1], T, HK, HV, i); }
extern "C" void run_backward(const float** a, float** r, int T, int HK, int HV, int n) {
    for (int i = 0; i < n; i++) backward(a[0], a[1], a[2], a[3], a[4], a[5], a[6], r[0], r[1], r[2], r[3], r[4], T, HK, HV, i); }
'''


def build():
    text = gated_delta.SOURCE.read_text()
    shared = text[text.index('// ---- begin shared text'):text.index('// ---- end shared text')]
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / 'warp.cpp').write_text(PRELUDE + shared + ENTRY)
    subprocess.run(['c++', '-O2', '-shared', '-fPIC', '-o', folder / 'warp.so', folder / 'warp.cpp'], check=True)
    return ctypes.CDLL(str(folder / 'warp.so'))


def call(function, inputs, outputs, *sizes):
    pointers = lambda arrays: (ctypes.POINTER(ctypes.c_float) * len(arrays))(
        *[a.ctypes.data_as(ctypes.POINTER(ctypes.c_float)) for a in arrays])
    function(pointers(inputs), pointers(outputs), *sizes)


def main():
    library = build()
    batch, steps, key_heads, heads, width = 3, 37, 2, 6, 32
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    unit = lambda x: x / x.norm(dim=-1, keepdim=True)
    inputs = [unit(draw(batch, steps, key_heads, width)), unit(draw(batch, steps, key_heads, width)), draw(batch, steps, heads, width),
              -draw(batch, steps, heads).abs(), draw(batch, steps, heads).sigmoid()]
    grad = draw(batch, steps, heads, width)
    exact = [x.clone().requires_grad_() for x in inputs]
    want = gated_delta.reference(*exact)
    want.backward(grad)

    arrays = [np.ascontiguousarray(x.numpy(), np.float32) for x in inputs]
    new = lambda *shape: np.full(shape, np.nan, np.float32)
    out, states = new(batch, steps, heads, width), new(batch * heads, steps, width, width)
    call(library.run_forward, arrays, [out, states], steps, key_heads, heads, batch * heads)
    wide, thin = (batch, steps, heads, width), (batch, steps, heads)
    grads = [new(*wide), new(*wide), new(*wide), new(*thin), new(*thin)]
    call(library.run_backward, arrays + [states, np.ascontiguousarray(grad.numpy(), np.float32)], grads, steps, key_heads, heads, batch * heads)
    for i in (0, 1):                                 # per value head -> per key head
        grads[i] = grads[i].reshape(batch, steps, key_heads, -1, width).sum(3)
    for name, have, exact_value in zip('o q k v g b'.split(), [out] + grads, [want.detach()] + [x.grad for x in exact]):
        error = np.linalg.norm(have - exact_value.numpy()) / np.linalg.norm(exact_value.numpy())
        print(f'{name}: {error:.1e}')
        assert error < 1e-5, name


if __name__ == '__main__':
    main()
