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

// Sums d[0 .. HALF] of a product as operands, and their names in an instruction.
#define ACC4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACC_0_TO_4 ACC4(0)
#define NAMES_0_TO_4 "%0,%1,%2,%3"
#define ACC_0_TO_8 ACC_0_TO_4, ACC4(4)
#define NAMES_0_TO_8 NAMES_0_TO_4 ",%4,%5,%6,%7"
#define ACC_0_TO_12 ACC_0_TO_8, ACC4(8)
#define NAMES_0_TO_12 NAMES_0_TO_8 ",%8,%9,%10,%11"
#define ACC_0_TO_16 ACC_0_TO_12, ACC4(12)
#define NAMES_0_TO_16 NAMES_0_TO_12 ",%12,%13,%14,%15"
#define ACC_0_TO_20 ACC_0_TO_16, ACC4(16)
#define NAMES_0_TO_20 NAMES_0_TO_16 ",%16,%17,%18,%19"
#define ACC_0_TO_24 ACC_0_TO_20, ACC4(20)
#define NAMES_0_TO_24 NAMES_0_TO_20 ",%20,%21,%22,%23"
#define ACC_0_TO_28 ACC_0_TO_24, ACC4(24)
#define NAMES_0_TO_28 NAMES_0_TO_24 ",%24,%25,%26,%27"
#define ACC_0_TO_32 ACC_0_TO_28, ACC4(28)
#define NAMES_0_TO_32 NAMES_0_TO_28 ",%28,%29,%30,%31"
#define ACC_0_TO_36 ACC_0_TO_32, ACC4(32)
#define NAMES_0_TO_36 NAMES_0_TO_32 ",%32,%33,%34,%35"
#define ACC_0_TO_40 ACC_0_TO_36, ACC4(36)
#define NAMES_0_TO_40 NAMES_0_TO_36 ",%36,%37,%38,%39"
#define ACC_0_TO_44 ACC_0_TO_40, ACC4(40)
#define NAMES_0_TO_44 NAMES_0_TO_40 ",%40,%41,%42,%43"
#define ACC_0_TO_48 ACC_0_TO_44, ACC4(44)
#define NAMES_0_TO_48 NAMES_0_TO_44 ",%44,%45,%46,%47"
#define ACC_0_TO_52 ACC_0_TO_48, ACC4(48)
#define NAMES_0_TO_52 NAMES_0_TO_48 ",%48,%49,%50,%51"
#define ACC_0_TO_56 ACC_0_TO_52, ACC4(52)
#define NAMES_0_TO_56 NAMES_0_TO_52 ",%52,%53,%54,%55"
#define ACC_0_TO_60 ACC_0_TO_56, ACC4(56)
#define NAMES_0_TO_60 NAMES_0_TO_56 ",%56,%57,%58,%59"
#define ACC_0_TO_64 ACC_0_TO_60, ACC4(60)
#define NAMES_0_TO_64 NAMES_0_TO_60 ",%60,%61,%62,%63"
#define ACC_0_TO_68 ACC_0_TO_64, ACC4(64)
#define NAMES_0_TO_68 NAMES_0_TO_64 ",%64,%65,%66,%67"
#define ACC_0_TO_72 ACC_0_TO_68, ACC4(68)
#define NAMES_0_TO_72 NAMES_0_TO_68 ",%68,%69,%70,%71"
#define ACC_0_TO_76 ACC_0_TO_72, ACC4(72)
#define NAMES_0_TO_76 NAMES_0_TO_72 ",%72,%73,%74,%75"
#define ACC_0_TO_80 ACC_0_TO_76, ACC4(76)
#define NAMES_0_TO_80 NAMES_0_TO_76 ",%76,%77,%78,%79"
#define ACC_0_TO_84 ACC_0_TO_80, ACC4(80)
#define NAMES_0_TO_84 NAMES_0_TO_80 ",%80,%81,%82,%83"
#define ACC_0_TO_88 ACC_0_TO_84, ACC4(84)
#define NAMES_0_TO_88 NAMES_0_TO_84 ",%84,%85,%86,%87"
#define ACC_0_TO_92 ACC_0_TO_88, ACC4(88)
#define NAMES_0_TO_92 NAMES_0_TO_88 ",%88,%89,%90,%91"
#define ACC_0_TO_96 ACC_0_TO_92, ACC4(92)
#define NAMES_0_TO_96 NAMES_0_TO_92 ",%92,%93,%94,%95"

