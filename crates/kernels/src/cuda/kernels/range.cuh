// What keeps a row inside the f16 range.
#pragma once
#include "prelude.cuh"

// s of a row whose largest magnitude is `most`: 65520 and more would round to infinity. Infinity and NaN have none.
DEVICE i32 range_exponent(float most) {
    if (!(most >= 65520.0f) || most == bits_to_float(0x7f800000)) return 0;
    i32 e = (i32)(__float_as_uint(most) >> 23) - 127 - 15; // most = m * 2^(e + 15), 1 <= m < 2
    return bits_to_float((u32)(127 - e) << 23) * most >= 65520.0f ? e + 1 : e;
}

DEVICE float block_max(float x) {
    __shared__ float parts[32];
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < (blockDim.x + 31) / 32 ? parts[threadIdx.x % 32] : 0.0f;
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
    return x;
}
