// An entry's rank among the entries of its expert in a block of 1024: one thread an entry, one warp a sub-block of 32.
#pragma once
#include "prelude.cuh"

constexpr u32 BLOCK = PLAN_BLOCK, SUB_BLOCKS = 32;
static_assert(BLOCK == 1024, "a thread for each entry");

// `match`: the entries of the same expert in a warp find each other by one instruction; how many an expert has in each
// sub-block goes into one byte (at most 32), four to a word, [8][E] words. An entry of sub-block s then adds up the bytes
// before s.
constexpr u32 MATCH_WORDS = SUB_BLOCKS / 4;
static_assert(MATCH_WORDS == PLAN_COUNTERS, "what the host leaves room for");

DEVICE u32 sum_of_bytes(u32 word) { return __dp4a(word, 0x01010101u, 0u); }

DEVICE void match_clear(u32 *counters, u32 experts) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < MATCH_WORDS * experts; i += BLOCK) counters[i] = 0;
}
// The rank in the sub-block; call it with all threads, `expert` -1 for an entry without one.
DEVICE u32 match_count(u32 *counters, u32 experts, i32 expert) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 same = __match_any_sync(~0u, expert), rank = __popc(same & ((1u << lane) - 1));
    if (expert >= 0 && rank == 0) atomicAdd(&counters[warp / 4 * experts + expert], __popc(same) << (8 * (warp % 4)));
    return rank;
}
// Entries of the expert in earlier sub-blocks, once all are counted.
DEVICE u32 match_before(const u32 *counters, u32 experts, i32 expert) {
    const u32 warp = threadIdx.x / 32;
    u32 before = sum_of_bytes(counters[warp / 4 * experts + expert] & ((1u << (8 * (warp % 4))) - 1));
#pragma unroll 1
    for (u32 w = 0; w < warp / 4; w++) before += sum_of_bytes(counters[w * experts + expert]);
    return before;
}
DEVICE u32 match_total(const u32 *counters, u32 experts, u32 expert) {
    u32 total = 0;
#pragma unroll
    for (u32 w = 0; w < MATCH_WORDS; w++) total += sum_of_bytes(counters[w * experts + expert]);
    return total;
}
