// A tensor as an op hands it to a kernel: [rows, groups, cols], neighbouring columns next to each other. The Rust side
// has the same struct.
#pragma once
#include "prelude.cuh"

template <typename T> struct View {
    T *first;
    u64 row_stride, group_stride; // in elements
    u32 rows, groups, cols;
    u32 half;                     // 1: f16

    DEVICE T *at(u32 row, u32 group) const { return first + row * row_stride + group * group_stride; }
};

typedef View<float> Floats;
AS_HOST(Floats, VIEW_BYTES);
typedef View<i32> Ints;

// Tensors that are f32 or f16 (caches).
DEVICE float get(const Floats &t, u32 row, u32 group, u32 col) {
    u64 at = row * t.row_stride + group * t.group_stride + col;
    return t.half ? half_to_float(((const u16 *)t.first)[at]) : t.first[at];
}
DEVICE void set(const Floats &t, u32 row, u32 group, u32 col, float value) {
    u64 at = row * t.row_stride + group * t.group_stride + col;
    if (t.half) ((u16 *)t.first)[at] = float_to_half(value);
    else t.first[at] = value;
}

// Whether all rows are whole quads: four f32 columns that begin at a multiple of 16 bytes, moved by one instruction.
DEVICE bool in_quads(const Floats &t) {
    const bool apart = t.row_stride % 4 || (t.groups > 1 && t.group_stride % 4);
    return !(t.half || t.cols % 4 || apart || (u64)t.first % 16);
}
// The quad from column c on; of a row that is not in quads, as many columns as it has.
DEVICE float4 load4(const float *row, u32 c, u32 cols, bool in_quads) {
    if (in_quads) return *(const float4 *)(row + c);
    return make_float4(row[c], c + 1 < cols ? row[c + 1] : 0, c + 2 < cols ? row[c + 2] : 0, c + 3 < cols ? row[c + 3] : 0);
}
DEVICE void store4(float *row, u32 c, u32 cols, bool in_quads, float4 v) {
    if (in_quads) {
        *(float4 *)(row + c) = v;
        return;
    }
    row[c] = v.x;
    if (c + 1 < cols) row[c + 1] = v.y;
    if (c + 2 < cols) row[c + 2] = v.z;
    if (c + 3 < cols) row[c + 3] = v.w;
}
// x * w + y
DEVICE float4 fma4(float w, float4 x, float4 y) { return make_float4(fmaf(w, x.x, y.x), fmaf(w, x.y, y.y), fmaf(w, x.z, y.z), fmaf(w, x.w, y.w)); }

#define INFINITY_F __int_as_float(0x7f800000)

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
DEVICE float silu(float x) { return x / (1.0f + expf(-x)); }

// Sums over the threads of a block, the same for all and in an order that depends on nothing but the block's size.
DEVICE float warp_sum(float x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(~0u, x, d);
    return x;
}
DEVICE float block_sum(float x) {
    __shared__ float parts[32];
    x = warp_sum(x);
    __syncthreads(); // the last use of `parts` is over
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < (blockDim.x + 31) / 32 ? parts[threadIdx.x % 32] : 0.0f;
    return warp_sum(x);
}

// What a kernel could not do, for the next read or sync: the first in order of ops and entries. Cleared to all ones.
struct Status {
    u64 where; // op's number << 32 | entry
    u64 id;    // the id that is out of range, where that is what is wrong
};
AS_HOST(Status, STATUS_BYTES);
DEVICE void report(Status *status, u32 op, u32 entry) { atomicMin(&status->where, (u64)op << 32 | entry); }
