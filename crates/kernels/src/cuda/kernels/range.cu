// Whether weights exceed the range of f16 as operands: blocks whose scales are larger than their format's integers allow.
#include "prelude.cuh"

struct Scale {
    u32 at, bytes; // its place in a block, and whether it has one byte or two
    u32 mask, most; // what of it counts, and the largest that fits
};
AS_HOST(Scale, RANGE_SCALE);

struct RangeArgs {
    const u8 *blocks;
    u64 count;
    u32 *exceeded; // set to 1 if one does not fit
    u32 block_bytes, scales;
    Scale scale[2];
};
AS_HOST(RangeArgs, RANGE_ARGS);

extern "C" __global__ void exceeds_f16(const __grid_constant__ RangeArgs a) {
    bool any = false;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += (u64)gridDim.x * blockDim.x)
        for (u32 s = 0; s < a.scales; s++) {
            const u8 *scale = a.blocks + i * a.block_bytes + a.scale[s].at;
            any |= ((a.scale[s].bytes == 1 ? *scale : *(const u16 *)scale) & a.scale[s].mask) > a.scale[s].most;
        }
    if (any) *a.exceeded = 1;
}
