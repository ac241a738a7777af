// Matrix products on tensor cores: 32 columns (two steps of 16) of 64 weight rows of a warpgroup times N tokens.
//
// Weights come in registers, in the layout of an m16n8k16 fragment for each warp's 16 rows; activations lie in shared
// memory. Compute capability 9.0 multiplies asynchronously with `wgmma`; all others with `mma.sync`, warp by warp. Both
// leave acc[4i + 2h + j] = row quad + 8h of the warp's 16, token 8i + 2c + j.
#pragma once
#include "prelude.cuh"

// The activations of a tile: planes of 64 columns (128 bytes a token), the 16-byte pieces of a token's row exchanged by
// the token's number modulo 8, so that neither filling nor reading meets the same bank twice. A plane begins at a
// multiple of 1024 bytes.
template <int N> DEVICE u32 activation_address(u32 base, u32 token, u32 piece /* of 8 columns */) {
    u32 plane = piece >> 3, p = piece & 7;
    return base + plane * (N * 128) + token * 128 + ((p ^ (token & 7)) << 4);
}

#if CAPABILITY == 90

// Orders writes of this thread to shared memory before later reads by the tensor cores.
DEVICE void product_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// At most PENDING of the products begun so far are unfinished: the operands and, with 0, the sums are this thread's again.
template <int PENDING> DEVICE void product_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }

// Descriptor of 16 columns of N tokens: 128-byte swizzle, 1024 bytes from one group of 8 tokens to the next.
DEVICE u64 activation_descriptor(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | ((u64)1 << 16) | ((u64)(1024 >> 4) << 32) | ((u64)1 << 62);
}

#define ACC4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACC16(i) ACC4(i), ACC4(i + 4), ACC4(i + 8), ACC4(i + 12)
#define OPERANDS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)

// d[64, N] += a[64, 16] * b[N, 16]^T
template <int N> DEVICE void wgmma(float *d, const u32 *a, u64 b);

template <> DEVICE void wgmma<8>(float *d, const u32 *a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1, 1, 1, 0;"
                 : ACC4(0) : OPERANDS);
}
template <> DEVICE void wgmma<16>(float *d, const u32 *a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, 1, 1, 1, 0;"
                 : ACC4(0), ACC4(4) : OPERANDS);
}
template <> DEVICE void wgmma<32>(float *d, const u32 *a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, 1, 1, 1, 0;"
                 : ACC16(0) : OPERANDS);
}
template <> DEVICE void wgmma<64>(float *d, const u32 *a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, 1, 1, 1, 0;"
                 : ACC16(0), ACC16(16) : OPERANDS);
}
template <> DEVICE void wgmma<96>(float *d, const u32 *a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47}, {%48,%49,%50,%51}, %52, 1, 1, 1, 0;"
                 : ACC16(0), ACC16(16), ACC16(32) : OPERANDS);
}
template <> DEVICE void wgmma<128>(float *d, const u32 *a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, 1, 1, 1, 0;"
                 : ACC16(0), ACC16(16), ACC16(32), ACC16(48) : OPERANDS);
}
template <> DEVICE void wgmma<192>(float *d, const u32 *a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
                 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95}, {%96,%97,%98,%99}, %100, 1, 1, 1, 0;"
                 : ACC16(0), ACC16(16), ACC16(32), ACC16(48), ACC16(64), ACC16(80) : OPERANDS);
}

// Begins the product of run `run` of a stage.
template <int N> DEVICE void multiply(float *acc, const u32 *a, u32 stage, u32 run, u32) {
    const u64 tokens = activation_descriptor(stage) + ((run / 2) * (N * 128) + (run % 2) * 64) / 16;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    wgmma<N>(acc, a, tokens);
    wgmma<N>(acc, a + 4, tokens + 32 / 16);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

#else

DEVICE void product_fence() {}
template <int PENDING> DEVICE void product_wait() {}

// Four 8x8 matrices of f16, each row given by one lane's address.
DEVICE void load_matrices(u32 m[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(address) : "memory");
}
DEVICE void mma(float *d, const u32 *a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int N> DEVICE void multiply(float *acc, const u32 *a, u32 stage, u32 run, u32 lane) {
#pragma unroll
    for (int f = 0; f < N / 8; f++) {
        u32 b[4]; // tokens 8f .. 8f+7; columns 0-7, 8-15, 16-23, 24-31 of the run
        load_matrices(b, activation_address<N>(stage, 8 * f + lane % 8, 4 * run + lane / 8));
        mma(acc + 4 * f, a, b[0], b[1]);
        mma(acc + 4 * f, a + 4, b[2], b[3]);
    }
}

#endif
