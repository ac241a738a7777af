// An entry's rank among the entries of its expert in a block of threads: one thread an entry, one warp a sub-block of 32.
#pragma once
#include "prelude.cuh"

constexpr u32 BLOCK = PLAN_BLOCK;

DEVICE u32 sum_of_bytes(u32 word) { return __dp4a(word, 0x01010101u, 0u); }

// The lanes whose entries are of the same expert; of an entry without one (-1), whichever. A ballot for each bit, by threes, is
// faster than the instruction that matches lanes, which looks at one value after another.
DEVICE u32 same_expert(i32 expert, u32 experts) {
    u32 same = __ballot_sync(~0u, expert >= 0);
#pragma unroll 1
    for (u32 bit = 0; (experts - 1) >> bit; bit += 3) {
#pragma unroll
        for (u32 j = 0; j < 3; j++) {
            const bool set = expert >> (bit + j) & 1;
            const u32 others = __ballot_sync(~0u, set);
            same &= set ? others : ~others;
        }
    }
    return same;
}

// How many entries an expert has in each sub-block goes into one byte (at most 32), four to a word, [threads / 128][E] words.
// An entry of sub-block s then adds up the bytes before s.
DEVICE void match_clear(u32 *counters, u32 experts) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < blockDim.x / 128 * experts; i += blockDim.x) counters[i] = 0;
}
// The rank in the sub-block; call it with all threads, `expert` -1 for an entry without one.
DEVICE u32 match_count(u32 *counters, u32 experts, i32 expert) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 same = same_expert(expert, experts), rank = __popc(same & ((1u << lane) - 1));
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
