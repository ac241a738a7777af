// Chooses K experts for each token, best first, and their weights; a workgroup for each token. op/moe.rs has the rules.
//
// Scores and keys are kept in memory of the device's own, so that any number of experts fits. A key is a number whose order
// as an integer is that of the selection: 0 has been taken or takes no part, 1 is not a number, all others are above.

struct Params {
    logits: View,
    bias: View,
    ids: View,
    weights: View,
    count: u32,
    experts: u32,
    sigmoids: u32,    // 1: scores are sigmoids, 0: softmax
    has_bias: u32,
    renormalise: u32,
    scale: f32,
    groups: u32,      // 0: every expert takes part
    used: u32,
    has_tail: u32,
    tail_share: f32,
    status: u32,      // index of this op's words
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;
@group(0) @binding(2) var<storage, read_write> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> ids: array<i32>;
@group(0) @binding(4) var<storage, read_write> weights: array<f32>;
@group(0) @binding(5) var<storage, read_write> scores: array<f32>;      // [T, E]
@group(0) @binding(6) var<storage, read_write> keys: array<u32>;        // [T, E]
@group(0) @binding(7) var<storage, read_write> group_keys: array<u32>;  // [T, groups]
@group(0) @binding(8) var<storage, read_write> status: array<atomic<u32>>;

// -0 and 0 have one key.
fn key_of(x: f32) -> u32 {
    if is_nan(x) {
        return 1u;
    }
    let bits = bitcast<u32>(x);
    if (bits & 0x7fffffffu) == 0u {
        return 0x80000000u;
    }
    return select(bits | 0x80000000u, ~bits, bits >> 31u == 1u);
}

fn float_of(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, key >> 31u == 1u));
}

// e^(logit - shift), an infinite logit being equal to an infinite shift.
fn exponential_from(logit: f32, shift: f32) -> f32 {
    return select(exponential(logit - shift), 1.0, logit == shift);
}

// The score times e^-shift, before a softmax divides by its sum; a sigmoid's shift is not above 0.
fn score_of(logit: f32, shift: f32) -> f32 {
    if p.sigmoids == 0u {
        return exponential_from(logit, shift);
    }
    if logit > 0.0 {
        return 1.0 / (1.0 + exponential(-logit));
    }
    return exponential_from(logit, shift) / (1.0 + exponential(logit));
}

var<workgroup> best: array<vec2<u32>, 256>; // key, index

fn better(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x > b.x || (a.x == b.x && a.y < b.y);
}

// The index of the best of 256 candidates.
fn best_of_all(thread: u32, candidate: vec2<u32>) -> u32 {
    best[thread] = candidate;
    for (var step = 128u; step > 0u; step >>= 1u) {
        workgroupBarrier();
        if thread < step && better(best[thread + step], best[thread]) {
            best[thread] = best[thread + step];
        }
    }
    let index = workgroupUniformLoad(&best[0]).y;
    workgroupBarrier();
    return index;
}

// Takes part: only the experts of the best groups, by the sum of the two best keys of each.
fn leave_out_groups(thread: u32, first: u32, token: u32) {
    let members = p.experts / p.groups;
    let mine = token * p.groups;
    for (var g = thread; g < p.groups; g += 256u) {
        var two = vec2(0u); // no key is 0 yet
        for (var e = g * members; e < (g + 1u) * members; e++) {
            let key = keys[first + e];
            if key > two.x {
                two = vec2(key, two.x);
            } else if key > two.y {
                two.y = key;
            }
        }
        group_keys[mine + g] = key_of(float_of(two.x) + select(float_of(two.y), 0.0, two.y == 0u));
    }
    storageBarrier();
    for (var g = thread; g < p.groups; g += 256u) {
        var ahead = 0u;
        let own = vec2(group_keys[mine + g], g);
        for (var other = 0u; other < p.groups; other++) {
            ahead += u32(better(vec2(group_keys[mine + other], other), own));
        }
        if ahead >= p.used {
            for (var e = g * members; e < (g + 1u) * members; e++) {
                keys[first + e] = 0u;
            }
        }
    }
    storageBarrier();
}

