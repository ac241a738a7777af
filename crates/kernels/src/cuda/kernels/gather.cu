// A plan's rows laid out one after another, for a product that has no row map of its own; gemm.cu needs none of this.
//   gather    XS[r] = f16(x[stok[r]] * 2^-s), s the row's range exponent (0 unless it is needed), from f32
//   gather_h  XS[r] = x[stok[r]], from the f16 that the producer wrote
// A padding row is zeros. Rows beyond the plan's R are left alone. A block of threads walks over rows.
#include "range.cuh"
#include "view.cuh"

struct GatherArgs {
    Floats x, out;   // [T, 1, D]; f16 [R, 1, D]
    i32 *exponents;  // [R], or null
    const i32 *stok;
    const u32 *meta;
};
AS_HOST(GatherArgs, GATHER_ARGS);

extern "C" __global__ void gather(const __grid_constant__ GatherArgs a) {
    after_previous();
    for (u32 row = blockIdx.x; row < a.meta[META_ROWS]; row += gridDim.x) {
        const i32 token = a.stok[row];
        const float *x = a.x.at(max(token, 0), 0);
        float most = 0;
        for (u32 c = threadIdx.x; token >= 0 && c < a.x.cols; c += blockDim.x) most = fmaxf(most, fabsf(x[c]));
        const i32 s = range_exponent(block_max(most));
        const float scale = power_of_two(-s);
        u16 *out = (u16 *)a.out.first + row * a.out.row_stride;
        for (u32 c = threadIdx.x; c < a.x.cols; c += blockDim.x) out[c] = token < 0 ? 0 : float_to_half(x[c] * scale);
        if (a.exponents && threadIdx.x == 0) a.exponents[row] = s;
    }
}

extern "C" __global__ void gather_h(const __grid_constant__ GatherArgs a) {
    after_previous();
    for (u32 row = blockIdx.x; row < a.meta[META_ROWS]; row += gridDim.x) {
        const i32 token = a.stok[row];
        const u16 *x = (const u16 *)a.x.first + max(token, 0) * a.x.row_stride;
        u16 *out = (u16 *)a.out.first + row * a.out.row_stride;
        if ((((u64)x | (u64)out | a.x.cols * 2) & 15) == 0) {
            const uint4 none = make_uint4(0, 0, 0, 0);
            for (u32 c = threadIdx.x; c < a.x.cols / 8; c += blockDim.x) ((uint4 *)out)[c] = token < 0 ? none : ((const uint4 *)x)[c];
        } else {
            for (u32 c = threadIdx.x; c < a.x.cols; c += blockDim.x) out[c] = token < 0 ? 0 : x[c];
        }
    }
}
