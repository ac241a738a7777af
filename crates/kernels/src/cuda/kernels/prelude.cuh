// Types, conversions and the PTX that the kernels share. NVRTC is given no toolkit header: everything is declared here.
#pragma once
#include "host.cuh"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;

#define DEVICE __device__ __forceinline__

// host.cuh, generated, has the numbers that host and kernels share. A struct that the host fills is as long there as here.
#define AS_HOST(type, bytes) static_assert(sizeof(type) == bytes, #type " is not what the host passes")

// ---- numbers -------------------------------------------------------------------------------------------------------

// f16 bits to f32, exact.
DEVICE float half_to_float(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

// f32 to f16 bits, to nearest, ties to even, subnormals kept.
DEVICE u16 float_to_half(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

// Two f32 to one word of f16: lo in the low half.
DEVICE u32 float2_to_half2(float lo, float hi) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

// Two numbers as the sum of two words of f16.
DEVICE void split(float a, float b, u32 &high, u32 &low) {
    high = float2_to_half2(a, b);
    low = float2_to_half2(a - half_to_float((u16)high), b - half_to_float((u16)(high >> 16)));
}

DEVICE u32 half2_fma(u32 a, u32 b, u32 c) {
    u32 r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

DEVICE u32 half2_mul(u32 a, u32 b) {
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

DEVICE u32 half2_add(u32 a, u32 b) {
    u32 r;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

DEVICE u32 half2_sub(u32 a, u32 b) {
    u32 r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

DEVICE u32 half2_negative(u32 a) {
    u32 r;
    asm("neg.f16x2 %0, %1;" : "=r"(r) : "r"(a));
    return r;
}

DEVICE u32 prmt(u32 a, u32 b, u32 selector) {
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}

// (a & b) ^ c in one instruction.
DEVICE u32 and_xor(u32 a, u32 b, u32 c) {
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

// (a & b) | c.
DEVICE u32 and_or(u32 a, u32 b, u32 c) {
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

DEVICE float bits_to_float(u32 u) { return __uint_as_float(u); }

// 2^e for -126 <= e <= 127.
DEVICE float power_of_two(i32 e) { return bits_to_float((u32)(127 + e) << 23); }

// ---- order of kernels ------------------------------------------------------------------------------------------------

// For kernels that may begin while the one before them still ends (driver.rs: all kernels of a file that calls this, each of
// which calls it once). What comes before it touches no global memory; after it, all earlier kernels have ended and what
// they wrote is seen.
DEVICE void after_previous() {
#if CAPABILITY >= 90
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel come as far as its `after_previous`: for kernels that leave it room.
DEVICE void before_next() {
#if CAPABILITY >= 90
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- shared memory -------------------------------------------------------------------------------------------------

DEVICE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// Copies 4 bytes from global to shared memory.
DEVICE void copy4_async(u32 shared, const void *global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}

// Copies 16 bytes.
DEVICE void copy16_async(u32 shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int PENDING> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// A word at a 2-byte aligned place.
DEVICE u32 load_u32_at2(const u8 *p) {
    const u16 *h = (const u16 *)p;
    return h[0] | ((u32)h[1] << 16);
}

// A word at any place.
DEVICE u32 load_u32_at1(const u8 *p) { return p[0] | ((u32)p[1] << 8) | ((u32)p[2] << 16) | ((u32)p[3] << 24); }
