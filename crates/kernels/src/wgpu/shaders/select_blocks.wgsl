// mean_pool: out[b, 0, :] = mean of x[b * ratio .. (b + 1) * ratio, 0, :].
// block_scores, select_blocks: of the blocks complete at a query's position, the n with the highest
// sum over h of max(0, q[t, h] . keys[b]), ties to the lower block, ascending, then -1.
//
// A score is not negative, so its bits order as it does. The n-th highest is found bit by bit: the largest number that at
// least n scores reach. Every score above it is taken, and of those equal to it the first ones. How threads sum up is in
// order.wgsl, or order_subgroups.wgsl.

struct Params {
    x: View,     // or q
    keys: View,
    out: View,
    count: u32,
    ratio: u32,
    heads: u32,
    pos0: u32,
    blocks: u32, // scores of a query
    total: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> keys: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read_write> chosen: array<i32>;
@group(0) @binding(4) var<storage, read_write> scores: array<u32>; // [T, blocks]

@compute @workgroup_size(256)
fn mean_pool(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_number(group, groups) * 256u + thread;
    if i >= p.total {
        return;
    }
    let block = i / p.out.cols;
    let c = i % p.out.cols;
    var sum = 0.0;
    for (var row = block * p.ratio; row < (block + 1u) * p.ratio; row++) {
        sum += x[at(p.x, row, 0u) + c];
    }
    out[at(p.out, block, 0u) + c] = sum / f32(p.ratio);
}

@compute @workgroup_size(256)
fn block_scores(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_number(group, groups) * 256u + thread;
    if i >= p.total {
        return;
    }
    let token = i / p.blocks;
    let block = i % p.blocks;
    if block >= (p.pos0 + token + 1u) / p.ratio {
        return;
    }
    let key = at(p.keys, block, 0u);
    var score = 0.0;
    for (var h = 0u; h < p.heads; h++) {
        let query = at(p.x, token, h);
        var dot = 0.0;
        for (var c = 0u; c < p.x.cols; c++) {
            dot += x[query + c] * keys[key + c];
        }
        score += max(dot, 0.0);
    }
    scores[i] = bitcast<u32>(score);
}

var<workgroup> total_of_all: u32;

// The sum over all places, known to be the same for all threads, and the sum over those before this one.
fn running_sum(place: Place, n: u32) -> vec2<u32> {
    let up_to = running(place, vec4(n, 0u, 0u, 0u)).x;
    if place.first + place.lane == 255u {
        total_of_all = up_to;
    }
    return vec2(workgroupUniformLoad(&total_of_all), up_to - n);
}

@compute @workgroup_size(256)
fn select_blocks(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let token = group_number(group, groups);
    if token >= p.count {
        return;
    }
    let place = take_place(thread);
    let blocks = (p.pos0 + token + 1u) / p.ratio;
    let wanted = p.out.cols;
    let first = token * p.blocks;
    var least = 0u; // the n-th highest score
    if blocks > wanted {
        for (var bit = 31u; bit > 0u; bit--) {
            let candidate = least | (1u << (bit - 1u));
            var reach = 0u;
            for (var b = thread; b < blocks; b += 256u) {
                reach += u32(scores[first + b] >= candidate);
            }
            if running_sum(place, reach).x >= wanted {
                least = candidate;
            }
        }
    }
    var above = 0u;
    for (var b = thread; b < blocks; b += 256u) {
        above += u32(scores[first + b] > least);
    }
    var ties = wanted - min(wanted, running_sum(place, above).x); // of the scores equal to `least`, how many may still come
    if blocks <= wanted {
        ties = blocks;
    }
    let to = at(p.out, token, 0u);
    var written = 0u;
    var tied = 0u;
    for (var b0 = 0u; b0 < blocks; b0 += 256u) {
        let b = b0 + place.first + place.lane;
        var higher = 0u;
        var equal = 0u;
        if b < blocks {
            higher = u32(scores[first + b] > least);
            equal = u32(scores[first + b] == least);
        }
        let equals = running_sum(place, equal);
        let take = higher + equal * u32(tied + equals.y < ties);
        tied += equals.x;
        let takes = running_sum(place, take);
        if take == 1u {
            chosen[to + written + takes.y] = i32(b);
        }
        written += takes.x;
    }
    for (var i = written + thread; i < wanted; i += 256u) {
        chosen[to + i] = -1;
    }
}