// By one thread, in the order of k: the weights of the chosen experts.
fn weigh(token: u32) {
    let logit = at(p.logits, token, 0u);
    let chosen = at(p.ids, token, 0u);
    let to = at(p.weights, token, 0u);
    let top = p.ids.cols;
    if p.renormalise == 1u {
        var shift = logits[logit + u32(ids[chosen])];
        for (var j = 1u; j < top; j++) {
            shift = max(shift, logits[logit + u32(ids[chosen + j])]);
        }
        if p.sigmoids == 1u {
            shift = min(shift, 0.0);
        }
        var sum = 0.0;
        for (var j = 0u; j < top; j++) {
            let share = score_of(logits[logit + u32(ids[chosen + j])], shift);
            weights[to + j] = share;
            sum += share;
        }
        for (var j = 0u; j < top; j++) {
            weights[to + j] /= sum;
        }
    } else {
        for (var j = 0u; j < top; j++) {
            weights[to + j] = scores[token * p.experts + u32(ids[chosen + j])];
        }
    }
    var sum = 0.0;
    for (var j = 0u; j < top; j++) {
        weights[to + j] *= p.scale;
        sum += weights[to + j];
    }
    if p.has_tail == 1u {
        var held = 0.0;
        for (var j = 0u; j < top; j++) {
            let weight = weights[to + j];
            if held >= p.tail_share * sum && held > 0.0 {
                ids[chosen + j] = -1;
                weights[to + j] = 0.0;
            }
            held += weight;
        }
    }
}

@compute @workgroup_size(256)
fn route(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let token = group_number(group, groups);
    if token >= p.count {
        return;
    }
    let logit = at(p.logits, token, 0u);
    let first = token * p.experts;
    var highest = bitcast<f32>(0xff7fffffu);
    var unknown = 0.0;
    for (var e = thread; e < p.experts; e += 256u) {
        let x = logits[logit + e];
        unknown = select(unknown, 1.0, is_nan(x));
        highest = max(highest, x);
    }
    if group_max(thread, unknown) > 0.0 {
        if thread == 0u {
            atomicMin(&status[p.status], token);
        }
        for (var j = thread; j < p.ids.cols; j += 256u) {
            ids[at(p.ids, token, 0u) + j] = -1;
            weights[at(p.weights, token, 0u) + j] = 0.0;
        }
        return;
    }
    let need_scores = p.has_bias == 1u || p.renormalise == 0u;
    if need_scores {
        let top = group_max(thread, highest);
        // All of them -infinity: every score is the same.
        let shift = select(top, logits[logit], top == bitcast<f32>(0xff7fffffu) && logits[logit] < top);
        var sum = 0.0;
        for (var e = thread; e < p.experts; e += 256u) {
            let score = score_of(logits[logit + e], select(shift, 0.0, p.sigmoids == 1u));
            scores[first + e] = score;
            sum += score;
        }
        if p.sigmoids == 0u {
            let total = group_sum(thread, sum);
            for (var e = thread; e < p.experts; e += 256u) {
                scores[first + e] /= total;
            }
        }
    }
    for (var e = thread; e < p.experts; e += 256u) {
        var key = logits[logit + e];
        if p.has_bias == 1u {
            key = scores[first + e] + bias[p.bias.first + e];
        }
        keys[first + e] = key_of(key);
    }
    storageBarrier();
    if p.groups > 0u {
        leave_out_groups(thread, first, token);
    }
    // The best K times; a thread looks at its own experts, and takes what was chosen of them out of the race.
    for (var j = 0u; j < p.ids.cols; j++) {
        var mine = vec2(0u, 0xffffffffu);
        for (var e = thread; e < p.experts; e += 256u) {
            let candidate = vec2(keys[first + e], e);
            if better(candidate, mine) {
                mine = candidate;
            }
        }
        let expert = best_of_all(thread, mine);
        if expert % 256u == thread {
            keys[first + expert] = 0u;
        }
        if thread == 0u {
            ids[at(p.ids, token, 0u) + j] = i32(expert);
        }
    }
    if thread == 0u {
        weigh(token);
    }
}
