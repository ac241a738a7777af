// Matrix products on tensor cores: 32 columns of a warpgroup's 64 weight rows (16 a warp) times N tokens.
//
// Weights come in registers, in the layout of an m16n8k16 fragment for each warp's 16 rows; activations lie in shared
// memory. `SyncProduct` is `mma.sync`, warp by warp, on any card; `AsyncProduct` is `wgmma` of compute capability 9.0, which
// runs while the warps go on, twice as fast, but holds the four warps of a warpgroup together. Both leave
// acc[4i + 2h + j] = row quad + 8h of the warp's 16, token 8i + 2c + j.
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

// Descriptor of 16 columns of N tokens: 128-byte swizzle, 1024 bytes from one group of 8 tokens to the next.
DEVICE u64 activation_descriptor(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | ((u64)1 << 16) | ((u64)(1024 >> 4) << 32) | ((u64)1 << 62);
}

#define ACC4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACC16(i) ACC4(i), ACC4(i + 4), ACC4(i + 8), ACC4(i + 12)
#define OPERANDS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add)

// d[64, N] = (add ? d : 0) + a[64, 16] * b[N, 16]^T
template <int N> DEVICE void wgmma(float *d, const u32 *a, u64 b, u32 add);

template <> DEVICE void wgmma<8>(float *d, const u32 *a, u64 b, u32 add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %9, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, 1, 1, 0;}"
                 : ACC4(0) : OPERANDS);
}
template <> DEVICE void wgmma<16>(float *d, const u32 *a, u64 b, u32 add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %13, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1, 0;}"
                 : ACC4(0), ACC4(4) : OPERANDS);
}
template <> DEVICE void wgmma<32>(float *d, const u32 *a, u64 b, u32 add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %21, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, 0;}"
                 : ACC16(0) : OPERANDS);
}
template <> DEVICE void wgmma<64>(float *d, const u32 *a, u64 b, u32 add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;}"
                 : ACC16(0), ACC16(16) : OPERANDS);
}
template <> DEVICE void wgmma<96>(float *d, const u32 *a, u64 b, u32 add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %53, 0; wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47}, {%48,%49,%50,%51}, %52, p, 1, 1, 0;}"
                 : ACC16(0), ACC16(16), ACC16(32) : OPERANDS);
}
template <> DEVICE void wgmma<128>(float *d, const u32 *a, u64 b, u32 add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, p, 1, 1, 0;}"
                 : ACC16(0), ACC16(16), ACC16(32), ACC16(48) : OPERANDS);
}
template <> DEVICE void wgmma<192>(float *d, const u32 *a, u64 b, u32 add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %101, 0; wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
                 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95}, {%96,%97,%98,%99}, %100, p, 1, 1, 0;}"
                 : ACC16(0), ACC16(16), ACC16(32), ACC16(48), ACC16(64), ACC16(80) : OPERANDS);
}

struct AsyncProduct {
    // Orders writes of this thread to shared memory before later reads by the tensor cores.
    static DEVICE void fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
    // At most PENDING of the products begun so far are unfinished: operands and, with 0, sums are this thread's again.
    template <int PENDING> static DEVICE void wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }

    // Begins the product of runs `run` to `run` + RUNS - 1 of a stage; the sums begin with it where `fresh`.
    template <int N, int RUNS> static DEVICE void multiply(float *acc, const u32 *a, u32 stage, u32 run, u32, bool fresh) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (u32 step = 2 * run; step < 2 * (run + RUNS); step++, a += 4) // of 16 columns
            wgmma<N>(acc, a, activation_descriptor(stage) + (step / 4 * (N * 128) + step % 4 * 32) / 16, !(fresh && step == 2 * run));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }
};

#endif

// Four 8x8 matrices of f16, each row given by one lane's address.
DEVICE void load_matrices(u32 m[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(address) : "memory");
}
// The same, each transposed.
DEVICE void load_transposed(u32 m[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(address) : "memory");
}

DEVICE void mma(float *d, const u32 *a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

struct SyncProduct {
    static DEVICE void fence() {}
    template <int PENDING> static DEVICE void wait() {}

    template <int N, int RUNS> static DEVICE void multiply(float *acc, const u32 *a, u32 stage, u32 first, u32 lane, bool fresh) {
        if (fresh)
#pragma unroll
            for (int i = 0; i < N / 2; i++) acc[i] = 0;
#pragma unroll
        for (u32 run = first; run < first + RUNS; run++, a += 8) {
            // This lane's row of the four matrices, for tokens 0 to 7; other tokens are whole kilobytes away.
            const u32 address = activation_address<N>(stage, lane % 8, 4 * (run % 2) + lane / 8) + run / 2 * (N * 128);
#pragma unroll
            for (int f = 0; f < N / 8; f++) {
                u32 b[4]; // tokens 8f .. 8f+7; columns 0-7, 8-15, 16-23, 24-31 of the run
                load_matrices(b, address + f * 1024);
                mma(acc + 4 * f, a, b[0], b[1]);
                mma(acc + 4 * f, a + 4, b[2], b[3]);
            }
        }
    }
};
