// Whether bfloat16 numbers exceed the range of f16: 65536 and more; those below round to something finite.
#include "prelude.cuh"

struct RangeArgs {
    const u16 *numbers;
    u64 count;
    u32 *beyond; // set to 1 if there is one
};

extern "C" __global__ void beyond_f16(const __grid_constant__ RangeArgs a) {
    bool any = false;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += (u64)gridDim.x * blockDim.x)
        any |= (a.numbers[i] & 0x7fff) >= 0x4780;
    if (any) *a.beyond = 1;
}
