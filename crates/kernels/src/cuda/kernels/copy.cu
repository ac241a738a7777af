// Fill, copy and convert, add: a block of threads for one group of one row.
#include "view.cuh"

struct FillArgs { Floats dst; float value; };
AS_HOST(FillArgs, FILL_ARGS);

extern "C" __global__ void fill(const __grid_constant__ FillArgs a) {
    const u32 row = blockIdx.x / a.dst.groups, group = blockIdx.x % a.dst.groups;
    for (u32 c = blockIdx.y * blockDim.x + threadIdx.x; c < a.dst.cols; c += gridDim.y * blockDim.x) set(a.dst, row, group, c, a.value);
}

struct CopyArgs { Floats src, dst; };
AS_HOST(CopyArgs, COPY_ARGS);

// Four columns to f16, in one piece if they are whole and begin at a multiple of 8 bytes.
DEVICE void store4_half(const Floats &t, u32 row, u32 group, u32 c, float4 v) {
    u16 *to = (u16 *)t.first + row * t.row_stride + group * t.group_stride + c;
    const u32 low = float2_to_half2(v.x, v.y), high = float2_to_half2(v.z, v.w);
    if (c + 4 <= t.cols && (u64)to % 8 == 0) {
        *(uint2 *)to = make_uint2(low, high);
        return;
    }
    to[0] = (u16)low;
    if (c + 1 < t.cols) to[1] = (u16)(low >> 16);
    if (c + 2 < t.cols) to[2] = (u16)high;
    if (c + 3 < t.cols) to[3] = (u16)(high >> 16);
}

// dst[r, g, c] = src[r, g or 0, c]
extern "C" __global__ void copy(const __grid_constant__ CopyArgs a) {
    const u32 row = blockIdx.x / a.dst.groups, group = blockIdx.x % a.dst.groups;
    const float *src = a.src.at(row, a.src.groups == 1 ? 0 : group);
    const u32 cols = a.dst.cols;
    const bool from = in_quads(a.src), to = in_quads(a.dst);
    for (u32 c = 4 * (blockIdx.y * blockDim.x + threadIdx.x); c < cols; c += 4 * gridDim.y * blockDim.x) {
        const float4 v = load4(src, c, cols, from);
        if (a.dst.half) store4_half(a.dst, row, group, c, v);
        else store4(a.dst.at(row, group), c, cols, to, v);
    }
}

// dst += src
extern "C" __global__ void add(const __grid_constant__ CopyArgs a) {
    const u32 row = blockIdx.x / a.dst.groups, group = blockIdx.x % a.dst.groups;
    const float *src = a.src.at(row, group);
    float *dst = a.dst.at(row, group);
    const u32 cols = a.dst.cols;
    const bool quads = in_quads(a.src) && in_quads(a.dst);
    for (u32 c = 4 * (blockIdx.y * blockDim.x + threadIdx.x); c < cols; c += 4 * gridDim.y * blockDim.x) store4(dst, c, cols, quads, fma4(1.0f, load4(src, c, cols, quads), load4(dst, c, cols, quads)));
}