// d[64, WIDTH] = (add ? d : 0) + a[64, 16] * b[WIDTH, 16]^T
template <int WIDTH> DEVICE void wgmma(float *d, const u32 *a, u64 b, u32 add);

// HALF = WIDTH / 2; A0 to A3, B and ADD are the numbers after it.
#define WGMMA(WIDTH, HALF, A0, A1, A2, A3, B, ADD)                                                                          \
    template <> DEVICE void wgmma<WIDTH>(float *d, const u32 *a, u64 b, u32 add) {                                          \
        asm volatile("{.reg .pred p; setp.ne.b32 p, %" #ADD ", 0; wgmma.mma_async.sync.aligned.m64n" #WIDTH "k16.f32.f16.f16 " \
                     "{" NAMES_0_TO_##HALF "}, {%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "}, %" #B ", p, 1, 1, 0;}"                 \
                     : ACC_0_TO_##HALF                                                                                      \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                       \
    }
WGMMA(24, 12, 12, 13, 14, 15, 16, 17)
WGMMA(32, 16, 16, 17, 18, 19, 20, 21)
WGMMA(40, 20, 20, 21, 22, 23, 24, 25)
WGMMA(48, 24, 24, 25, 26, 27, 28, 29)
WGMMA(56, 28, 28, 29, 30, 31, 32, 33)
WGMMA(64, 32, 32, 33, 34, 35, 36, 37)
WGMMA(80, 40, 40, 41, 42, 43, 44, 45)
WGMMA(96, 48, 48, 49, 50, 51, 52, 53)
WGMMA(112, 56, 56, 57, 58, 59, 60, 61)
WGMMA(120, 60, 60, 61, 62, 63, 64, 65)
WGMMA(128, 64, 64, 65, 66, 67, 68, 69)
WGMMA(144, 72, 72, 73, 74, 75, 76, 77)
WGMMA(168, 84, 84, 85, 86, 87, 88, 89)
WGMMA(192, 96, 96, 97, 98, 99, 100, 101)

struct AsyncProduct {
    // Orders writes of this thread to shared memory before later reads by the tensor cores.
    static DEVICE void fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
    // At most PENDING of the products begun so far are unfinished: operands and, with 0, sums are this thread's again.
    template <int PENDING> static DEVICE void wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }

    // Begins the product of the first WIDTH tokens of N with runs `run` to `run` + RUNS - 1 of a stage; the sums begin with it where `fresh`.
    template <int N, int WIDTH, int RUNS> static DEVICE void multiply(float *acc, const u32 *a, u32 stage, u32 run, u32, bool fresh) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (u32 step = 2 * run; step < 2 * (run + RUNS); step++, a += 4) // of 16 columns
            wgmma<WIDTH>(acc, a, activation_descriptor(stage) + (step / 4 * (N * 128) + step % 4 * 32) / 16, !(fresh && step == 2 * run));
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

    template <int N, int WIDTH, int RUNS> static DEVICE void multiply(float *acc, const u32 *a, u32 stage, u32 first, u32 lane, bool fresh) {
        if (fresh)
#pragma unroll
            for (int i = 0; i < WIDTH / 2; i++) acc[i] = 0;
#pragma unroll
        for (u32 run = first; run < first + RUNS; run++, a += 8) {
            // This lane's row of the four matrices, for tokens 0 to 7; other tokens are whole kilobytes away.
            const u32 address = activation_address<N>(stage, lane % 8, 4 * (run % 2) + lane / 8) + run / 2 * (N * 128);
#pragma unroll
            for (int f = 0; f < WIDTH / 8; f++) {
                u32 b[4]; // tokens 8f .. 8f+7; columns 0-7, 8-15, 16-23, 24-31 of the run
                load_matrices(b, address + f * 1024);
                mma(acc + 4 * f, a, b[0], b[1]);
                mma(acc + 4 * f, a + 4, b[2], b[3]);
            }
        }
    }
};
