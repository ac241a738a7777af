// The choice of experts: for each token the K best of E by (selection score, then lower index), and their weights.
// A block of one warp for a token; keys in shared memory.
#include "view.cuh"

struct RouteArgs {
    Floats logits, bias, weights; // bias only where has_bias
    Ints ids;
    Status *status;
    u32 has_bias, sigmoid_gating, renormalise, groups, used; // groups = 0: no limit
    u32 has_tail, op;
    float scale, tail_share;
};
AS_HOST(RouteArgs, ROUTE_ARGS);

// Order of keys as integers, both zeros equal; a key that is no number is below all others.
DEVICE u32 order_of(float key) {
    if (key != key) return 0;
    u32 bits = __float_as_uint(key + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The best of this warp's candidates: the highest order, then the lowest index. Order 0 with index ~0 for none.
struct Best { u32 order, index; };
DEVICE Best warp_best(Best b) {
    const u32 order = __reduce_max_sync(~0u, b.order);
    return {order, __reduce_min_sync(~0u, b.order == order ? b.index : ~0u)};
}

DEVICE float exp_from(float logit, float shift) { return logit == shift ? 1.0f : expf(logit - shift); }
// The score times e^-shift, before a softmax divides by its sum. A sigmoid's shift is not above 0.
DEVICE float score_of(const RouteArgs &a, float logit, float shift) {
    if (!a.sigmoid_gating) return exp_from(logit, shift);
    return logit > 0.0f ? 1.0f / (1.0f + expf(-logit)) : exp_from(logit, shift) / (1.0f + expf(logit));
}
DEVICE float warp_max(float x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
    return x;
}

extern "C" __global__ void __launch_bounds__(32) route(const __grid_constant__ RouteArgs a) {
    extern __shared__ u32 memory[];
    const u32 token = blockIdx.x, lane = threadIdx.x, experts = a.logits.cols, top_k = a.ids.cols;
    u32 *keys = memory;                    // [E] order of the selection scores; 0 once taken (or out of the race)
    u32 *group_keys = keys + experts;      // [groups]
    const float *logits = a.logits.at(token, 0);
    i32 *ids = a.ids.at(token, 0);
    float *weights = a.weights.at(token, 0);

    float highest = -INFINITY_F;
    bool number = true;
    for (u32 e = lane; e < experts; e += 32) number &= logits[e] == logits[e], highest = fmaxf(highest, logits[e]);
    if (!__all_sync(~0u, number)) {
        if (lane == 0) report(a.status, a.op, token);
        for (u32 k = lane; k < top_k; k += 32) ids[k] = -1, weights[k] = 0;
        return;
    }
    highest = warp_max(highest);
    const float shift = a.sigmoid_gating ? 0.0f : highest;
    float sum = 1.0f;
    if (!a.sigmoid_gating && (a.has_bias || !a.renormalise)) {
        sum = 0;
        for (u32 e = lane; e < experts; e += 32) sum += score_of(a, logits[e], shift);
        sum = warp_sum(sum);
    }
    // Orders are at least 1 for candidates: a key that is no number has order 0 and would look taken.
    for (u32 e = lane; e < experts; e += 32) {
        const float key = a.has_bias ? score_of(a, logits[e], shift) / sum + a.bias.first[e] : logits[e];
        keys[e] = max(order_of(key), 1u);
    }
    __syncwarp();

    if (a.groups) { // only experts of the groups with the highest sum of their two best keys
        const u32 members = experts / a.groups;
        for (u32 g = 0; g < a.groups; g++) {
            Best first = {0, ~0u}, second = {0, ~0u};
            for (u32 i = lane; i < members; i += 32)
                if (keys[g * members + i] > first.order) first = {keys[g * members + i], i};
            first = warp_best(first);
            for (u32 i = lane; i < members; i += 32)
                if (i != first.index && keys[g * members + i] > second.order) second = {keys[g * members + i], i};
            second = warp_best(second);
            if (lane == 0) {
                auto key = [&](u32 i) {
                    const u32 e = g * members + i;
                    return a.has_bias ? score_of(a, logits[e], shift) / sum + a.bias.first[e] : logits[e];
                };
                group_keys[g] = max(order_of(second.order ? key(first.index) + key(second.index) : key(first.index)), 1u);
            }
        }
        __syncwarp();
        for (u32 n = 0; n < a.used; n++) {
            Best best = {0, ~0u};
            for (u32 g = lane; g < a.groups; g += 32)
                if (group_keys[g] > best.order && group_keys[g] != ~0u) best = {group_keys[g], g};
            best = warp_best(best);
            if (lane == 0) group_keys[best.index] = ~0u; // chosen
            __syncwarp();
        }
        for (u32 e = lane; e < experts; e += 32)
            if (group_keys[e / members] != ~0u) keys[e] = 0;
        __syncwarp();
    }

    float best_logit = -INFINITY_F;
    for (u32 k = 0; k < top_k; k++) {
        Best best = {0, ~0u};
        for (u32 e = lane; e < experts; e += 32)
            if (keys[e] > best.order) best = {keys[e], e};
        best = warp_best(best);
        if (lane == 0) ids[k] = best.index, keys[best.index] = 0;
        best_logit = fmaxf(best_logit, logits[best.index]);
        __syncwarp();
    }

    // Weights: the scores, or the chosen ones' scores divided by their sum, all scaled first so that none underflows.
    const float base = !a.renormalise ? shift : a.sigmoid_gating ? fminf(best_logit, 0.0f) : best_logit;
    float total = a.renormalise ? 0.0f : sum;
    if (a.renormalise) {
        for (u32 k = lane; k < top_k; k += 32) total += score_of(a, logits[ids[k]], base);
        total = warp_sum(total);
    }
    for (u32 k = lane; k < top_k; k += 32) weights[k] = score_of(a, logits[ids[k]], base) / total * a.scale;
    __syncwarp();
    if (a.has_tail && lane == 0) {
        float all = 0, held = 0;
        for (u32 k = 0; k < top_k; k++) all += weights[k];
        const float enough = a.tail_share * all;
        for (u32 k = 0; k < top_k; k++) {
            const float weight = weights[k];
            if (held >= enough && held > 0.0f) ids[k] = -1, weights[k] = 0;
            held += weight;
        }
    }
}
