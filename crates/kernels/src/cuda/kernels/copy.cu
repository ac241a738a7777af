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

// dst[r, g, c] = src[r, g or 0, c]
extern "C" __global__ void copy(const __grid_constant__ CopyArgs a) {
    const u32 row = blockIdx.x / a.dst.groups, group = blockIdx.x % a.dst.groups;
    const float *src = a.src.at(row, a.src.groups == 1 ? 0 : group);
    for (u32 c = blockIdx.y * blockDim.x + threadIdx.x; c < a.dst.cols; c += gridDim.y * blockDim.x) set(a.dst, row, group, c, src[c]);
}

// dst += src
extern "C" __global__ void add(const __grid_constant__ CopyArgs a) {
    const u32 row = blockIdx.x / a.dst.groups, group = blockIdx.x % a.dst.groups;
    const float *src = a.src.at(row, group);
    float *dst = a.dst.at(row, group);
    for (u32 c = blockIdx.y * blockDim.x + threadIdx.x; c < a.dst.cols; c += gridDim.y * blockDim.x) dst[c] += src[c];
}
